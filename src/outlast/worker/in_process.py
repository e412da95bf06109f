"""A worker in the caller's own process and loop: ``async with app.worker(): ...``.

The same worker, store and fencing as with runners, but nothing can be killed and nothing is
isolated: an attempt that ignores its cancellation goes on, and one that takes the process down
takes all down.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from outlast.app import App
from outlast.clock import SYSTEM, Clock
from outlast.config import WorkerSettings, worker_settings
from outlast.credentials import hiding_secrets
from outlast.errors import StoreUnavailable
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import ALONE_IN_RUNNER
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.execute import Executor, enter_lifespan
from outlast.runner.main import announcement
from outlast.runner.protocol import End, Reported
from outlast.store.protocol import CLAIMS_MAX
from outlast.store.values import Answer, ClaimRequest, Save
from outlast.worker.assemble import (
    lock_for,
    new_worker,
    open_beating_store,
    open_main_store,
    presence_for,
    unique_name,
    wakeup_for,
)
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.ledger import Ledger, Running
from outlast.worker.claims.prefetch import Prefetch, linger
from outlast.worker.runners.exits import crashed
from outlast.worker.runners.tags import split_by_tags
from outlast.worker.worker import Worker


class LocalLink:
    """What attempts need of their worker, one call away."""

    def __init__(self, ledger: Ledger, checkpoints: CheckpointWriter, store_id: str) -> None:
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self.store_id = store_id
        self.worker_id = 0
        self._ends: dict[int, End] = {}  # of this turn of the loop
        self._reports: dict[int, Progress] = {}  # that the loop has not seen yet
        self.on_free: Callable[[int], None] = lambda _: None

    def report(self, token: int, progress: Progress) -> None:
        """Note progress, from any thread."""
        self._reports[token] = progress
        self._loop.call_soon_threadsafe(self._take_reports)

    def _take_reports(self) -> None:
        while self._reports:  # one by one: threads go on adding to it
            token, progress = self._reports.popitem()
            running = self._ledger.running.get(token)
            if running is not None:
                self._checkpoints.report(running, Reported(token, progress))

    async def save(self, job_id: int, token: int, number: int, value_json: str) -> Answer:
        """Save a checkpoint; returns when the store has answered."""
        answered: asyncio.Future[str] = self._loop.create_future()
        self._checkpoints.add(
            Save(job_id, token, number, value_json), functools.partial(_set, answered)
        )
        word = await answered
        if word not in set(Answer):
            raise StoreUnavailable(f"the checkpoint was {word} by the store")
        return Answer(word)

    def save_blocking(self, job_id: int, token: int, number: int, value_json: str) -> Answer:
        """Save a checkpoint from a plain function's thread."""
        call = self.save(job_id, token, number, value_json)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def ended(self, end: End) -> None:
        """Note an end; those of one turn of the loop go together."""
        if not self._ends:
            self._loop.call_soon(self.flush)
        self._ends[end.token] = end

    def has_ended(self, token: int) -> bool:
        """Whether it has ended in this turn of the loop."""
        return token in self._ends

    def flush(self) -> None:
        """Tell the ledger of the ends, and before of what was reported last."""
        self._take_reports()
        ends, self._ends = self._ends, {}
        self._ledger.end_all(ends.values())
        self.on_free(len(ends))

    def stood(self, token: int, stack: str) -> None:
        """Note where a coroutine stands at its limit."""
        running = self._ledger.running.get(token)
        if running is not None:
            running.stack = stack


def _set(future: asyncio.Future[str], word: str) -> None:
    if not future.done():
        future.set_result(word)


class LocalPool:
    """Runs attempts in this process; plain functions in threads."""

    name = "pool"
    alone_from = ALONE_IN_RUNNER

    def __init__(
        self,
        app: App,
        ledger: Ledger,
        link: LocalLink,
        resources: Any,
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._link = link
        self._settings = settings
        self._clock = clock
        serves, self._lacks = split_by_tags(announcement(app).tasks, settings.tags)
        self._tasks = sorted(serves)
        self._executor = Executor(app, link, resources, clock=clock, threads=settings.concurrency)
        self._prefetch = Prefetch(ledger, clock)
        self._loop = asyncio.get_running_loop()
        self._turning = False  # the loop's next turn fills the slots
        self._freed = 0
        self.may_begin: Callable[[], bool] = lambda: True
        self.on_begin: Callable[[int], None] = lambda token: None
        link.on_free = self._on_free

    def registered(self, worker_id: int) -> None:
        """Note the id that attempts show."""
        self._link.worker_id = worker_id

    def tasks(self) -> list[str]:
        """Return the application's tasks, less those in ``lacks``."""
        return self._tasks

    def lacks(self) -> dict[str, list[str]]:
        """Return the tasks that this worker's tags do not allow."""
        return self._lacks

    def rooms(self, unanswered: int) -> list[ClaimRequest]:
        """Return the free slots. One that was given to an attempt which begins with the loop's
        next turn is not free: another worker could run at once what would wait here for it."""
        held = len(self._ledger.running) + unanswered
        free = self._settings.concurrency + self._prefetch.most() - held
        if free <= 0 or not self._tasks:
            return []
        limit = min(free, self._prefetch.part(self._settings.concurrency), CLAIMS_MAX)
        return [ClaimRequest(self._tasks, limit, list(self._settings.queues))]

    def room_alone(self, solo: int) -> ClaimRequest | None:
        """Return the request for one suspect: here it runs when it is the only attempt."""
        return ClaimRequest(self._tasks, 1, list(self._settings.queues), solo)

    def place(self, attempts: list[Running]) -> None:
        """Start claimed attempts, as far as there are slots, with the loop's next turn: by then
        the next exchange is under way, and they run meanwhile."""
        self._prefetch.line_up(attempts)
        self._fill_soon()

    def linger(self) -> float:
        """Return for how many seconds the next exchange may wait: no slot runs dry meanwhile."""
        return linger(self._prefetch) if len(self._prefetch) > self._free() else 0.0

    def give_back(self, reason: str) -> None:
        """Give back what was claimed and has not begun."""
        self._prefetch.give_back(reason)

    def give_back_late(self) -> None:
        """Give back what has waited too long for a slot and still has none."""
        self._prefetch.give_back_late(free=self._free())

    def waiting(self) -> int:
        """Return how many attempts were claimed and have not begun."""
        return len(self._prefetch)

    def _free(self) -> int:
        running = len(self._ledger.running) - len(self._prefetch)
        return self._settings.concurrency - running

    def _on_free(self, slots: int) -> None:
        self._freed += slots
        self._fill_soon()

    def _fill_soon(self) -> None:
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        """Give free slots to those that wait, while new attempts may begin at all."""
        self._turning = False
        freed, self._freed = self._freed, 0
        self._prefetch.freed(freed)
        if self._prefetch and not self.may_begin():
            self.give_back("the worker takes no more")
        now = self._clock.boot()
        begins = self._prefetch.take(max(0, self._free()))
        if begins:
            self.on_begin(max(running.token for running in begins))
        for running in begins:
            running.started_at = running.last_sign_at = now
        self._executor.start([running.claimed for running in begins])

    def stop(self, token: int, reason: str) -> None:
        """Ask an attempt to stop."""
        if token in self._prefetch:
            self._prefetch.stop(token, reason)
        running = self._ledger.running.get(token)
        if running is not None and running.stop_reason is None:
            running.stop_reason, running.stopped_at = reason, self._clock.boot()
            self._executor.stop(token, reason)

    def kill(self, token: int) -> None:
        """Nothing can be killed in process: the attempt goes on until it looks."""

    def kill_process(self, pid: int, reason: str) -> None:
        """Nothing can be killed in process: a transaction that was left open stays open."""

    def listen(self) -> None:
        """The loop is this worker's own: code that blocks it blocks this, too."""

    def runs(self, token: int) -> bool:
        """Whether the executor has this attempt, or it waits for a slot."""
        runs = self._executor.runs(token) or self._link.has_ended(token)
        return runs or token in self._prefetch

    def responsiveness_of(self, token: int) -> None:
        """There are no runners."""

    def kill_all(self, reason: str, spare: Collection[int] = ()) -> None:
        """Hand back what still runs; it goes on, and what it writes is refused."""
        self.give_back(reason)
        self._link.flush()
        outcome = Outcome(kind=OutcomeKind.RELEASED, message=f"in process: {reason}")
        if reason == "lease_lost":
            outcome = crashed(CrashKind.LOST_LEASE, "the worker's lease ended")
        for token in self._ledger.running.keys() - set(spare):
            self._ledger.end(token, outcome)

    def give_up(self, tokens: Collection[int]) -> None:
        """There are no processes."""

    async def run_once(self) -> float | None:
        """There is nothing to keep up."""
        return None

    async def close(self) -> None:
        """Let go of threads."""
        self.kill_all("the worker stopped")
        self._executor.close()


@contextlib.asynccontextmanager
async def embedded(app: App, clock: Clock = SYSTEM, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker in this loop for the length of the block; leave it drained."""
    chosen = worker_settings(**settings)
    name = chosen.name or unique_name()
    async with contextlib.AsyncExitStack() as stack:
        store = await open_main_store(app.url, chosen.lease, app.wakeup)
        stack.push_async_callback(store.close)
        lock = lock_for(app.url, name)
        worker = Worker(
            new_worker(name, chosen, lock),
            chosen,
            store=store,
            open_beating_store=functools.partial(open_beating_store, app.url, chosen.lease, lock),
            wakeup=await wakeup_for(app.url, app.wakeup, store, chosen, clock),
            clock=clock,
            presence=presence_for(app.url, chosen),
            lock=lock,
            hide_secrets=hiding_secrets(app.url, app.wakeup),
        )
        if lock is not None:
            stack.callback(lambda: lock.release(unlink=worker.registration.has_left))
        resources = await enter_lifespan(app, stack)
        link = LocalLink(worker.ledger, worker.checkpoints, await store.store_id())
        pool = LocalPool(app, worker.ledger, link, resources, chosen, clock)
        pool.may_begin = worker.registration.may_claim
        pool.on_begin = worker.on_begin
        worker.attach(pool)
        running = asyncio.create_task(worker.run(), name="outlast-worker")
        try:
            yield worker
        finally:
            worker.request_stop()
            await running
