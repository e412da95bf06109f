"""Judges how safe the network path to the server is, from the URL and libpq's variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from outlast.base.text import line
from outlast.store.environment import is_here
from outlast.store.finding import HINT, OK, WARNING, Check, Route, Table, judge
from outlast.store.postgres.url import read_hosts, read_url

PROVEN = ("verify-ca", "verify-full")
VERIFY = (
    "Add ?sslmode=verify-full&sslrootcert=PATH to the URL, or set $PGSSLMODE and $PGSSLROOTCERT;"
    " PATH is the certificate of the authority that signed the server's."
)


def read_route(url: str, environ: Mapping[str, str]) -> Route:
    """Judge the network path by the URL and the environment, without connecting."""
    query = read_url(url, environ).parameters
    key = query.get("sslkey") or environ.get("PGSSLKEY")
    mode = read_sslmode(url, environ)
    way = [] if mode is None else judge(TLS, Way(mode, _authority(query, environ)))
    return Route([*way], [key] if key else [])


class Way(NamedTuple):
    """How a server on another host is reached. ``mode``: sslmode; ``authority``: whether an
    authority for its certificates is known."""

    mode: str
    authority: bool


TLS: Table[Way] = (
    Check(OK, "tls", lambda way: way.mode in PROVEN or (way.mode == "require" and way.authority),
        lambda way: f"PostgreSQL must present a certificate first (sslmode={way.mode})."),
    Check(HINT, "tls", lambda way: way.mode == "require",
        "sslmode=require accepts any certificate: the server that answers gets the password.",
        VERIFY),
    Check(WARNING, "tls", True,
        lambda way: f"PostgreSQL is on another host, and sslmode={line(way.mode, 20)} accepts a"
        " connection without TLS: then the password and the arguments of jobs travel unencrypted.",
        VERIFY),
)  # fmt: skip


def read_sslmode(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the mode that libpq would use; None if the server is on this machine."""
    query = read_url(url, environ).parameters
    if all(is_here(host) for host in read_hosts(url, environ).split(",")):
        return None
    return query.get("sslmode") or environ.get("PGSSLMODE") or "prefer"


def _authority(query: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    named = query.get("sslrootcert") or environ.get("PGSSLROOTCERT")
    return bool(named) or os.path.exists(os.path.expanduser("~/.postgresql/root.crt"))
