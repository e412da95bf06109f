"""Check this machine: the directory of lock files, Kubernetes, and what strangers could read, here
and on the way to the servers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from outlast.base.credentials import hide_logins
from outlast.base.text import line
from outlast.errors import ConfigError
from outlast.insight.doctor.facts import Exposure, Facts, Locks, MessengerUrl
from outlast.store.backend import backend_of, file_of
from outlast.store.environment import is_here, owner_unless_own
from outlast.store.finding import Finding, hint, ok, problem, warning
from outlast.store.lockfile import directory_for, is_trusted, refuses, temporary_directory
from outlast.wakeup import kinds
from outlast.wakeup.kinds import TLS_SCHEMES

TMPFILES = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d")
AGE_FIELD = 5  # of a line of tmpfiles.d: type path mode user group age argument
OWN_DIRECTORY = "Set OUTLAST_RUN_DIR to a directory of the workers' user on a local disk."
OWN_FILE = (
    "Keep the file in a directory that belongs to the workers' user, as must the directory of lock"
    " files beside it. To share it with a group, before its first use: install -d -m 2770 -g GROUP"
    " DIRECTORY; install -m 660 -g GROUP /dev/null DIRECTORY/FILE."
)


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


def lock_directory(facts: Facts) -> Iterator[Finding]:
    """Whether lock files can prove the death of a worker on this machine."""
    locks = facts.locks
    choose = OWN_FILE if locks.beside else OWN_DIRECTORY
    if locks.network is not None:
        said = f"{locks.path} is on {locks.network}, whose locks prove nothing."
        yield problem("lock_directory", said, choose)
    elif (locks.mode or 0) & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        said = f"Everybody may delete files in {_whose(locks)}, the proof of a worker's death."
        mend = choose if locks.owner else f"chmod o-w {locks.path}"
        yield warning("lock_directory", said, mend)
    elif not locks.writable:
        said = f"A worker that runs as this user cannot create lock files in {_whose(locks)}."
        yield warning("lock_directory", said, choose)
    elif locks.cleaned_by is not None:
        said = f"Old files in {locks.path} are deleted ({line(locks.cleaned_by, 120)})."
        yield hint("lock_directory", said, choose)
    else:
        made = "" if locks.mode is not None else " (the first worker makes it)"
        yield ok("lock_directory", f"Lock files are in {locks.path}{made}.")


def _whose(locks: Locks) -> str:
    return f"{locks.path}, a directory of {line(locks.owner, 60)}" if locks.owner else locks.path


def drain(facts: Facts) -> Iterator[Finding]:
    """Remind people of the time that a platform gives a process to stop."""
    if facts.kubernetes:
        yield hint(
            "drain_timeout",
            "This is Kubernetes, which kills a pod 30 s after it was asked to stop.",
            "Keep terminationGracePeriodSeconds 15 s or more above --drain-timeout (25).",
        )


def in_kubernetes() -> bool:
    """Whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


HERE = (lock_directory, drain)


PATH_MAX = 200
_TLS = " or ".join(f"{scheme}://" for scheme in TLS_SCHEMES)


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


def route(facts: Facts) -> Iterator[Finding]:
    """Whether strangers on the way to the store's server can listen in, or impersonate it."""
    if facts.exposure.route is not None:
        yield from facts.exposure.route.findings


def messenger(facts: Facts) -> Iterator[Finding]:
    """Whether strangers on the way to the messenger can listen in."""
    found = facts.exposure.messenger
    if found is None:
        return
    if found.secured:
        yield ok("messenger_tls", f"{line(found.place, PATH_MAX)} has to show a certificate first.")
        return
    what = "its login, and the names of queues and tasks" if found.login else "queues and tasks"
    level = warning if found.login else hint
    yield level(
        "messenger_tls",
        f"The messenger is on another host ({line(found.place, PATH_MAX)}), without TLS:"
        f" anyone who reads along has {what}.",
        f"Write {_TLS} in the URL, with ?tls_ca=PATH for an authority of your own.",
    )


def arguments(facts: Facts) -> Iterator[Finding]:
    """Whether the command line of this command shows a password to other users."""
    if facts.exposure.in_arguments:
        yield warning(
            "secret_in_arguments",
            "The arguments of this command hold a password, which every user of this"
            " machine can read, and the shell keeps.",
            "Set it in the environment instead: OUTLAST_URL, OUTLAST_WAKEUP; or ~/.pgpass.",
        )


def keys(facts: Facts) -> Iterator[Finding]:
    """Whether other users can use the key files for store or messenger."""
    for path, mode in facts.exposure.keys.items():
        owner = facts.exposure.owners.get(path)
        who = f"As {line(owner, 60)}, whose file it is, or as root: " if owner else ""
        yield warning(
            "key_file",
            f"Users beside the owner can use the key in {line(path, PATH_MAX)} ({mode:04o}).",
            f"{who}chmod go-rwx {line(path, PATH_MAX)}",
        )


EXPOSURE = (route, messenger, arguments, keys)
