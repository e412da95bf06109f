"""Read the facts of this machine: the directory of lock files, Kubernetes, and what strangers could
read, here and on the way to the servers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from outlast.base.credentials import hide_logins
from outlast.errors import ConfigError
from outlast.insight.doctor.facts import Exposure, Locks, MessengerUrl
from outlast.store.backend import backend_of, file_of
from outlast.store.environment import is_here, owner_unless_own
from outlast.store.lockfile import directory_for, is_trusted, refuses, temporary_directory
from outlast.wakeup import kinds

TMPFILES = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d")
AGE_FIELD = 5  # of a line of tmpfiles.d: type path mode user group age argument


def locks_of(url: str, tmpfiles: Iterable[str] = TMPFILES) -> Locks:
    """Examine the directory where this store's workers, on this machine, keep their lock files."""
    file = file_of(url)
    path = directory_for(file)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mode = None
    return Locks(
        path=str(path),
        beside=file is not None,
        mode=mode,
        owner=owner_unless_own(path),
        writable=_may_make_files(path) and (mode is None or is_trusted(path)),
        network=refuses(path),
        cleaned_by=_cleaner(path, tmpfiles),
    )


def _may_make_files(path: Path) -> bool:
    """Whether this user may make files in a directory, which may have to be made first."""
    there = next(each for each in (path, *path.parents) if os.path.exists(each))
    return os.access(there, os.W_OK | os.X_OK)


def _cleaner(path: Path, folders: Iterable[str]) -> str | None:
    """Return the line of systemd-tmpfiles that deletes old files in a temporary directory."""
    temporary = temporary_directory()
    if not path.is_relative_to(temporary):
        return None
    for file in (file for folder in folders for file in sorted(Path(folder).glob("*.conf"))):
        for text in _lines(file):
            fields = text.split()
            is_aged = fields[AGE_FIELD : AGE_FIELD + 1] not in ([], ["-"])
            if fields[1:2] == [str(temporary)] and is_aged:
                return f"{file}: {text}"
    return None


def _lines(file: Path) -> list[str]:
    try:
        return [each for each in file.read_text().splitlines() if not each.startswith("#")]
    except (OSError, UnicodeError):
        return []


def in_kubernetes() -> bool:
    """Whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def look_at(
    url: str, wakeup: str | None, arguments: list[str], environ: Mapping[str, str]
) -> Exposure:
    """Return the exposure that the URLs of store and messenger, the arguments of this command and
    the environment show. Connects to nothing."""
    read_route = backend_of(url).read_route
    way = None if read_route is None else read_route(url, environ)
    keys = [] if way is None else list(way.keys)
    messenger = None
    with suppress(ConfigError):
        to = kinds.parse(wakeup or "")
        keys += [to.settings[name] for name in ("creds", "nkey", "tls_key") if name in to.settings]
        if not all(is_here(host) for host, _ in to.hosts):
            login = bool(to.user or to.password)
            messenger = MessengerUrl(place=to.place, secured=to.secured, login=login)
    found = {path: _mode(path) for path in keys if path}
    return Exposure(
        in_arguments=any(hide_logins(each) != each for each in arguments),
        route=way,
        messenger=messenger,
        keys={path: mode for path, mode in found.items() if mode & 0o077},
        owners={path: owner for path in found if (owner := owner_unless_own(path))},
    )


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0
