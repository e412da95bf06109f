"""Stores jobs in a SQLite file: no server, any number of processes on one machine.

Each verb of ``store.protocol`` is a plain function of a cursor and the time, in the modules beside
this one; ``writes`` and ``reads`` make coroutines of them, on the store's own thread. A worker's
heartbeat has a separate store, so that no exchange is ever in its way; instances share nothing but
the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from outlast.errors import ConfigError
from outlast.model.lifecycle import Transition
from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.environment import is_there
from outlast.store.limits import RECOUNT_SECONDS, DeclaredTask, Miscounted, NewLimit
from outlast.store.lockfile import directory_for
from outlast.store.protocol import ORPHANS_MAX
from outlast.store.queue_turns import Turns
from outlast.store.sqlite import events, jobs, minutes, pruning, schema, steps, workers
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.sqlite import limits as sqlite_limits
from outlast.store.sqlite.acts import SqliteActVerbs
from outlast.store.sqlite.connection import reads, writes
from outlast.store.sqlite.readable import ReadableSqlite
from outlast.store.sqlite.schedules import SqliteScheduleVerbs
from outlast.store.sqlite.writer import find_writer
from outlast.store.values import (
    Beat,
    ClaimRequest,
    Exchanged,
    Failing,
    Migration,
    Orphan,
    Peek,
    Purpose,
    Snapshot,
    WorkerRef,
)


class SqliteStore(ReadableSqlite, SqliteActVerbs, SqliteScheduleVerbs):
    """The ``Store`` protocol on a SQLite file.

    Args:
        url: ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.
        options: for opening it; ``more``: changes to them.

    Attributes:
        lock: the lock file of the worker whose heartbeat runs here; it carries the beat.
    """

    def __init__(self, url: str, options: StoreOptions = DEFAULTS, **more: Any) -> None:
        super().__init__(url, options, **more)
        self.lock = self._options.lock
        self._turns = Turns()

    # ------------------------------------------------------------------------- the file

    async def drop_connections(self) -> None:
        await self._connection.run(self._connection.disconnect)

    def find_writer(self) -> int | None:
        return find_writer(self._connection.path)

    def why_late(self) -> str:
        writer = self.find_writer()
        return "" if writer is None else f"process {writer} holds the write lock of the file"

    async def migrate(self) -> list[Migration]:
        return await self._connection.run(self._migrate_now)

    async def grant(self, role: str, purpose: Purpose, *, events: bool = False) -> list[str]:
        """Raise ConfigError: a file has an owner and permissions, but no roles."""
        raise ConfigError(
            f"a SQLite file knows no roles: let the user {role!r} write {self.path} and the"
            " directory that it is in"
        )

    def _migrate_now(self) -> list[Migration]:
        fresh = not is_there(self.path)
        self._connection.create_now()
        steps = self._connection.write_now(schema.migrate)
        self.created_file = self.created_file or fresh
        return steps

    # ------------------------------------------------------------------------- the jobs

    enqueue = writes(jobs.enqueue)
    expire = writes(sqlite_exchange.expire)
    checkpoint = writes(jobs.checkpoint)
    find_steps = reads(steps.find_steps)
    keep_steps = writes(steps.keep_steps)
    spawn = writes(steps.spawn)
    watch_children = writes(steps.watch_children)
    find_event = reads(events.find_event)
    progress = writes(jobs.progress)
    keep_logs = writes(jobs.keep_logs)
    keep_stack = writes(jobs.keep_stack)
    prune = writes(pruning.prune)
    note_minute = writes(minutes.note_minute)
    merge_minutes = writes(minutes.merge_minutes)
    raise_tokens = writes(workers.raise_tokens)

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        return await self._connection.write(
            lambda cursor, now: sqlite_exchange.exchange(
                cursor, now, me, ended, requests, turns=self._turns
            )
        )

    # ----------------------------------------------------------------------- the limits

    spend = writes(sqlite_limits.spend)

    async def recount_limits(self, settled: float = RECOUNT_SECONDS) -> list[Miscounted]:
        wrong = await self._connection.read(
            lambda cursor, now: sqlite_limits.find_wrong(cursor, now, settled)
        )
        if not any(wrong):
            return []
        return await self._connection.write(
            lambda cursor, now: sqlite_limits.recount(cursor, now, settled)
        )

    async def declare_limits(
        self, limits: Sequence[NewLimit], tasks: Sequence[DeclaredTask] = ()
    ) -> bool:
        """Look first, without the write lock: each commit wakes all workers."""
        news = await self._connection.read(
            lambda cursor, now: sqlite_limits.find_news(cursor, now, limits, tasks)
        )
        if any(news):
            await self._connection.write(
                lambda cursor, now: sqlite_limits.declare_limits(cursor, now, *news)
            )
        return True

    # ---------------------------------------------------------------------- the workers

    register = writes(workers.register)
    reconnect = writes(workers.reconnect)
    set_status = writes(workers.set_status)
    announce = writes(workers.announce)
    presence_off = writes(workers.presence_off)
    tell_wakeup = writes(workers.tell_wakeup)
    acknowledge_pauses = writes(workers.acknowledge_pauses)
    reconcile = writes(workers.reconcile)
    tell_gone = writes(workers.tell_gone)  # wakes no worker
    reap = writes(workers.reap)
    overdue = reads(workers.overdue)
    superseded = reads(workers.superseded)

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        await self._connection.run(
            lambda: self._connection.write_now(
                lambda cursor, now: workers.tell_failing(cursor, now, me, failing), brief=True
            )
        )

    async def observe(self, slack: float = 0.0) -> Snapshot:
        locks = directory_for(self.path)
        return await self._connection.read(
            lambda cursor, now: workers.observe(cursor, now, slack, locks)
        )

    async def peek(self, me: WorkerRef) -> Peek:
        """Nothing: a look costs no server anything here, so each worker watches."""
        return Peek()

    async def keep_watch(self, place: int, mark: int) -> None:
        """Nothing: no peek shows a watch."""

    async def reclaim(
        self,
        decide: Callable[[Orphan], Transition],
        limit: int = ORPHANS_MAX,
        only: Collection[tuple[int, int]] | None = None,
    ) -> list[Transition]:
        found = await self._connection.read(
            lambda cursor, now: (
                workers.orphans(cursor, now, limit)
                if only is None
                else workers.facts_of(cursor, now, only, limit)
            )
        )
        if not found:
            return []
        decided = [decide(one) for one in found]
        return await self._connection.write(
            lambda cursor, now: workers.close_orphans(cursor, now, decided)
        )

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Beats by the lock file, if there is one: then no write lock is needed."""
        return await self._connection.run(lambda: self._beat_now(me))

    def _beat_now(self, me: WorkerRef) -> Beat:
        lock, connection = self.lock, self._connection
        if lock is not None:
            beaten = connection.read_now(
                lambda cursor, now: workers.beat_by_file(cursor, now, me, lock)
            )
            if beaten is not None:
                beat, is_to_show = beaten
                if is_to_show:
                    with suppress(sqlite3.Error):  # the file has proved it; the row is for people
                        connection.write_now(
                            lambda cursor, now: workers.show_beat(cursor, now, me, lock.count),
                            brief=True,
                        )
                return beat
        floor = 0 if lock is None else lock.count
        return connection.write_now(lambda cursor, now: workers.beat_by_row(cursor, now, me, floor))
