"""Carries out acts of people on SQLite, each with its record (sql/actions.sql)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from sqlite3 import Cursor
from typing import Concatenate, ParamSpec, TypeVar

from outlast.model.pause import Pause, PauseKind
from outlast.store.actions import BulkStep, Counts, Note, Record, Tokens
from outlast.store.limits import Hold, SetLimit
from outlast.store.sqlite import events, jobs, limits, pauses, workers
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.records import move, write_note, write_record
from outlast.store.sqlite.statements import statements
from outlast.store.values import Cancelled, Enqueued, NewEvent, NewJob, NewPause, Requeued

P = ParamSpec("P")
T = TypeVar("T")
_SQL = statements("actions")


class SqliteActionVerbs:
    """The verbs of ``SqliteStore`` for acts of people."""

    _connection: SqliteConnection

    async def cancel(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> dict[int, Cancelled]:
        return await self._act(
            record,
            lambda answers: _count(answers.values()),
            lambda cursor, now: jobs.cancel(cursor, now, _current(cursor, job_ids, tokens)),
        )

    async def requeue(
        self,
        job_ids: Sequence[int],
        *,
        from_scratch: bool = False,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Requeued]:
        return await self._act(
            record,
            lambda answers: _count(answers.values()),
            lambda cursor, now: jobs.requeue(
                cursor, now, _current(cursor, job_ids, tokens), from_scratch=from_scratch
            ),
        )

    async def skip(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> set[int]:
        return await self._act(
            record,
            lambda ids: {"skipped": len(ids)} if ids else {},
            lambda cursor, now: jobs.skip(cursor, now, _current(cursor, job_ids, tokens)),
        )

    async def discard(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> int:
        return await self._act(
            record,
            lambda number: {"discarded": number} if number else {},
            lambda cursor, now: jobs.discard(cursor, now, _current(cursor, job_ids, tokens)),
        )

    async def request_drain(
        self, worker_ids: Sequence[int], *, record: Record | None = None
    ) -> set[int]:
        return await self._act(
            record,
            lambda asked: {"asked": len(asked)} if asked else {},
            workers.request_drain,
            worker_ids,
        )

    async def ask_stack(
        self, job_id: int, token: int, *, seen: str, then: str, record: Record | None = None
    ) -> bool:
        return await self._act(record, _one("asked"), jobs.ask_stack, job_id, token, seen, then)

    async def pause(self, new: NewPause, *, record: Record | None = None) -> Pause:
        return await self._act(record, _one("paused"), pauses.pause, new)

    async def resume(
        self, kind: PauseKind, name: str, *, record: Record | None = None
    ) -> Pause | None:
        return await self._act(record, _one("resumed"), pauses.resume, kind, name)

    async def set_limit(self, new: SetLimit, *, record: Record | None = None) -> bool:
        return await self._act(record, _one("changed"), limits.set_limit, new)

    async def hold_limit(self, hold: Hold, *, record: Record | None = None) -> bool:
        return await self._act(record, _one("changed"), limits.hold_limit, hold)

    async def send_event(self, event: NewEvent, *, record: Record | None = None) -> bool:
        return await self._act(record, _one("sent"), events.send_event, event)

    async def trigger(self, job: NewJob, *, record: Record | None = None) -> Enqueued:
        (stored,) = await self._act(
            record, lambda made: {"enqueued": 1} if made[0].created else {}, jobs.enqueue, [job]
        )
        return stored

    async def note(self, note: Note) -> int:
        return await self._connection.write(lambda cursor, now: write_note(cursor, now, note, {}))

    async def take_step(self, step: BulkStep, counts: Counts) -> None:
        await self._connection.write(lambda cursor, now: move(cursor, now, step, counts))

    async def stop_action(self, action_id: int) -> bool:
        return await self._connection.write(
            lambda cursor, now: (
                cursor.execute(_SQL["stop"], {"now": now, "id": action_id}).rowcount == 1
            )
        )

    async def _act(
        self,
        record: Record | None,
        count: Callable[[T], Counts],
        deed: Callable[Concatenate[Cursor, float, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """Carry out an act with its record; both are done or neither. Holds the write lock from the
        beginning."""

        def work(cursor: Cursor, now: float) -> T:
            done = deed(cursor, now, *args, **named)
            write_record(cursor, now, record, count(done))
            return done

        return await self._connection.write(work)


def _one(word: str) -> Callable[[object], Counts]:
    """Return the count of an act that changes one object, if anything was changed."""
    return lambda done: {word: 1} if done else {}


def _current(cursor: Cursor, job_ids: Sequence[int], tokens: Tokens | None) -> list[int]:
    """Return the jobs whose last token is the one that the caller has seen."""
    return [one for one in job_ids if not tokens or _is_current(cursor, one, tokens.get(one))]


def _is_current(cursor: Cursor, job_id: int, token: int | None) -> bool:
    found = cursor.execute(_SQL["token"], (job_id,)).fetchone()
    return token is None or found is None or bool(found[0] == token)


def _count(answers: Iterable[Cancelled | Requeued]) -> Counts:
    return dict(Counter(one.value for one in answers))
