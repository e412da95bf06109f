"""Defines the verbs on a connection of a caller's own to PostgreSQL, inside the caller's
transaction."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from outlast.errors import ConnectionMismatch
from outlast.store.acts import delete_schedule
from outlast.store.foreign import is_of
from outlast.store.postgres.acts import PostgresActing, send
from outlast.store.postgres.enqueue import enqueue, forget_lanes
from outlast.store.postgres.errors import foreign_errors
from outlast.store.postgres.schedules import put
from outlast.store.postgres.statements import array_text
from outlast.store.postgres.store import step_found
from outlast.store.protocol import ForeignDriver
from outlast.store.schedules import Deleted, NewSchedule, Put
from outlast.store.statements import statements
from outlast.store.values import Enqueued, NamedStep, NewEvent, NewJob, StepFound

_JOBS = statements("postgres", "jobs")
_STEPS = statements("postgres", "steps")
_MIGRATE = statements("postgres", "migrate")
_store_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
T = TypeVar("T")


class OnPostgres:
    """The verbs on a connection to PostgreSQL; without a transaction, each commits at once."""

    def __init__(self, driver: ForeignDriver, *, notify: bool) -> None:
        self._driver = driver
        self._notify = notify
        self.begin = driver.begin
        self.in_transaction = driver.in_transaction

    async def store_id(self, *, refresh: bool = False) -> str | None:
        session = await self._driver.session()
        known = _store_ids.get(session)
        if known is None or refresh:
            _refuse_bytes(session)
            with self._driver.errors:
                known = await _store_id(self._driver)
            forget_lanes(session)
            if known is not None:
                _store_ids[session] = known
        return known

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if any(job.after for job in jobs) and not await self.in_transaction():
            raise ConnectionMismatch(
                "jobs that wait for others are stored by several statements: open a transaction"
                f" first, with {self.begin}"
            )
        return await self._told(enqueue(self._driver, jobs, notify=self._notify))

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> list[Put]:
        return await self._told(put(self._driver, schedules))

    async def delete_schedule(self, name: str) -> Deleted:
        rows = PostgresActing(self._driver, notify=False).rows
        return await self._told(delete_schedule(rows, name))

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        return await self._told(_complete(self._driver, job_id, token, result))

    async def find_step(self, step: NamedStep) -> StepFound:
        values = (array_text([step.job_id]), array_text([step.token]), [step.name])
        return step_found((await self._told(self._driver.fetch(_STEPS["find"], *values)))[0])

    async def keep_step(self, step: NamedStep) -> bool:
        values = (step.job_id, step.token, step.name, step.value)
        return bool(await self._told(self._driver.fetch(_STEPS["keep_in"], *values)))

    async def send_event(self, event: NewEvent) -> bool:
        return await self._told(send(self._driver, event, notify=self._notify))

    async def _told(self, answer: Awaitable[T]) -> T:
        with self._driver.errors, foreign_errors():
            return await answer


async def _complete(connection: Any, job_id: int, token: int, result: str | None) -> bool:
    if await connection.fetch(_JOBS["complete"], job_id, token, result):
        return True
    if not await connection.fetch(_JOBS["lock_unkept"], job_id, token):
        return False
    await connection.fetch(_JOBS["complete_away"], job_id, token)
    return True


async def _store_id(connection: Any) -> str | None:
    """Breaks no transaction. ConnectionMismatch: the driver returns other types than by default."""
    tables = (await connection.fetch(_MIGRATE["tables"], []))[0]
    if (type(tables["schema_table"]), type(tables["one"])) != (bool, int):
        raise ConnectionMismatch(
            "the connection has a codec of your program's for bool or int8 (set_type_codec), and"
            " would misread what is stored: use one without"
        )
    if not tables["schema_table"]:
        return None
    rows = await connection.fetch(_MIGRATE["store_id"])
    return str(rows[0]["store_id"]) if rows else None


def _refuse_bytes(session: Any) -> None:
    """Raise ConnectionMismatch if psycopg returns texts as bytes, because it cannot know their
    encoding. The encoding is that of the database, unless the connection names one."""
    if not is_of(session, "psycopg", "Connection") and not is_of(
        session, "psycopg", "AsyncConnection"
    ):
        return
    if session.info.parameter_status("client_encoding") == "SQL_ASCII":
        raise ConnectionMismatch(
            "the connection's client_encoding is SQL_ASCII, with which psycopg returns texts as"
            " bytes: connect with client_encoding='UTF8', or say SET client_encoding TO 'UTF8'"
        )
