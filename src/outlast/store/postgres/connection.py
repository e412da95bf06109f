"""Opens one connection to PostgreSQL, by its URL and settings, through a pooler or not.

A session of our own gets its settings once, at its start. Behind a transaction pooler, each call is
a transaction that begins with all settings, in the message of its BEGIN. The arguments in the SQL
files rest on READ COMMITTED.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any

import asyncpg
from msgspec.structs import replace

from outlast.base.credentials import make_hider, redact
from outlast.errors import ConfigError, text_of
from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.postgres.hosts import ask_hosts, reach_host
from outlast.store.postgres.url import ParsedUrl, read_hosts, read_url
from outlast.store.statements import statements

_CLIENT_GRACE_SECONDS = 5.0  # the server's own statement_timeout comes first

# OpenSSL initialises itself at its first context. This module is imported where no fork can come
# in between, which would leave that half done: a child would wait forever at its first connection.
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_SQL = statements("postgres", "session")

# With these, plans use indexes, a NULL in an array is not a text, and idle sessions stay open. A
# statement from which row security would hide rows fails: a worker whose row is hidden would be
# taken for gone. default_transaction_read_only keeps the server's value: a server that runs out of
# disk protects itself by it. search_path keeps it too until our schema is found, and is then that
# schema alone (use_one_schema of session.sql).
_PLAIN = {
    "jit": "off",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "enable_tidscan": "on",
    "array_nulls": "on",
    "idle_session_timeout": "0",
    "row_security": "off",
}

_REFUSED = (  # what a server or a pooler says of a setting
    asyncpg.UndefinedObjectError,
    asyncpg.InvalidParameterValueError,
    asyncpg.CantChangeRuntimeParamError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ProtocolViolationError,
)
_STARTUP = "startup parameter"  # in the refusal of a pooler
_NOT_SET = (
    "leave it out of the URL and of $PGOPTIONS. For one that the server has: ALTER ROLE … IN"
    " DATABASE … SET …, also behind a pooler"
)

# How the server finds that a client's host is gone: it probes after a minute of silence, then each
# ten seconds, and ends the session once tcp_user_timeout is over as well, but never before the
# default lease. Otherwise a host without power would leave its idle sessions for two hours.
KEEPALIVE = {
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
}


class OpenedConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection with the facts that its opening has shown.

    Attributes:
        is_pooled: whether it may lead to a pooler: it keeps no statements.
        local: what each transaction on a connection to a pooler sets besides `settings_of`.
        is_left: whether it was ended since another server answers (``hangs.py``).
        cancelled: how many of its calls were cancelled.
        server: when the server of its opening was started; None: it was a standby.
    """

    is_pooled = False
    is_left = False
    cancelled = 0
    server: datetime | None = None
    local: str | None = None

    def _cancel_current_command(self, waiter: Any, cancel_waiter: object = None) -> None:
        """Let a statement end whose caller is cancelled: the server would commit one that waits for
        a standby without it, and show jobs that a failover takes back. The driver calls this."""
        waiter.set_result(None)


async def connect(url: str, options: StoreOptions = DEFAULTS, *, keeps_plans: bool = False) -> Any:
    """Open one connection, through a pooler if there is one. The driver prepares and executes
    without a break, so a pooler keeps both on one session of the server."""
    asked = read_url(url)
    asked.check_files()
    if asked.connect_timeout is not None:
        options = replace(options, connect_timeout=asked.connect_timeout)
    session = {
        "application_name": options.application,
        "default_transaction_isolation": "read committed",
        **settings_of(options.statement_timeout, keeps_plans=keeps_plans),
        **KEEPALIVE,
    }
    try:
        try:
            connection = await _open(asked, options, session, pooler=options.pooler)
        except asyncpg.ProtocolViolationError as error:
            if _STARTUP not in str(error):
                raise
            connection = None
        return connection or await _open(asked, options, session, pooler=True)
    except _REFUSED as error:
        text = text_of(error)
        if any(name in text for name in asked.settings) or _STARTUP in text:
            raise ConfigError(f"{redact(url)}: {text}: {_NOT_SET}") from None
        raise


async def _open(
    asked: ParsedUrl, options: StoreOptions, session: dict[str, str], *, pooler: bool
) -> Any:
    """Return None if it leads to a pooler, which accepted our settings and dropped them."""
    connection = await _dial(asked.url, options, session, pooler=pooler)
    ours = False
    try:
        if pooler:
            await _compare(connection, asked, session, options.connect_timeout)
        ours = await use_one_schema(connection, options)
    finally:
        if not ours:
            connection.terminate()
    return connection if ours else None


async def find_roles(url: str, options: StoreOptions) -> dict[str, str]:
    """Return the role of each host, if the URL names several (``hosts.ask_hosts``)."""
    if "," not in read_hosts(url, os.environ):
        return {}
    server_settings = {"application_name": options.application}
    connect_to = partial(asyncpg.connect, read_url(url).url, server_settings=server_settings)
    told, hide = await ask_hosts(options.connect_timeout / 2, connect_to), make_hider(url)
    return {host: hide(role) for host, role in told.items()}


async def _dial(url: str, options: StoreOptions, session: dict[str, str], *, pooler: bool) -> Any:
    connect_to = partial(
        asyncpg.connect,
        url,
        connection_class=OpenedConnection,
        timeout=None,  # pyright: ignore[reportArgumentType]  # it is the same for all hosts
        command_timeout=options.statement_timeout + _CLIENT_GRACE_SECONDS,
        statement_cache_size=0 if pooler else 100,
        server_settings={"application_name": options.application} if pooler else session,
    )
    try:
        connection = await reach_host(url, options.connect_timeout, connect_to)
    except ValueError as error:
        if isinstance(error, OSError):  # the server's certificate is refused: it may be replaced
            raise
        text = make_hider(url)(text_of(error))
        raise ConfigError(f"{redact(url)}: {text}") from None
    connection.is_pooled = pooler
    return connection


async def _compare(
    connection: Any, asked: ParsedUrl, session: dict[str, str], patience: float
) -> None:
    """Raise ConfigError if a pooler has dropped a setting of the URL that is not ours: a store
    would be made in another schema."""
    wanted = {name: value for name, value in asked.settings.items() if name not in session}
    if not wanted:
        return
    texts = [*wanted], [*wanted.values()]
    unmet = await connection.fetchrow(_SQL["unmet"], *texts, timeout=patience)
    if unmet is not None:
        name, value, has = unmet
        raise ConfigError(
            f"{redact(asked.url)} asks for {name} = {value}, and a pooler has dropped that"
            f" ({name} is {has!r}): {_NOT_SET}"
        )


class Transaction(StrEnum):
    """How a transaction reads: each statement sees all that is committed when it begins, or all
    statements see one snapshot, and go by index (``by_index`` of session.sql)."""

    COMMITTED = "ISOLATION LEVEL READ COMMITTED"
    SNAPSHOT = f"ISOLATION LEVEL REPEATABLE READ READ ONLY; {_SQL['by_index']}"


@lru_cache(maxsize=64)
def settings_of(statement_timeout: float, *, keeps_plans: bool) -> dict[str, str]:
    """Return the settings of a session or transaction. ``statement_timeout``, in seconds, bounds
    how long rows stay locked while the session works, waits for the next statement, or waits for a
    client that does not read (on Linux by TCP; outlast_terminate_stuck_v1 for a Unix socket)."""
    milliseconds = str(int(statement_timeout * 1000))
    return {
        "statement_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
        "tcp_user_timeout": milliseconds,
        "lock_timeout": "0",
        "plan_cache_mode": "force_generic_plan" if keeps_plans else "force_custom_plan",
        **_PLAIN,
    }


@lru_cache(maxsize=64)
def begin_text(
    kind: Transaction,
    statement_timeout: float | None = None,
    more: str | None = None,
    *,
    read_only: bool = False,
) -> str:
    """Return the text that begins a transaction; with a timeout (seconds), it sets all settings of
    a session, and ``more``, as ``local`` of an ``OpenedConnection``."""
    begin = f"BEGIN {kind}"
    if statement_timeout is None:
        return begin
    local = settings_of(statement_timeout, keeps_plans=False)
    sets = [f"SET LOCAL {name} = '{value}'" for name, value in local.items()]
    if more is not None:
        sets.append(more)
    if read_only:
        sets.append("SET LOCAL transaction_read_only = on")
    return "; ".join([begin, *sets])


@asynccontextmanager
async def in_transaction(connection: Any, begin: str) -> AsyncIterator[None]:
    await connection.execute(begin)
    yield
    await connection.execute("COMMIT")


async def use_one_schema(connection: Any, options: StoreOptions) -> bool:
    """Leave one schema on the search_path, and no limit on how long a transaction takes, and let
    the server refuse writes of a session that only reads: for good, or, behind a pooler, as
    ``local`` and ``begin_text`` say. Return False, with nothing done, if this leads to an
    undeclared pooler."""
    pooled, patience = connection.is_pooled, options.connect_timeout
    if not pooled and not await _is_direct(connection, patience):
        return False
    reads = not pooled and options.read_only
    found = await connection.fetchrow(_SQL["use_one_schema"], not pooled, reads, timeout=patience)
    connection.server = found["server"]
    connection.local = found["local"]
    return True


async def _is_direct(connection: Any, patience: float) -> bool:
    """Whether the session is of the process that greeted us. Leaves nothing prepared in it."""
    pid = connection.get_server_pid()
    own = f"SELECT WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {pid}"
    return bool(await connection.execute(own, timeout=patience) == "SELECT 1")
