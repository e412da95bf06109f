"""Connections as users have them: one class for each kind, all with the same few verbs.

The verbs of a plain library run in one thread of its own, those of an asynchronous one on the
loop; ``connection`` is what is handed to Outlast.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiosqlite
import asyncpg
import django
import django.conf
import django.db
import psycopg
import sqlalchemy
import sqlalchemy.orm
from django.db import transaction
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from outlast.client.app import App
from outlast.client.attempt import Attempt
from outlast.client.job import Job
from outlast.client.task import BoundTask, Call

AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}
_aliases = itertools.count(1)


class Caller:
    """One connection, whose transaction a test controls."""

    connection: Any

    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        self.url = url
        self.autocommit = autocommit

    @property
    def path(self) -> str:
        return self.url.removeprefix("sqlite:///")

    async def call(self, verb: Callable[..., Any], *args: Any) -> Any:
        """Call a verb of the library, or a function that uses it, where that may be done."""
        raise NotImplementedError

    async def enqueue(self, task: BoundTask[Any, Any], *args: Any) -> Job[Any]:
        raise NotImplementedError

    async def enqueue_many(self, app: App, calls: Sequence[Call[Any]]) -> None:
        for call in calls:
            call.connection = self.connection
        await self.run_many(app, calls)

    async def run_many(self, app: App, calls: Sequence[Call[Any]]) -> None:
        raise NotImplementedError

    async def complete(self, attempt: Attempt, result: Any) -> None:
        raise NotImplementedError

    def open(self) -> Any: ...
    def begin(self) -> Any: ...
    def execute(self, statement: str) -> Any:
        return self.connection.execute(statement)

    def commit(self) -> Any:
        return self.connection.commit()

    def rollback(self) -> Any:
        return self.connection.rollback()

    def shut(self) -> Any:
        """Close the connection alone."""
        return self.connection.close()

    def close(self) -> Any:
        """Leave nothing open; for the end of the test."""
        return self.shut()


class Plain(Caller):
    """A library without an event loop, in a thread of its own."""

    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        super().__init__(url, autocommit=autocommit)
        self.thread = ThreadPoolExecutor(1)

    async def call(self, verb, *args):
        return await asyncio.get_running_loop().run_in_executor(self.thread, verb, *args)

    async def enqueue(self, task, *args):
        return await self.call(task.using(connection=self.connection).enqueue_sync, *args)

    async def run_many(self, app, calls):
        await self.call(app.enqueue_many_sync, calls)

    async def complete(self, attempt, result):
        await self.call(attempt.complete_in_sync, self.connection, result)


class Awaited(Caller):
    """A library on the event loop."""

    async def call(self, verb, *args):
        done = verb(*args)
        return await done if asyncio.iscoroutine(done) else done

    async def enqueue(self, task, *args):
        return await task.using(connection=self.connection).enqueue(*args)

    async def run_many(self, app, calls):
        await app.enqueue_many(calls)

    async def complete(self, attempt, result):
        await attempt.complete_in(self.connection, result)


class Sqlite3(Plain):
    def open(self):
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.row_factory = sqlite3.Row

    def begin(self):
        self.connection.execute("BEGIN")


class Aiosqlite(Awaited):
    async def open(self):
        self.connection = await aiosqlite.connect(self.path, isolation_level=None)
        self.connection.row_factory = aiosqlite.Row

    async def execute(self, statement):
        await self.connection.execute(statement)

    async def begin(self):
        await self.connection.execute("BEGIN")


class Asyncpg(Awaited):
    async def open(self):
        self.connection = await asyncpg.connect(self.url)

    async def begin(self):
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self):
        await self._transaction.commit()

    async def rollback(self):
        await self._transaction.rollback()


class Psycopg(Plain):
    def open(self):
        self.connection = psycopg.connect(
            self.url, autocommit=self.autocommit, row_factory=psycopg.rows.namedtuple_row
        )


class AsyncPsycopg(Awaited):
    async def open(self):
        self.connection = await psycopg.AsyncConnection.connect(
            self.url, autocommit=self.autocommit, cursor_factory=psycopg.AsyncRawCursor
        )

    async def execute(self, statement):
        await self.connection.execute(statement)


class Sqlalchemy(Plain):
    """A Connection."""

    driver = "psycopg"

    def engine(self) -> Any:
        options: Any = {"execution_options": AUTOCOMMIT} if self.autocommit else {}
        self._engine = sqlalchemy.create_engine(of_library(self.url, self.driver), **options)
        return self._engine

    def open(self):
        self.connection = self.engine().connect()

    def execute(self, statement):
        self.connection.execute(sqlalchemy.text(statement))

    def close(self):
        self.connection.close()
        self._engine.dispose()


class SqlalchemySession(Sqlalchemy):
    def open(self):
        self.connection = sqlalchemy.orm.Session(self.engine())


class SqlalchemyScoped(Sqlalchemy):
    def open(self):
        maker = sqlalchemy.orm.sessionmaker(self.engine())
        self.connection = sqlalchemy.orm.scoped_session(maker)


class AsyncSqlalchemy(Awaited):
    """An AsyncConnection."""

    driver = "asyncpg"

    def engine(self) -> Any:
        options: Any = {"execution_options": AUTOCOMMIT} if self.autocommit else {}
        url = of_library(self.url, self.driver)
        self._engine = sqlalchemy_asyncio.create_async_engine(url, **options)
        return self._engine

    async def open(self):
        self.connection = await self.engine().connect()

    async def execute(self, statement):
        await self.connection.execute(sqlalchemy.text(statement))

    async def close(self):
        await self.connection.close()
        await self._engine.dispose()


class AsyncSqlalchemyPsycopg(AsyncSqlalchemy):
    driver = "psycopg"


class AsyncSqlalchemySession(AsyncSqlalchemy):
    async def open(self):
        self.connection = sqlalchemy_asyncio.AsyncSession(self.engine())


class Django(Plain):
    def open(self):
        if not django.conf.settings.configured:
            django.conf.settings.configure(DATABASES={})
            django.setup()
        self._alias = f"test{next(_aliases)}"
        handler = django.db.connections
        added = handler.configure_settings({"default": {}, self._alias: self._settings()})
        handler.settings[self._alias] = added[self._alias]
        self.connection = handler[self._alias]

    def _settings(self) -> dict[str, Any]:
        if self.url.startswith("sqlite"):
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.path}
        known = psycopg.conninfo.conninfo_to_dict(self.url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": known["dbname"],
            "USER": known["user"],
            "HOST": known["host"],
            "PORT": known["port"],
        }

    def begin(self):
        self._atomic = transaction.atomic(using=self._alias)
        self._atomic.__enter__()

    def execute(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def commit(self):
        self._atomic.__exit__(None, None, None)

    def rollback(self):
        self._atomic.__exit__(ValueError, ValueError(), None)

    def close(self):
        self.connection.close()
        del django.db.connections.settings[self._alias]


def of_library(url: str, driver: str) -> str:
    """Return the URL as SQLAlchemy wants it."""
    if url.startswith("postgresql://"):
        return url.replace("postgresql://", f"postgresql+{driver}://")
    return url.replace("sqlite://", "sqlite+aiosqlite://") if driver == "asyncpg" else url


ON_SQLITE: list[type[Caller]] = [
    Sqlite3,
    Aiosqlite,
    Sqlalchemy,
    SqlalchemySession,
    AsyncSqlalchemy,
    AsyncSqlalchemySession,
    Django,
]
ON_POSTGRES: list[type[Caller]] = [
    Asyncpg,
    Psycopg,
    AsyncPsycopg,
    Sqlalchemy,
    SqlalchemySession,
    AsyncSqlalchemy,
    AsyncSqlalchemyPsycopg,
    AsyncSqlalchemySession,
    Django,
]
KINDS = [("sqlite_url", kind) for kind in ON_SQLITE] + [("pg_url", kind) for kind in ON_POSTGRES]
NAMES = [f"{kind.__name__}-{url.removesuffix('_url')}" for url, kind in KINDS]


@contextlib.asynccontextmanager
async def opened(kind: type[Caller], url: str, *, autocommit: bool = False) -> Any:
    """Open a connection of this kind; roll back and close it at the end."""
    caller = kind(url, autocommit=autocommit)
    await caller.call(caller.open)
    try:
        yield caller
    finally:
        await caller.call(caller.close)
        if isinstance(caller, Plain):
            caller.thread.shutdown()
