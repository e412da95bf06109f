"""Opens one connection to PostgreSQL, by its URL and settings, through a pooler or not."""

from __future__ import annotations

import ssl
from typing import Any

import asyncpg

from outlast.base.credentials import check_encoded, make_hider, redact
from outlast.errors import ConfigError, text_of
from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.postgres.session import KEEPALIVE, READS_ONLY, settings_of, use_one_schema

_CLIENT_GRACE_SECONDS = 5.0  # the server's own statement_timeout comes first

# OpenSSL initialises itself at its first context. This module is imported where no fork can come
# in between, which would leave that half done: a child would wait forever at its first connection.
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def connect(url: str, options: StoreOptions = DEFAULTS, *, keeps_plans: bool = False) -> Any:
    """Open one connection, through a pooler if there is one. The driver prepares and executes
    without a break, so a pooler keeps both on one session of the server."""
    session = {
        "application_name": options.application,
        "default_transaction_isolation": "read committed",
        **settings_of(options.statement_timeout, keeps_plans=keeps_plans),
        **(READS_ONLY if options.read_only else {}),
        **KEEPALIVE,
    }
    try:
        connection = await _open(url, options, session, pooler=options.pooler)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        connection = None
    return connection or await _open(url, options, session, pooler=True)


async def _open(url: str, options: StoreOptions, session: dict[str, str], *, pooler: bool) -> Any:
    """Open a connection whose search_path is ours. None: it leads to a pooler, which accepted our
    settings and dropped them."""
    connection = await _dial(url, options, session, pooler=pooler)
    ours = False
    try:
        ours = await use_one_schema(connection, options.connect_timeout)
    finally:
        if not ours:
            connection.terminate()
    return connection if ours else None


async def _dial(url: str, options: StoreOptions, session: dict[str, str], *, pooler: bool) -> Any:
    check_encoded(url)  # the driver's error for a bad one would show pieces of it
    name = {"application_name": session["application_name"]}
    try:
        return await asyncpg.connect(
            url,
            timeout=options.connect_timeout,  # pyright: ignore[reportArgumentType]
            command_timeout=options.statement_timeout + _CLIENT_GRACE_SECONDS,
            statement_cache_size=0 if pooler else 100,
            server_settings=name if pooler else session,
        )
    except ValueError as error:
        if isinstance(error, OSError):  # the server's certificate is refused: it may be replaced
            raise
        text = make_hider(url)(text_of(error))
        raise ConfigError(f"{redact(url)}: {text}") from None
