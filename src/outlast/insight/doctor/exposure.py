"""Checks of what strangers could read: on the way to the servers, and on this machine."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from outlast.credentials import hide_logins
from outlast.errors import ConfigError
from outlast.insight.doctor.finding import Exposure, Facts, Finding, Level, MessengerUrl, ok
from outlast.store.environment import owner_unless_own
from outlast.text import line
from outlast.wakeup import address

PROVEN = ("verify-ca", "verify-full")
PATH_MAX = 200
VERIFY = (
    "Add ?sslmode=verify-full&sslrootcert=PATH to the URL, or set $PGSSLMODE and $PGSSLROOTCERT:"
    " see docs/operating.md, TLS to PostgreSQL."
)


def look_at(
    url: str, wakeup: str | None, arguments: list[str], environ: Mapping[str, str]
) -> Exposure:
    """Return what can be told from the URLs of store and messenger, from the arguments of this
    command and from the environment. Connects to nothing."""
    query = _query(url)
    messenger = _messenger(wakeup)
    keys = [query.get("sslkey") or environ.get("PGSSLKEY"), *_keys_of(wakeup)]
    found = {path: _mode(path) for path in keys if path}
    return Exposure(
        in_arguments=any(hide_logins(each) != each for each in arguments),
        sslmode=_sslmode(url, query, environ),
        authority=_authority(query, environ),
        messenger=messenger,
        keys={path: mode for path, mode in found.items() if mode & 0o077},
        owners={path: owner for path in found if (owner := owner_unless_own(path))},
    )


def _sslmode(url: str, query: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    if url.startswith("sqlite"):
        return None
    hosts = _hosts(url) or query.get("host") or environ.get("PGHOST") or ""
    if all(_is_here(host) for host in hosts.split(",")):
        return None
    return query.get("sslmode") or environ.get("PGSSLMODE") or "prefer"


def _authority(query: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    named = query.get("sslrootcert") or environ.get("PGSSLROOTCERT")
    return bool(named) or (Path.home() / ".postgresql" / "root.crt").exists()


def _hosts(url: str) -> str:
    with suppress(ValueError):
        return urlsplit(url).netloc.rpartition("@")[2]
    return ""


def _query(url: str) -> dict[str, str]:
    return dict(parse_qsl(url.partition("?")[2]))


def _is_here(host: str) -> bool:
    """Whether a host, with or without a port, is this machine, or a socket on it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    if not name or name.startswith("/") or name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _messenger(wakeup: str | None) -> MessengerUrl | None:
    """Return the messenger on another host; None where there is none, or it is on this one."""
    try:
        to = address.parse(wakeup or "")
    except ConfigError:
        return None
    if all(_is_here(host) for host, _ in to.hosts):
        return None
    return MessengerUrl(place=to.place, secured=to.secured, login=bool(to.user or to.password))


def _keys_of(wakeup: str | None) -> list[str]:
    with suppress(ConfigError):
        settings = address.parse(wakeup).settings if wakeup else {}
        return [settings[name] for name in ("creds", "nkey", "tls_key") if name in settings]
    return []


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0


def tls(facts: Facts) -> Iterator[Finding]:
    """Whether strangers on the way to PostgreSQL can read along, or impersonate it."""
    mode, has_authority = facts.exposure.sslmode, facts.exposure.authority
    if mode is None:
        return
    if mode in PROVEN or (mode == "require" and has_authority):
        yield ok("tls", f"PostgreSQL has to show a certificate first (sslmode={mode}).")
    elif mode == "require":
        said = "sslmode=require accepts any certificate: the server that answers gets the password."
        yield Finding(level=Level.HINT, name="tls", sentence=said, mend=VERIFY)
    else:
        said = (
            f"PostgreSQL is on another host, and sslmode={line(mode, 20)} goes in clear where the"
            " server offers no TLS: the password, and all that jobs are given."
        )
        yield Finding(level=Level.WARNING, name="tls", sentence=said, mend=VERIFY)


def messenger(facts: Facts) -> Iterator[Finding]:
    """Whether strangers on the way to the messenger can read along."""
    found = facts.exposure.messenger
    if found is None:
        return
    if found.secured:
        yield ok("messenger_tls", f"{line(found.place, PATH_MAX)} has to show a certificate first.")
        return
    what = "its login, and the names of queues and tasks" if found.login else "queues and tasks"
    yield Finding(
        level=Level.WARNING if found.login else Level.HINT,
        name="messenger_tls",
        sentence=f"The messenger is on another host ({line(found.place, PATH_MAX)}), without TLS:"
        f" who reads along has {what}.",
        mend="Write tls:// or amqps:// in the URL, with ?tls_ca=PATH for an authority of your own.",
    )


def arguments(facts: Facts) -> Iterator[Finding]:
    """Whether this command was given a password for all to see."""
    if facts.exposure.in_arguments:
        yield Finding(
            level=Level.WARNING,
            name="secret_in_arguments",
            sentence="The arguments of this command hold a password, which every user of this"
            " machine can read, and the shell keeps.",
            mend="Set it in the environment instead: OUTLAST_URL, OUTLAST_WAKEUP; or ~/.pgpass.",
        )


def keys(facts: Facts) -> Iterator[Finding]:
    """Whether other users can read the keys that open store or messenger."""
    for path, mode in facts.exposure.keys.items():
        owner = facts.exposure.owners.get(path)
        who = f"As {line(owner, 60)}, whose file it is, or as root: " if owner else ""
        yield Finding(
            level=Level.WARNING,
            name="key_file",
            sentence=f"Users beside the owner can use the key in {line(path, PATH_MAX)}"
            f" ({mode:04o}).",
            mend=f"{who}chmod go-rwx {line(path, PATH_MAX)}",
        )


EXPOSURE: tuple[Callable[[Facts], Iterator[Finding]], ...] = (tls, messenger, arguments, keys)
