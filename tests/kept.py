"""A database, its sessions and an event loop that one test leaves to the next.

A database of its own costs a test some 25 ms of processor, and each new session as much again: it
reads the catalogue, compiles the functions and plans their statements. So tests that need no
database of their own share one, which is emptied in between, and stores on it leave their sessions
to the stores of the next test.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import asyncpg
import psycopg
import pytest

from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.postgres import connection as plain
from outlast.store.postgres import enqueue
from tests.databases import Databases

_LARGE = 256 * 1024  # bytes of a table that is truncated, since its dead rows would slow the others
_EMPTY = f"""
DO $$
DECLARE name text; used boolean;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
        AND relkind = 'r' AND relname NOT IN ('outlast_schema', 'outlast_incarnation')
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO used;
        IF name NOT LIKE 'outlast\\_%' THEN
            EXECUTE format('DROP TABLE %I', name);
        ELSIF pg_relation_size(name::regclass) > {_LARGE} THEN
            EXECUTE format('TRUNCATE %I', name);
        ELSIF used THEN
            EXECUTE format('DELETE FROM %I', name);
        END IF;
    END LOOP;
    PERFORM setval(oid, 1, false) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'S';
END $$
"""
# Differs once a test has changed what is in the database beside rows and numbers.
_MADE_OF = """
SELECT (SELECT string_agg(s::text, '') FROM outlast_schema AS s),
    (SELECT string_agg(p.xmin::text, '') FROM pg_proc AS p WHERE oid > 16383),
    (SELECT count(*) FROM pg_attribute), (SELECT count(*) FROM pg_constraint),
    (SELECT string_agg(tgenabled::text, '') FROM pg_trigger),
    (SELECT string_agg(c.relacl::text || c.reloptions::text, '') FROM pg_class AS c),
    (SELECT count(*) FROM pg_db_role_setting)
"""
# Differs once a test has set something on its session, such as a report of each plan.
_SET = "SELECT string_agg(name || '=' || setting, ';') FROM pg_settings WHERE source = 'session'"


class KeptLoop(asyncio.SelectorEventLoop):
    """A loop whose connections survive the runner of a test, which ends all its tasks."""

    _asyncgens_shutdown_called: bool
    _executor_shutdown_called: bool
    _default_executor: object

    def close(self) -> None:
        """Be as new for the next runner."""
        self._asyncgens_shutdown_called = self._executor_shutdown_called = False
        self._default_executor = None

    def end(self) -> None:
        """Close for good."""
        super().close()


LOOP = KeptLoop()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], KeptLoop]]:
    """A hook for a `conftest.py` whose tests use `kept_url`: they run on one loop."""
    return {"kept": lambda: LOOP}


class Kept:
    """The shared database of a test process, and the idle sessions on it."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._kinds: WeakKeyDictionary[Any, tuple[object, ...]] = WeakKeyDictionary()
        self._set: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()
        self._idle: defaultdict[object, list[Any]] = defaultdict(list)
        self._make()

    def _make(self) -> None:
        self._name = self._databases.make()
        self.url = self._databases.url(self._name)
        self._session: psycopg.Connection[Any] = psycopg.connect(self.url, autocommit=True)
        self._session.execute("SET session_replication_role = replica")
        self._session.execute("SET lock_timeout = '2s'")
        self._session.execute(_EMPTY)  # as each later test finds it: with its numbers from 1
        self._made_of = self._session.execute(_MADE_OF).fetchall()

    def empty(self) -> None:
        """Empty the tables, or make another database if a test has changed or locked this one."""
        enqueue._known.clear()  # of lanes, which sessions rely on for minutes
        try:
            self._session.execute(_EMPTY)
            as_made = self._session.execute(_MADE_OF).fetchall() == self._made_of
        except psycopg.Error:
            as_made = False
        if not as_made:
            self.end()
            self._make()

    def end(self) -> None:
        """Drop the database."""
        self._session.close()
        LOOP.run_until_complete(self._close_all())
        self._databases.drop(self._name)

    async def _close_all(self) -> None:
        for connection in [each for some in self._idle.values() for each in some]:
            await connection.close(timeout=30.0)
        self._idle.clear()

    async def connect(
        self, url: str, options: StoreOptions = DEFAULTS, *, keeps_plans: bool = False
    ) -> Any:
        """Lend an idle session of this kind, or open one."""
        kind = (url, options.application, options.statement_timeout, options.read_only,
                options.pooler, keeps_plans)  # fmt: skip
        while asyncio.get_running_loop() is LOOP and self._idle[kind]:
            connection = self._idle[kind].pop()
            if not connection.is_closed():
                return connection
        connection = await plain.connect(url, options, keeps_plans=keeps_plans)
        self._kinds[connection] = kind
        if self._may_keep(connection):
            self._set[connection] = await connection.fetchval(_SET)
        return connection

    async def close(self, connection: Any) -> None:
        """Keep a session that a store closes, if it is as it was when it was opened."""
        if await self._is_as_opened(connection):
            self._idle[self._kinds[connection]].append(connection)
        else:
            await connection.close(timeout=30.0)

    def _may_keep(self, connection: Any) -> bool:
        url, *_ = self._kinds[connection]
        return url == self.url and asyncio.get_running_loop() is LOOP

    async def _is_as_opened(self, connection: Any) -> bool:
        if connection.is_closed() or connection not in self._set or not self._may_keep(connection):
            return False
        try:
            return bool(await connection.fetchval(_SET) == self._set[connection])
        except asyncpg.PostgresError:  # in a transaction that has failed
            return False
