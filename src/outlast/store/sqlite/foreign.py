"""Defines the verbs on a connection of a caller's own to SQLite, inside the caller's transaction:
they do not depend on its text factory or isolation level, and commit only statements that the
connection would commit one by one otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from outlast.base.clock import Clock
from outlast.errors import SchemaMismatch
from outlast.store import acts
from outlast.store.protocol import ForeignDriver
from outlast.store.schedules import Deleted, NewSchedule, Put
from outlast.store.sqlite.errors import translate
from outlast.store.sqlite.events import send_event
from outlast.store.sqlite.inspector import run_at_once
from outlast.store.sqlite.jobs import complete, enqueue
from outlast.store.sqlite.schedules import put
from outlast.store.sqlite.schema import store_id
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.steps import find_step, is_new
from outlast.store.values import Enqueued, NamedStep, NewEvent, NewJob, StepFound

_MIGRATE = statements("migrate")
_SESSION = statements("session")
T = TypeVar("T")


class OnSqlite:
    """The verbs on a connection to SQLite; in autocommit mode, each commits at once."""

    def __init__(self, driver: ForeignDriver, *, clock: Clock, file: Path | None) -> None:
        """``file``: the application's, if it is known."""
        self._driver = driver
        self._file = file
        self._clock = clock
        self.begin = driver.begin
        self.in_transaction = driver.in_transaction

    async def store_id(self, *, refresh: bool = False) -> str | None:
        """Read each time, since these connection objects cannot hold a note. In a transaction, take
        the write lock first: one whose first statement reads can no longer write once another
        connection has written."""
        lock = await self._driver.in_transaction()

        def look(cursor: Any, _: float) -> str | None:
            if lock:
                cursor.execute(_MIGRATE["lock"])
            found = store_id(cursor)
            if found is not None and self._file is not None and not _is_to(self._file, cursor):
                return f"a copy of {found}"  # with the same id, and without this store's workers
            return found

        try:
            return await self._run(look)
        except SchemaMismatch:
            return None

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """After an error some may be stored, until the caller rolls back."""
        return await self._run(_together(enqueue), jobs)

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> list[Put]:
        return await self._run(_together(put), schedules)

    async def delete_schedule(self, name: str) -> Deleted:
        return await self._run(_together(_delete_schedule), name)

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        return await self._run(complete, job_id, token, result)

    async def find_step(self, step: NamedStep) -> StepFound:
        return await self._run(find_step, step)

    async def keep_step(self, step: NamedStep) -> bool:
        return await self._run(is_new, step)

    async def send_event(self, event: NewEvent) -> bool:
        return await self._run(_together(send_event), event)

    async def _run(self, verb: Callable[..., T], *values: Any) -> T:
        now = self._clock.wall()

        def work(cursor: Any) -> T:
            with _clear_errors():
                return verb(cursor, now, *values)

        return await self._driver.run(work)


def _is_to(file: Path, cursor: Any) -> bool:
    there = bytes(cursor.execute(_MIGRATE["file"]).fetchone()[0])
    try:
        return os.path.samefile(there, file)
    except OSError:
        return False


def _delete_schedule(cursor: Any, now: float, name: str) -> Deleted:

    async def rows(topic: str, name: str, /, **values: Any) -> list[Any]:
        return list(cursor.execute(statements(topic)[name], values | {"now": now}).fetchall())

    return run_at_once(acts.delete_schedule(rows, name))


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raised = getattr(error, "orig", None) or error  # SQLAlchemy wraps what the driver raises
        other = translate(raised, Path("the database of this connection"))
        if other is raised:
            raise
        raise other from error


def _together(verb: Callable[..., T]) -> Callable[..., T]:
    """Commit a verb's writes together, if the connection would commit each of them."""

    def run(cursor: Any, now: float, *values: Any) -> T:
        if defers_commit(getattr(cursor, "connection", cursor)):
            return verb(cursor, now, *values)
        cursor.execute(_SESSION["begin"])
        try:
            done = verb(cursor, now, *values)
            cursor.execute(_SESSION["commit"])
        except BaseException:
            with suppress(Exception):  # SQLite may have done it
                cursor.execute(_SESSION["rollback"])
            raise
        return done

    return run


def defers_commit(connection: Any) -> bool:
    """Return whether a write waits for a commit: Python 3.12's ``autocommit`` decides, and if it is
    at its default, ``isolation_level``."""
    begins = connection.isolation_level is not None
    if getattr(connection, "autocommit", None) is True:
        begins = False
    return bool(begins or connection.in_transaction)
