"""Stores jobs in a SQLite file: no server, any number of processes on one machine.

Each verb is a plain function of a cursor, in the modules beside this one; here the functions become
coroutines on the store's own thread. A worker's heartbeat has a separate store, so that no exchange
is ever in its way; instances share nothing but the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from sqlite3 import Cursor
from typing import Concatenate, ParamSpec, TypeVar

from outlast.base.clock import SYSTEM, Clock
from outlast.errors import ConfigError
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store.inspector import Inspector
from outlast.store.limits import NewLimit
from outlast.store.lockfile import LockFile, directory_for, refuses
from outlast.store.logs import JobLog
from outlast.store.migrations import check_usable, load
from outlast.store.minutes import Counted
from outlast.store.paths import is_there
from outlast.store.peeks import Peek
from outlast.store.protocol import EXPIRE_MAX, ORPHANS_MAX, OVERDUE_MAX, PRUNE_MAX
from outlast.store.rows import WorkerStatus
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import library, minutes, pauses, pruning, schema, workers
from outlast.store.sqlite import limits as sqlite_limits
from outlast.store.sqlite import url as sqlite_url
from outlast.store.sqlite.actions import SqliteActionVerbs
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.inspector import SqliteInspector
from outlast.store.sqlite.jobs import complete_on, enqueue_on, store_id, store_id_on
from outlast.store.sqlite.schedules import SqliteScheduleVerbs, put_on
from outlast.store.stacks import Stack
from outlast.store.turns import Turns
from outlast.store.values import (
    Answer,
    Beat,
    ClaimRequest,
    Enqueued,
    Exchanged,
    Failing,
    LockIdentity,
    Migration,
    NewJob,
    NewWorker,
    Orphan,
    OverdueAttempt,
    Purpose,
    Registered,
    Report,
    Save,
    Snapshot,
    WorkerRef,
    WorkerSeen,
)

__all__ = ["SqliteStore", "complete_on", "enqueue_on", "put_on", "store_id_on"]

P = ParamSpec("P")
T = TypeVar("T")


class SqliteStore(SqliteActionVerbs, SqliteScheduleVerbs):
    """The ``Store`` protocol on a SQLite file.

    Args:
        url: ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.
        clock: where "now" comes from.
        busy_timeout: seconds that a call waits for the write lock of another process.
        read_only: never create, never write.
        lock: the lock file of the worker whose heartbeat runs here; it carries the beat.
        durable: whether a commit is on the disk before it is answered; False is for tests.

    Attributes:
        path: the absolute path of the file.
        created_file: whether ``open`` made it.
        lock: as given.

    Raises ConfigError for a wrong URL, a network file system or a too old library.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock = SYSTEM,
        busy_timeout: float = 30.0,
        read_only: bool = False,
        lock: LockFile | None = None,
        durable: bool = True,
    ) -> None:
        location = sqlite_url.parse(url)
        self.url = url
        self._clock = clock
        self.path = location.path
        self.created_file = False
        self.lock = lock
        library.check()  # `outlast doctor` reports its known faults
        self._patience = busy_timeout
        self._read_only = read_only
        self._turns = Turns()
        self._connection = SqliteConnection(
            self.path,
            clock=clock,
            patience=busy_timeout,
            read_only=read_only,
            durable=durable,
        )
        self.inspector: Inspector = SqliteInspector(self._connection, clock)
        if not location.unsafe_filesystem:
            self._refuse_file_system()

    # ------------------------------------------------------------------------- the file

    async def open(self) -> None:
        await self._connection.run(self._open_now)

    async def close(self) -> None:
        await self._connection.close()

    async def drop_connections(self) -> None:
        await self._connection.run(self._connection.disconnect)

    async def store_id(self) -> str:
        found = await self._connection.run(lambda: store_id(self._connection.connect().cursor()))
        if found is None:
            check_usable(load(schema.DIALECT), [])
        return str(found)

    async def migrate(self) -> list[Migration]:
        return await self._connection.run(self._migrate_now)

    async def migrations(self) -> list[Migration]:
        if not is_there(self.path):
            return schema.known([])
        look = SqliteConnection(
            self.path, clock=self._clock, patience=self._patience, read_only=True
        )
        try:
            return schema.known(await look.read(schema.applied))
        finally:
            await look.close()

    async def raise_tokens(self, above: int) -> None:
        await self._write(workers.raise_tokens, above)

    async def grant(self, role: str, purpose: Purpose) -> list[str]:
        """Raise ConfigError: a file has an owner and permissions, but no roles."""
        raise ConfigError(
            f"a SQLite file knows no roles: let the user {role!r} write {self.path} and the"
            " directory that it is in"
        )

    # ------------------------------------------------------------------------- the jobs

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._write(sqlite_jobs.enqueue, jobs)

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        return await self._write(sqlite_exchange.exchange, me, ended, requests, turns=self._turns)

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        return await self._write(sqlite_jobs.checkpoint, saves)

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        return await self._write(sqlite_jobs.progress, reports)

    async def keep_logs(self, logs: Sequence[JobLog]) -> set[int]:
        return await self._write(sqlite_jobs.keep_logs, logs)

    async def keep_stack(self, job_id: int, stack: Stack) -> bool:
        return await self._write(sqlite_jobs.keep_stack, job_id, stack)

    async def expire(self, limit: int = EXPIRE_MAX) -> int:
        return await self._write(sqlite_exchange.expire, limit)

    async def prune(
        self,
        *,
        jobs_older_than: float,
        workers_older_than: float,
        dead_older_than: float | None = None,
        limit: int = PRUNE_MAX,
        onward: bool = False,
    ) -> int:
        """A search from the oldest meets no deleted rows here, so ``onward`` changes nothing."""
        return await self._write(
            pruning.prune, jobs_older_than, workers_older_than, dead_older_than, limit
        )

    async def note_minute(self, worker_id: int, batch: int, counted: Sequence[Counted]) -> None:
        await self._write(minutes.note_minute, worker_id, batch, counted)

    async def merge_minutes(self, limit: int = PRUNE_MAX) -> int:
        return await self._write(minutes.merge_minutes, limit)

    # ----------------------------------------------------------------------- the limits

    async def declare_limits(self, limits: Sequence[NewLimit]) -> None:
        """Look first, without the write lock: workers say the same again and again, and a commit
        wakes all of them."""
        now = self._clock.wall()
        news = await self._connection.read(lambda it: sqlite_limits.find_news(it, now, limits))
        if news:
            await self._write(sqlite_limits.declare_limits, news)

    async def spend(self, job_id: int, token: int, name: str, cost: float) -> Answer:
        return await self._write(sqlite_limits.spend, job_id, token, name, cost)

    # ---------------------------------------------------------------------- the workers

    async def acknowledge_pauses(self, me: WorkerRef, version: str) -> None:
        await self._write(pauses.acknowledge_pauses, me, version)

    async def register(self, new: NewWorker) -> Registered:
        return await self._write(workers.register, new)

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        return await self._write(workers.reconnect, me, token_seen)

    async def set_status(self, me: WorkerRef, status: WorkerStatus) -> bool:
        return await self._write(workers.set_status, me, status)

    async def announce(
        self, me: WorkerRef, tasks: Sequence[str], lacks: Mapping[str, Sequence[str]]
    ) -> None:
        await self._write(workers.announce, me, tasks, lacks)

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        await self._write(workers.presence_off, me, reason)

    async def tell_wakeup(self, me: WorkerRef, words: str) -> None:
        await self._write(workers.tell_wakeup, me, words)

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        await self._connection.run(
            lambda: self._connection.write_now(
                lambda cursor, now: workers.tell_failing(cursor, now, me, failing),
                brief=True,
            )
        )

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Beats by the lock file, if there is one: then no write lock is needed."""
        return await self._connection.run(lambda: self._beat_now(me))

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[tuple[int, int]]:
        return await self._write(workers.reconcile, me, frozenset(held))

    async def observe(self, slack: float = 0.0) -> Snapshot:
        locks = directory_for(self.path)
        return await self._connection.read(
            lambda cursor: workers.observe(cursor, self._clock.wall(), slack, locks)
        )

    async def peek(self, me: WorkerRef) -> Peek:
        """Return nothing: a look costs no server anything here, so each worker watches."""
        return Peek()

    async def keep_watch(self, place: int, mark: int) -> None:
        """Do nothing: no peek shows a watch."""

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        """Wakes no worker."""
        return await self._write(workers.tell_gone, lock, begun)

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        return await self._write(workers.reap, gone, cause)

    async def reclaim(
        self,
        decide: Callable[[Orphan], Transition],
        limit: int = ORPHANS_MAX,
        only: Collection[tuple[int, int]] | None = None,
    ) -> list[Transition]:
        now = self._clock.wall()
        found = await self._connection.read(
            lambda cursor: (
                workers.orphans(cursor, now, limit)
                if only is None
                else workers.facts_of(cursor, now, only, limit)
            )
        )
        if not found:
            return []
        return await self._write(workers.close_orphans, [decide(one) for one in found])

    async def overdue(self, slack: float, limit: int = OVERDUE_MAX) -> list[OverdueAttempt]:
        return await self._connection.read(
            lambda cursor: workers.overdue(cursor, self._clock.wall(), slack, limit)
        )

    async def superseded(self, attempts: Collection[tuple[int, int]]) -> list[int]:
        return await self._connection.read(lambda cursor: workers.superseded(cursor, attempts))

    # ---------------------------------------------------------------------------- inside

    async def _write(
        self,
        verb: Callable[Concatenate[Cursor, float, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        return await self._connection.write(lambda cursor, now: verb(cursor, now, *args, **named))

    def _open_now(self) -> None:
        fresh = not is_there(self.path)
        if not self._read_only:
            self._connection.create_now()
        before = self._connection.read_now(schema.applied)
        if before or self._read_only:
            check_usable(load(schema.DIALECT), before)
        else:
            self._connection.write_now(schema.migrate)
        self.created_file = self.created_file or fresh

    def _migrate_now(self) -> list[Migration]:
        fresh = not is_there(self.path)
        self._connection.create_now()
        steps = self._connection.write_now(schema.migrate)
        self.created_file = self.created_file or fresh
        return steps

    def _beat_now(self, me: WorkerRef) -> Beat:
        lock = self.lock
        if lock is None:
            return self._beat_by_row(me, 0)
        beat = self._connection.read_now(lambda cursor: workers.beat_by_file(cursor, me, lock))
        if beat is None:
            return self._beat_by_row(me, lock.count)
        if beat.renewed:
            self._show_beat(me, lock.count)
        return beat

    def _beat_by_row(self, me: WorkerRef, floor: int) -> Beat:
        return self._connection.write_now(
            lambda cursor, now: workers.beat_by_row(cursor, now, me, floor)
        )

    def _show_beat(self, me: WorkerRef, count: int) -> None:
        with suppress(sqlite3.Error):  # the file has proved the beat; the row is for people
            self._connection.write_now(
                lambda cursor, now: workers.show_beat(cursor, now, me, count), brief=True
            )

    def _refuse_file_system(self) -> None:
        if kind := refuses(self.path):
            raise ConfigError(
                f"{self.path} is on {kind}: SQLite's locks are not safe on network and FUSE file"
                f" systems; use a local disk or PostgreSQL (or ?{sqlite_url.UNSAFE}=1 at your risk)"
            )
