"""Opens one connection to PostgreSQL, by its URL and settings, through a pooler or not."""

from __future__ import annotations

import ssl
from typing import Any

import asyncpg
import msgspec

from outlast.base.credentials import check_encoded, make_hider, redact
from outlast.errors import ConfigError, text_of
from outlast.store.postgres.session import KEEPALIVE, READS_ONLY, settings_of, use_one_schema

SCHEMES = ("postgresql://", "postgres://")
_CLIENT_GRACE_SECONDS = 5.0  # the server's own statement_timeout comes first

# OpenSSL initialises itself at its first context. This module is imported where no fork can come
# in between, which would leave that half done: a child would wait forever at its first connection.
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to connect. Times are in seconds. ``reserved``: how many of the connections are for a
    worker's own trips, which use no others. ``idle_seconds``: after which an unused connection
    outside these is closed; None: it is kept. ``pooler``: a transaction pooler stands between, so
    nothing is kept in the session, neither settings nor prepared statements. A pooler that refuses
    our settings is recognised by that. ``read_only``: no transaction may write. ``application``:
    the name of the session in lists."""

    url: str
    connections: int = 1
    reserved: int = 0
    idle_seconds: float | None = None
    statement_timeout: float = 30.0
    connect_timeout: float = 10.0
    pooler: bool = False
    read_only: bool = False
    application: str = "outlast"

    def __repr__(self) -> str:
        return f"<settings of {redact(self.url)}>"


def check_url(url: str) -> str:
    """Return the URL. Raises ConfigError unless it is one of PostgreSQL."""
    if not url.startswith(SCHEMES):
        shown = redact(url)
        raise ConfigError(f"not a PostgreSQL URL: {shown!r}; write postgresql://USER@HOST/DATABASE")
    return check_encoded(url)


async def connect(
    settings: Settings, *, application: str | None = None, keeps_plans: bool = False
) -> Any:
    """Open one connection, through a pooler if there is one. The driver prepares and executes
    without a break, so a pooler keeps both on one session of the server."""
    session = {
        "application_name": application or settings.application,
        "default_transaction_isolation": "read committed",
        **settings_of(settings.statement_timeout, keeps_plans=keeps_plans),
        **(READS_ONLY if settings.read_only else {}),
        **KEEPALIVE,
    }
    try:
        connection = await _open(settings, session, pooler=settings.pooler)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        connection = None
    return connection or await _open(settings, session, pooler=True)


async def _open(settings: Settings, session: dict[str, str], *, pooler: bool) -> Any:
    """Open a connection whose search_path is ours. None: it leads to a pooler, which accepted our
    settings and dropped them."""
    connection = await _dial(settings, session, pooler=pooler)
    ours = False
    try:
        ours = await use_one_schema(connection, settings.connect_timeout)
    finally:
        if not ours:
            connection.terminate()
    return connection if ours else None


async def _dial(settings: Settings, session: dict[str, str], *, pooler: bool) -> Any:
    check_encoded(settings.url)  # the driver's error for a bad one would show pieces of it
    name = {"application_name": session["application_name"]}
    try:
        return await asyncpg.connect(
            settings.url,
            timeout=settings.connect_timeout,  # pyright: ignore[reportArgumentType]
            command_timeout=settings.statement_timeout + _CLIENT_GRACE_SECONDS,
            statement_cache_size=0 if pooler else 100,
            server_settings=name if pooler else session,
        )
    except ValueError as error:
        if isinstance(error, OSError):  # the server's certificate is refused: it may be replaced
            raise
        text = make_hider(settings.url)(text_of(error))
        raise ConfigError(f"{redact(settings.url)}: {text}") from None
