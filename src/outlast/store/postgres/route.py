"""Judges how safe the network path to the server is, from the URL and libpq's variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from outlast.base.text import line
from outlast.store.environment import is_here
from outlast.store.finding import Finding, Route, hint, ok, warning
from outlast.store.postgres.url import read_url

PROVEN = ("verify-ca", "verify-full")
VERIFY = (
    "Add ?sslmode=verify-full&sslrootcert=PATH to the URL, or set $PGSSLMODE and $PGSSLROOTCERT;"
    " PATH is the certificate of the authority that signed the server's."
)


def read_route(url: str, environ: Mapping[str, str]) -> Route:
    """Return what the URL and the environment show of the network path. Connects to nothing."""
    query = read_url(url, environ).parameters
    key = query.get("sslkey") or environ.get("PGSSLKEY")
    findings = judge(read_sslmode(url, environ), authority=_authority(query, environ))
    return Route([*findings], [key] if key else [])


def judge(mode: str | None, *, authority: bool) -> Iterator[Finding]:
    """Yield whether strangers can listen in, or impersonate the server. ``mode``: sslmode, None
    if the server is on this machine; ``authority``: whether an authority for its certificates is
    known."""
    if mode is None:
        return
    if mode in PROVEN or (mode == "require" and authority):
        yield ok("tls", f"PostgreSQL has to show a certificate first (sslmode={mode}).")
    elif mode == "require":
        said = "sslmode=require accepts any certificate: the server that answers gets the"
        yield hint("tls", f"{said} password.", VERIFY)
    else:
        said = (
            f"PostgreSQL is on another host, and sslmode={line(mode, 20)} accepts a connection"
            " without TLS: then the password and the arguments of jobs travel unencrypted."
        )
        yield warning("tls", said, VERIFY)


def read_sslmode(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the mode that libpq would use; None if the server is on this machine."""
    query = read_url(url, environ).parameters
    hosts = _hosts(url) or query.get("host") or environ.get("PGHOST") or ""
    if all(is_here(host) for host in hosts.split(",")):
        return None
    return query.get("sslmode") or environ.get("PGSSLMODE") or "prefer"


def _authority(query: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    named = query.get("sslrootcert") or environ.get("PGSSLROOTCERT")
    return bool(named) or os.path.exists(os.path.expanduser("~/.postgresql/root.crt"))


def _hosts(url: str) -> str:
    with suppress(ValueError):
        return urlsplit(url).netloc.rpartition("@")[2]
    return ""
