"""Sends the heartbeat, on a separate thread, loop and connection.

Nothing on the worker's main loop can delay a beat. But once that loop has not run for half a lease,
beats stop, and the lease expires as if the worker were dead.

Each beat locks the lock file again, in case a task in this process has unlocked it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

from outlast.base.clock import Clock
from outlast.errors import describe
from outlast.events import emit
from outlast.model.lease import LeaseTerms
from outlast.store.lockfile import LockFile
from outlast.store.protocol import Store
from outlast.store.values import Beat, Failing, WorkerRef
from outlast.worker.service import Trouble

RETRY_SECONDS_MAX = 0.5
PAUSE_SECONDS_MIN = 0.05  # between the end of a beat and the next


class Heartbeat:
    """Renews the lease of ``me``. On the main loop, calls ``on_beat`` for each beat that the store
    has taken, and ``on_miss`` for each beat that it has not."""

    name = "heartbeat"

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        me: WorkerRef,
        terms: LeaseTerms,
        *,
        clock: Clock,
        on_beat: Callable[[float, WorkerRef, Beat], None],
        on_miss: Callable[[], None],
        lock: LockFile | None = None,
    ) -> None:
        self.me = me
        self._lock = lock
        self._open_store = open_store
        self._terms = terms
        self._clock = clock
        self._on_beat = on_beat
        self._on_miss = on_miss
        self._store: Store | None = None
        self._main = asyncio.get_running_loop()
        self._main_turned_at = clock.boot()
        self._failing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudged: asyncio.Event | None = None
        self._stopping = False
        self._trouble: Trouble | None = None  # the trouble to write to the row
        self._told: tuple[int, Trouble | None] = (0, None)

    def report(self, trouble: Trouble | None) -> None:
        """Write the trouble to the row with the next beat. Called by the main loop."""
        self._trouble = trouble

    def note_registration(self, me: WorkerRef) -> None:
        """Beat for this registration from now on. The main loop calls this, which shows that it
        runs."""
        self.me = me
        self._note_main_turn()

    def start(self) -> None:
        """Begin beating, on a separate thread."""
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._beat_until_stopped()),
            name="outlast-heartbeat",
            daemon=True,
        )
        self._thread.start()

    def call_soon(self, call: Callable[[], object]) -> None:
        """Run ``call`` in the heartbeat's loop, or in the calling thread if that loop has not
        begun. Any thread may call this. Raises RuntimeError once the loop has ended."""
        if self._loop is None:
            call()
        else:
            self._loop.call_soon_threadsafe(call)

    def nudge(self) -> None:
        """Beat now: the reply may request a cancel or a drain. Any thread may call this."""
        loop, nudged = self._loop, self._nudged
        if loop is not None and nudged is not None and not loop.is_closed():
            loop.call_soon_threadsafe(nudged.set)

    async def stop(self) -> None:
        """Stop beating and wait for the thread."""
        self._stopping = True
        self.nudge()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 10.0)

    async def run_once(self) -> float:
        """Beat once; return the seconds until the next beat, which are counted from the start of
        this one: a short lease survives a slow beat only if the next beat is on time."""
        asked_at = self._clock.boot()
        if self._lock is not None:
            self._lock.hold()
        pause = min(RETRY_SECONDS_MAX, self._terms.heartbeat)
        self._tell_main(self._note_main_turn)
        if self._clock.boot() - self._main_turned_at < self._terms.lease / 2:
            try:
                await self._beat(asked_at, self.me)
                pause = self._terms.heartbeat
            except Exception as error:  # any error: a thread that ended would never beat again
                # if it took longer, this process itself did not run
                if self._clock.boot() - asked_at < self._terms.lease / 2:
                    self._tell_main(self._on_miss)
                await self._note_miss(error)
        return max(PAUSE_SECONDS_MIN, pause - (self._clock.boot() - asked_at))

    async def _beat(self, asked_at: float, me: WorkerRef) -> None:
        async with asyncio.timeout(self._terms.lease / 3):
            if self._store is None:
                self._store = await self._open_store()
            beat = await self._store.heartbeat(me)
        if self._lock is not None:
            self._lock.touch()
        if self._failing:
            self._failing = False
            emit("store_recovered", duty=self.name)
        self._tell_main(self._on_beat, asked_at, me, beat)
        await self._tell_trouble(me)

    async def _tell_trouble(self, me: WorkerRef) -> None:
        trouble = self._trouble
        told = self._told[1] if self._told[0] == me.worker_id else None
        if trouble == told or self._store is None:
            return
        failing = None
        if trouble is not None:
            failing = Failing(trouble.duty, trouble.error, self._clock.boot() - trouble.since)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._terms.heartbeat):
                await self._store.tell_failing(me, failing)
                self._told = me.worker_id, trouble

    def _note_main_turn(self) -> None:
        self._main_turned_at = self._clock.boot()

    def _tell_main(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._main.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the main loop is closed: this process ends
            self._stopping = True

    async def _note_miss(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            emit("store_unavailable", duty=self.name, error=describe(error), count=1)
        if self._store is not None:
            with contextlib.suppress(Exception):
                await self._store.drop_connections()

    async def _beat_until_stopped(self) -> None:
        self._loop, self._nudged = asyncio.get_running_loop(), asyncio.Event()
        while not self._stopping:
            self._nudged.clear()
            pause = await self.run_once()
            try:
                async with asyncio.timeout(pause):
                    await self._nudged.wait()
            except TimeoutError:
                pass
        if self._store is not None:
            await self._store.close()
