"""What PostgreSQL gives beside a store on SQLite: presence, peeks at the line, a count of peers.

Presence is a lock that a session holds, under one run of the database. The duty
(``worker/lease/presence.py``), the observer and the reaper are the production code; this is what
the server does for them (``outlast_hold_presence_v1``, ``observe`` and ``reap`` of
``postgres/sql/workers.sql``). Peeks show what those of ``outlast_peek_v1`` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from outlast.errors import StoreUnavailable
from outlast.model.lease import DeathCause, Presence
from outlast.store.values import (
    Beat,
    Exchanged,
    LockIdentity,
    Neighbour,
    NewWorker,
    Peek,
    Registered,
    Snapshot,
    WorkerRef,
    WorkerSeen,
)

LINE = """SELECT (SELECT min(run_at) - ? FROM outlast_jobs
           WHERE state = 'queued' AND position IS NULL),
          (SELECT value FROM outlast_sequences WHERE name = 'position')"""


class SimPresence:
    """The ``PresenceLock`` of one worker: its session, while there is one."""

    def __init__(self, owner: Any) -> None:
        self._on_lost: Callable[[], None] = lambda: None
        self.owner = owner
        self.connected = False

    def tell_lost(self) -> None:
        """Tell the owner, in whose process this is called, that the session has ended."""
        self._on_lost()

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None]) -> str | None:
        """Take the lock or prove that this session has it; say so on the row."""
        self._on_lost = on_lost
        run = self.owner.world.database.incarnation
        try:
            reason: str | None = await self.owner.world.faults.call(
                "hold", self._hold, (me.worker_id, run)
            )
        except BaseException:
            if not self.owner.is_cut:  # the server notices, and ends the session
                self.owner.world.database.end_session(self, tell=False)
            raise
        return reason

    async def _hold(self, worker_id: int, run: int) -> str | None:
        """``run``: of the database, when this was asked for; what it was asked ends with it."""
        database = self.owner.world.database
        if database.incarnation != run:
            raise StoreUnavailable("simulated: the server ended this session")
        self.connected = True
        reason: str | None = database.hold(self, worker_id)
        return reason

    async def release(self) -> None:
        """End the session."""
        self.owner.world.database.end_session(self, tell=False)


class Database:
    """The sessions of one database server; ``incarnation`` names its present run."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.incarnation = 1
        self.fails_over = False  # soon
        self.drawn_in: int | None = None  # the row that is copied with it: of which run; or none
        self.watches = [0] * (
            1 + world.seed % 3
        )  # marks; fewer than workers, so that looks are shared
        self._rows: Any = None  # a connection for looks at the line
        self._holders: dict[int, SimPresence] = {}  # worker -> whose session has its lock
        self._noted: dict[int, str] = {}  # worker -> the incarnation on its row

    def hold(self, lock: SimPresence, worker_id: int) -> str | None:
        """Take the lock for this session; then note it on the row."""
        holder = self._holders.setdefault(worker_id, lock)
        if holder is not lock:
            return "another session holds the lock"
        self._noted[worker_id] = str(self.incarnation)
        return None

    def off(self, me: WorkerRef) -> None:
        """Note that this worker's presence proves nothing."""
        self._noted.pop(me.worker_id, None)

    def end_session(self, lock: SimPresence, *, tell: bool) -> None:
        """Let go of what the session held; with ``tell`` its owner's process hears of it."""
        self._holders = {key: each for key, each in self._holders.items() if each is not lock}
        if lock.connected and tell:
            self._world.loop.call_soon(lock.tell_lost, context=lock.owner.context())
        lock.connected = False

    def end_session_later(self, lock: SimPresence, after: float) -> None:
        """Notice only ``after`` seconds later that the other end is gone."""
        if after > 0:
            self._world.loop.call_later(after, lambda: self.end_session(lock, tell=False))
        else:
            self.end_session(lock, tell=False)

    def restart(self) -> None:
        """Be another incarnation, in which no lock is held."""
        self.incarnation += 1
        for lock in dict.fromkeys(self._holders.values()):  # a set's order is not the seed's
            self.end_session(lock, tell=True)

    def crash(self) -> None:
        """End all sessions, as when one backend is killed: that is another incarnation, too."""
        self.restart()

    def promote(self) -> None:
        """Be the standby, whose incarnation is drawn by the first session."""
        self.put_back(None)
        self.fails_over = False

    def put_back(self, drawn_in: int | None) -> None:
        """Run on what was copied when that was its row."""
        self.restart()
        self.drawn_in = drawn_in

    @property
    def has_incarnation(self) -> bool:
        """Whether its row is of this run; if not, tokens may be lost, and nothing is claimed."""
        return self.drawn_in == self.incarnation

    def draw_incarnation(self) -> None:
        """Let tokens jump, once for each incarnation, at the moment it is drawn."""
        if not self.has_incarnation:
            world = self._world
            world.disk.raise_tokens(world.store_clock.wall(), world.store_clock.random())
            self.drawn_in = self.incarnation

    def look_at_line(self) -> tuple[float | None, int]:
        """Return in how many seconds a job may fall due, and the highest position ever drawn."""
        if self._rows is None:
            self._rows = self._world.disk.look()
        found: tuple[float | None, int] = self._rows.execute(
            LINE, (self._world.store_clock.wall(),)
        ).fetchone()
        return found

    def notify(self, payload: str) -> None:
        """Tell all who listen."""
        self._world.tell(payload)

    def shown(self, worker_id: int) -> Presence:
        """Return what a look shows of one worker."""
        if not self._is_of_this_run(worker_id):
            return Presence.UNKNOWN
        return Presence.HELD if worker_id in self._holders else Presence.ABSENT

    def _is_of_this_run(self, worker_id: int) -> bool:
        return self._noted.get(worker_id) == str(self.incarnation)

    def seen(self, each: WorkerSeen) -> WorkerSeen:
        """Return a look at a worker with its presence."""
        return msgspec.structs.replace(
            each, presence=self.shown(each.worker_id), incarnation=self._noted.get(each.worker_id)
        )


class ServedStore:
    """A store whose looks show presence, and whose reap looks at it again."""

    def __init__(self, store: Any, database: Database) -> None:
        self._store = store
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def register(self, new: NewWorker) -> Registered:
        """Make a row for a worker."""
        self._database.draw_incarnation()
        return await self._store.register(new)

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        """Raise the epoch."""
        self._database.draw_incarnation()
        return await self._store.reconnect(me, token_seen)

    async def exchange(self, me: WorkerRef, ended: Any, requests: Any) -> Exchanged:
        """Hand in what ended; take nothing before tokens have jumped."""
        if self._database.has_incarnation:
            return await self._store.exchange(me, ended, requests)
        reply = await self._store.exchange(me, ended, [])
        return msgspec.structs.replace(reply, valid=False)

    async def observe(self, slack: float = 0.0) -> Snapshot:
        """Return one look at all live workers."""
        look = await self._store.observe(slack)
        workers = [self._database.seen(each) for each in look.workers]
        return msgspec.structs.replace(look, workers=workers)

    async def peek(self, me: WorkerRef) -> Peek:
        """Return what ``outlast_peek_v1`` shows: the line, the marks of those who watch, and the
        neighbours on the worker's host."""
        look = await self._store.observe(0.0)
        next_due, drawn = self._database.look_at_line()
        return Peek(
            next_due=next_due,
            drawn=drawn,
            next_tick=look.next_tick,
            pauses=look.pauses,
            watches=tuple(self._database.watches),
            neighbours=neighbours_of(me.worker_id, look.workers),
        )

    async def count_peers(self, me: WorkerRef) -> tuple[int, int]:
        """Return how many workers serve the same, and how many of them came before."""
        workers = (await self._store.observe(0.0)).workers
        return len(workers), sum(each.worker_id < me.worker_id for each in workers)

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        """Say that the worker with this lock file is gone, and wake those who listen."""
        told = int(await self._store.tell_gone(lock, begun))
        if told:
            self._database.notify("gone:0")
        return told

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Renew the lease, and peek."""
        beat = await self._store.heartbeat(me)
        if not beat.renewed:
            return beat
        peek = await self.peek(me)
        return msgspec.structs.replace(beat, peek=peek)

    async def keep_watch(self, place: int, mark: int) -> None:
        """Overwrite the mark of one watch."""
        self._database.watches[place] = mark

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        """Mark a worker lost; for want of presence only if that is absent still."""
        absent = self._database.shown(gone.worker_id) is Presence.ABSENT
        if cause is DeathCause.PRESENCE and not absent:
            return False
        return bool(await self._store.reap(gone, cause))

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        """Say that the presence proves nothing."""
        await self._store.presence_off(me, reason)
        self._database.off(me)


def neighbours_of(worker_id: int, workers: list[WorkerSeen]) -> tuple[Neighbour, ...]:
    """Return the next three live workers of the same host that have a lock file."""
    own = {each.boot_id for each in workers if each.worker_id == worker_id}
    here = [each for each in workers if each.boot_id in own and each.lock_path]
    others = [each for each in here if each.worker_id != worker_id]
    later = sorted(others, key=lambda each: (each.worker_id < worker_id, each.worker_id))
    return tuple(
        Neighbour(each.worker_id, each.lock_path or "", each.lock_device, each.lock_inode)
        for each in later[:3]
    )
