"""Check what strangers could read, on the way to the servers and on this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress

from outlast.base.credentials import hide_logins
from outlast.base.text import line
from outlast.errors import ConfigError
from outlast.insight.doctor.facts import Exposure, Facts, MessengerUrl
from outlast.store.backend import backend_of
from outlast.store.environment import is_here, owner_unless_own
from outlast.store.finding import Finding, hint, ok, warning
from outlast.wakeup import kinds
from outlast.wakeup.kinds import TLS_SCHEMES

PATH_MAX = 200
_TLS = " or ".join(f"{scheme}://" for scheme in TLS_SCHEMES)


def look_at(
    url: str, wakeup: str | None, arguments: list[str], environ: Mapping[str, str]
) -> Exposure:
    """Return the exposure that the URLs of store and messenger, the arguments of this command and
    the environment show. Connects to nothing."""
    read_route = backend_of(url).read_route
    way = None if read_route is None else read_route(url, environ)
    keys = [] if way is None else [*way.keys]
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
    """Whether strangers on the way to the store's server can read along, or impersonate it."""
    if facts.exposure.route is not None:
        yield from facts.exposure.route.check()


def messenger(facts: Facts) -> Iterator[Finding]:
    """Whether strangers on the way to the messenger can read along."""
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
