"""Defines the verbs of a ``PostgresStore`` about workers: rows, leases, jobs of lost workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.model.lease import DeathCause, Presence
from outlast.model.lifecycle import Transition, as_applied
from outlast.store.columns import orphan_of, policy_of, seconds_of, struct_of
from outlast.store.lockfile import directory_for, place_in
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.exchange import PostgresExchange
from outlast.store.postgres.privileges import check_may_serve
from outlast.store.postgres.statements import (
    Pair,
    array_text,
    ends_text,
    pair_of,
    storable,
    to_json,
)
from outlast.store.protocol import ORPHANS_MAX, OVERDUE_MAX
from outlast.store.rows import WorkerStatus
from outlast.store.stacks import read_requests
from outlast.store.statements import statements
from outlast.store.values import (
    Beat,
    Failing,
    LockIdentity,
    Neighbour,
    NewWorker,
    Orphan,
    OverdueAttempt,
    Peek,
    Registered,
    Snapshot,
    WorkerRef,
    WorkerSeen,
    line_of,
)

_PAUSES = statements("postgres", "pauses")
_RECLAIM = statements("postgres", "reclaim")
_WORKERS = statements("postgres", "workers")

_cancels_of = msgspec.json.Decoder(list[Pair]).decode
_watches_of = msgspec.json.Decoder(tuple[int, ...]).decode
_neighbours_of = msgspec.json.Decoder(list[tuple[int, str, int | None, int | None]]).decode


class WorkerVerbs(PostgresExchange):
    """The verbs of ``PostgresStore`` about workers."""

    # -- a worker's own

    async def register(self, new: NewWorker) -> Registered:
        async with self._connections.use(own=True) as connection:
            await check_may_serve(connection)
        await self.raise_tokens(new.token_seen)
        rows = await self._fetch(
            _WORKERS["register"],
            new.name,
            new.host,
            new.pid,
            new.boot_id,
            new.heartbeat,
            new.lease,
            to_json(new.queues),
            self._names(new.tasks),
            to_json(new.tags),
            self._names(new.lacks),
            new.instance,
            new.release,
            new.lock_path,
            new.lock_device,
            new.lock_inode,
            new.instance if new.succeeds else None,
            new.registration,
            own=True,
        )
        worker_id, epoch, replaced, incarnation = rows[0]
        self._lanes.note_incarnation(incarnation)
        return Registered(worker_id, epoch, new.registration, replaced)

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        await self.raise_tokens(token_seen)
        rows = await self._fetch(_WORKERS["reconnect"], me.worker_id, me.registration, own=True)
        if not rows:
            return None
        self._lanes.note_incarnation(rows[0]["incarnation"])
        return WorkerRef(me.worker_id, rows[0]["epoch"], me.registration)

    async def set_status(
        self, me: WorkerRef, status: WorkerStatus, *, asleep: float | None = None
    ) -> bool:
        whose = (me.worker_id, status.value, me.registration)
        rows = await self._fetch(_WORKERS["set_status"], *whose, asleep, own=True)
        return bool(rows)

    async def announce(
        self, me: WorkerRef, tasks: Sequence[str], lacks: Mapping[str, Sequence[str]]
    ) -> None:
        known = self._names(tasks), self._names(lacks)
        await self._fetch(_WORKERS["announce"], me.worker_id, *known, me.registration)

    def _names(self, names: Sequence[str] | Mapping[str, Sequence[str]]) -> str:
        """Return names, or names with the tags that they lack, as JSON that can be stored."""
        codec = self._connections.codec
        if not isinstance(names, Mapping):
            return to_json([storable(name, codec) for name in names])
        return to_json(
            {
                storable(name, codec): [storable(one, codec) for one in lacking]
                for name, lacking in names.items()
            }
        )

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        await self._fetch(_WORKERS["presence_off"], me.worker_id, reason, me.registration)

    async def tell_wakeup(self, me: WorkerRef, words: str) -> None:
        await self._fetch(_WORKERS["tell_wakeup"], me.worker_id, words, me.registration)

    async def count_peers(self, me: WorkerRef) -> tuple[int, int]:
        """Over the connection of the exchange of an idle worker, which keeps plans."""
        which = (me.worker_id, me.registration)
        rows = await self._fetch(_WORKERS["count_peers"], *which, own=True, keeps_plans=True)
        return rows[0]["peers"], rows[0]["before"]

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        told = (None, None) if failing is None else (line_of(failing), failing.seconds)
        await self._fetch(_WORKERS["tell_failing"], me.worker_id, *told, me.registration)

    async def acknowledge_pauses(self, me: WorkerRef, version: str) -> None:
        await self._fetch(_PAUSES["acknowledge_pauses"], me.worker_id, version, me.registration)

    async def heartbeat(self, me: WorkerRef) -> Beat:
        (row,) = await self._fetch(_WORKERS["heartbeat"], me.worker_id, me.registration)
        if not row["renewed"]:
            return Beat(renewed=False)
        cancels = _cancels_of(row["cancels"] or "[]")
        peek = None if row["drawn"] is None else _peek_of(row)
        return Beat(True, cancels, row["drain"], read_requests(row["stacks"]), peek)

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[Pair]:
        which = (me.worker_id, me.epoch, array_text(held))
        rows = await self._connections.run_notifying(
            lambda it, notify: it.fetch(_RECLAIM["reconcile"], *which, notify, me.registration),
            keeps_plans=True,
            own=True,
        )
        return [(row["job_id"], row["token"]) for row in rows]

    async def raise_tokens(self, above: int) -> None:
        await self._fetch(_WORKERS["raise"], above, own=True)

    # -- about other workers

    async def observe(self, slack: float = 0.0) -> Snapshot:
        rows = await self._fetch(_WORKERS["observe"], slack)
        orphans, overdue, now, next_tick, here, *_ = rows[0]
        locks = directory_for(None)
        return Snapshot(
            workers=[_seen(row, locks) for row in rows if row["worker_id"] is not None],
            orphans=orphans,
            overdue=overdue,
            now=now,
            incarnation=here,
            next_tick=next_tick,
            pauses=rows[0]["pauses"],
        )

    async def peek(self, me: WorkerRef) -> Peek:
        return _peek_of((await self._fetch(_WORKERS["peek"], me.worker_id))[0])

    async def keep_watch(self, place: int, mark: int) -> None:
        await self._fetch(_WORKERS["keep_watch"], place + 1, mark)

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        which = (lock.boot_id, lock.path, lock.device, lock.inode)
        rows = await self._connections.run_notifying(
            lambda it, notify: it.fetch(_WORKERS["tell_gone"], *which, begun, notify)
        )
        return len(rows)

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        """Also terminates a session that only waits for a client that does not read."""
        (row,) = await self._fetch(
            _WORKERS["reap"], gone.worker_id, gone.beat, cause.value, gone.begun
        )
        if row["held"]:
            await self._free(gone)
        return bool(row["reaped"])

    async def _free(self, gone: WorkerSeen) -> None:
        ended = (await self._fetch(_WORKERS["terminate_stuck"], gone.worker_id, gone.beat))[0][0]
        if ended is not None:
            what = "was ended, since its client does not read" if ended else "holds its row"
            raise StoreUnavailable(f"another session of worker {gone.name} {what}")

    async def reclaim(
        self,
        decide: Callable[[Orphan], Transition],
        limit: int = ORPHANS_MAX,
        only: Collection[Pair] | None = None,
    ) -> list[Transition]:
        async def close(connection: Any, notify: bool) -> list[Transition]:  # noqa: FBT001
            if only is None:
                rows = await connection.fetch(_RECLAIM["orphans"], limit)
            else:
                rows = await connection.fetch(_RECLAIM["facts"], *_columns(only), limit)
            if not rows:
                return []
            decided = [decide(orphan_of(row)) for row in rows]
            closed = await connection.fetch(_RECLAIM["close"], ends_text(decided), notify)
            states = {(row["job_id"], row["token"]): State(row["state"]) for row in closed}
            return [
                as_applied(one, states[pair]) for one in decided if (pair := pair_of(one)) in states
            ]

        return await self._connections.run_notifying(close, kind=Transaction.COMMITTED)

    async def overdue(self, slack: float, limit: int = OVERDUE_MAX) -> list[OverdueAttempt]:
        rows = await self._fetch(_RECLAIM["overdue"], slack, limit)
        return [
            OverdueAttempt(job_id, token, worker_id, seconds, policy_of(text))
            for job_id, token, worker_id, seconds, text in rows
        ]

    async def superseded(self, attempts: Collection[Pair]) -> list[int]:
        rows = await self._fetch(_RECLAIM["superseded"], *_columns(attempts), own=True)
        return [row["token"] for row in rows]


def _peek_of(row: Any) -> Peek:
    named = _neighbours_of(row["neighbours"] or "[]")
    return Peek(
        drawn=row["drawn"],
        next_due=row["next_due"],
        next_tick=row["next_tick"],
        pauses=row["pauses"],
        watches=_watches_of(row["watches"]),
        neighbours=tuple(
            Neighbour(worker_id, path, device, inode)
            for worker_id, named_path, device, inode in named
            if (path := place_in(directory_for(None), named_path)) is not None
        ),
    )


def _seen(row: Any, locks: Path) -> WorkerSeen:
    return struct_of(
        WorkerSeen,
        row,
        heartbeat=seconds_of(row["heartbeat"]),
        lease=seconds_of(row["lease"]),
        lock_path=place_in(locks, row["lock_path"]),
        presence=Presence(row["presence"]),
    )


def _columns(pairs: Collection[Pair]) -> tuple[str, str]:
    return array_text(job_id for job_id, _ in pairs), array_text(token for _, token in pairs)
