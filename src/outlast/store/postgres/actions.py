"""Carries out acts of people on PostgreSQL, each with its record in the same transaction.

Without a record or tokens each verb is one statement, as for programs that act for themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from outlast.model.pause import Pause, PauseKind
from outlast.store.actions import (
    ACTIONS_KEPT,
    CHANGES,
    BulkStep,
    Counts,
    More,
    Note,
    Record,
    Tokens,
    columns_of,
    moved,
)
from outlast.store.columns import pause_of
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.enqueue import enqueue
from outlast.store.postgres.pool import Verbs
from outlast.store.statements import statements
from outlast.store.values import Cancelled, Enqueued, NewJob, NewPause, Requeued

_ACTIONS = statements("postgres", "actions")
_JOBS = statements("postgres", "jobs")
_PAUSES = statements("postgres", "pauses")
_WORKERS = statements("postgres", "workers")

T = TypeVar("T")
Rows = list[Any]
_HELD = "held"  # the row of a job is locked by another session


class PostgresActionVerbs(Verbs):
    """The verbs of ``PostgresStore`` for acts of people."""

    async def cancel(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> dict[int, Cancelled]:
        """Wait for jobs whose rows are locked, in a separate transaction that locks nothing else;
        a bulk action counts them with the step that has left them."""
        first = await self._on_jobs(
            "cancel", job_ids, tokens, record, lambda notify: (notify, False)
        )
        held = [row["job_id"] for row in first if row["answer"] == _HELD]
        later = More(action_id=record.action_id) if isinstance(record, BulkStep) else record
        last: Rows = []
        if held:
            last = await self._on_jobs("cancel", held, tokens, later, lambda notify: (notify, True))
        free = [row for row in first if row["answer"] != _HELD]
        return {row["job_id"]: Cancelled(row["answer"]) for row in (*free, *last)}

    async def requeue(
        self,
        job_ids: Sequence[int],
        *,
        from_scratch: bool = False,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Requeued]:
        rows = await self._on_jobs(
            "requeue", job_ids, tokens, record, lambda notify: (from_scratch, notify)
        )
        return {row["job_id"]: Requeued(row["answer"]) for row in rows}

    async def skip(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> set[int]:
        def count(rows: Rows) -> Counts:
            return {"skipped": len(rows)} if rows else {}

        rows = await self._on_jobs("skip", job_ids, tokens, record, lambda _: (), count)
        return {row["job_id"] for row in rows}

    async def discard(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> int:
        def count(rows: Rows) -> Counts:
            return {"discarded": rows[0][0]} if rows[0][0] else {}

        rows = await self._on_jobs("discard", job_ids, tokens, record, lambda _: (), count)
        return int(rows[0][0])

    async def request_drain(
        self, worker_ids: Sequence[int], *, record: Record | None = None
    ) -> set[int]:
        rows = await self._call(record, "asked", _WORKERS["request_drain"], list(worker_ids))
        return {row[0] for row in rows}

    async def ask_stack(
        self, job_id: int, token: int, *, seen: str, then: str, record: Record | None = None
    ) -> bool:
        values = (job_id, token, seen, then)
        return bool(await self._call(record, "asked", _JOBS["ask_stack"], *values))

    async def pause(self, new: NewPause, *, record: Record | None = None) -> Pause:
        """Wakes workers, so that they read it."""
        values = (new.kind.value, new.name, new.paused_by, new.reason, new.stop)
        return pause_of((await self._call(record, "paused", _PAUSES["pause"], *values))[0])

    async def resume(
        self, kind: PauseKind, name: str, *, record: Record | None = None
    ) -> Pause | None:
        rows = await self._call(record, "resumed", _PAUSES["resume"], kind.value, name)
        return pause_of(rows[0]) if rows else None

    async def trigger(self, job: NewJob, *, record: Record | None = None) -> Enqueued:
        (stored,) = await self._connections.run_notifying(
            lambda connection, notify: _do(
                connection,
                record,
                lambda it: enqueue(it, [job], notify=notify),
                lambda made: {"enqueued": 1} if made[0].created else {},
            ),
            kind=Transaction.COMMITTED,
        )
        return stored

    async def note(self, note: Note) -> int:
        return await self._connections.run(lambda connection: write_note(connection, note, {}))

    async def take_step(self, step: BulkStep, counts: Counts) -> None:
        await self._connections.run(
            lambda connection: move(connection, step, counts), kind=Transaction.COMMITTED
        )

    async def stop_action(self, action_id: int) -> bool:
        return bool(await self._fetch(_ACTIONS["stop"], action_id))

    async def _call(self, record: Record | None, word: str, statement: str, *values: Any) -> Rows:
        """Return the rows of a statement, whose last argument is whether it notifies; they are what
        was changed, under that word in the record."""
        return await self._act(
            record,
            lambda it, notify: it.fetch(statement, *values, notify),
            lambda rows: {word: len(rows)} if rows else {},
        )

    async def _on_jobs(
        self,
        verb: str,
        job_ids: Sequence[int],
        tokens: Tokens | None,
        record: Record | None,
        more: Callable[[bool], Sequence[Any]],
        count: Callable[[Rows], Counts] | None = None,
    ) -> Rows:
        """Call a verb on the jobs that stand where the caller has seen them. ``more``: returns its
        further arguments, given whether it notifies."""

        async def deed(connection: Any, notify: bool) -> Rows:  # noqa: FBT001
            ids = list(job_ids)
            if tokens:
                seen = [tokens.get(one) for one in ids]
                ids = [
                    row[0] for row in await connection.fetch(_ACTIONS["lock_current"], ids, seen)
                ]
            rows: Rows = await connection.fetch(_JOBS[verb], ids, *more(notify))
            return rows

        return await self._act(record, deed, count or _count, locks=bool(tokens))

    async def _act(
        self,
        record: Record | None,
        deed: Callable[[Any, bool], Awaitable[Rows]],
        count: Callable[[Rows], Counts],
        *,
        locks: bool = False,
    ) -> Rows:
        kind = Transaction.COMMITTED if locks or record is not None else None
        return await self._connections.run_notifying(
            lambda connection, notify: _do(connection, record, lambda it: deed(it, notify), count),
            kind=kind,
        )


async def _do(
    connection: Any,
    record: Record | None,
    deed: Callable[[Any], Awaitable[T]],
    count: Callable[[T], Counts],
) -> T:
    """Carry out an act with its record; both are done or neither. The row of a bulk action is
    locked, and moved on, before those of jobs; a step that cannot be taken does nothing."""
    if isinstance(record, (BulkStep, More)):
        await move(connection, record, {})
        record = More(action_id=record.action_id)
    done = await deed(connection)
    await write_record(connection, record, count(done))
    return done


def _count(rows: Iterable[Any]) -> Counts:
    return dict(Counter(row["answer"] for row in rows if row["answer"] != _HELD))


async def write_record(connection: Any, record: Record | None, counts: Counts) -> None:
    """Write a record of the act, if it changed anything; a step is taken in any case. Raises
    Overtaken."""
    if isinstance(record, Note):
        if counts.keys() & CHANGES:
            await write_note(connection, record, counts)
    elif record is not None:
        await move(connection, record, counts)


async def write_note(connection: Any, note: Note, counts: Counts) -> int:
    """Add a row; keep the newest ACTIONS_KEPT of its actor."""
    values = columns_of(note, counts).values()
    rows = await connection.fetch(_ACTIONS["note"], *values, ACTIONS_KEPT)
    return int(rows[0][0])


async def move(connection: Any, step: BulkStep | More, counts: Counts) -> None:
    """Advance a bulk action. Raises Overtaken."""
    rows = await connection.fetch(_ACTIONS["lock"], step.action_id)
    text, state, before_id = moved(step, tuple(rows[0]) if rows else None, counts)
    await connection.fetch(_ACTIONS["move"], step.action_id, text, state, before_id)
