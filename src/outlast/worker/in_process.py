"""Runs a worker in the caller's own process and loop: ``async with app.worker(): ...``.

Worker, store and fencing are the same as with runners, but nothing can be killed and nothing is
isolated: an attempt that ignores its cancellation continues, and one that crashes takes all down.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Future
from typing import Any

import msgspec

from outlast.base import forks
from outlast.base.clock import Clock
from outlast.base.config import WorkerSettings, worker_settings
from outlast.base.sync import loop_is_running
from outlast.client.app import App
from outlast.client.attempt import Attempt
from outlast.errors import UsageError
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.application import refuse_greenlets
from outlast.runner.channel import IN_CHILD, settle
from outlast.runner.execute import Executor, enter_lifespan
from outlast.runner.main import announcement
from outlast.runner.protocol import Began, End, FunctionsEnded, Reported, StackAtLimit
from outlast.runner.stacks import own_first, stacks_here
from outlast.store.protocol import CLAIMS_MAX, Store
from outlast.store.values import Claimed, ClaimRequest, NamedStep, Save, StepFound
from outlast.worker.assemble import open_parts
from outlast.worker.base import WAITS, Declared, Running
from outlast.worker.claims.checkpoints import Reply
from outlast.worker.claims.prefetch import HORIZON_SECONDS, Ahead
from outlast.worker.probes import open_probes
from outlast.worker.runners.exits import make_crash
from outlast.worker.runners.tags import split_by_tags
from outlast.worker.runners.watchdog import Watchdog
from outlast.worker.worker import Worker


class LocalLink:
    """The link of attempts to their worker, by direct calls."""

    def __init__(
        self, worker: Worker, note_ended: Callable[[list[Running]], None], store_id: str
    ) -> None:
        self._worker = worker
        self._in_flight = worker.in_flight
        self._checkpoints = worker.checkpoints
        self._note_ended = note_ended
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.store_id = store_id
        self.hide = worker.in_flight.hide
        self._ends: dict[int, End] = {}  # ends of this iteration of the loop
        self._reports: dict[int, Progress] = {}  # reports that the loop has not seen yet
        self._forks = forks.generation

    @property
    def worker_id(self) -> int:
        return self._worker.me.worker_id

    def report(self, token: int, progress: Progress) -> None:
        self._reports[token] = progress
        self._loop.call_soon_threadsafe(self._take_reports)

    def _take_reports(self) -> None:
        while self._reports:  # one by one: threads may add more meanwhile
            token, progress = self._reports.popitem()
            running = self._in_flight.running.get(token)
            if running is not None:
                self._checkpoints.report(running, Reported(token, progress))

    def save(
        self, job_id: int, token: int, number: int, value_json: str, *, again: bool
    ) -> Future[StepFound]:
        def add(reply: Reply) -> None:
            losses = self._in_flight.losses_with_save(token, again=again)
            self._checkpoints.add(Save(job_id, token, number, value_json, losses), reply)

        return self._ask("checkpoint", add)

    def step(self, job_id: int, token: int, name: str, value_json: str | None) -> Future[StepFound]:
        step = NamedStep(job_id, token, name, value_json)
        return self._ask("step", functools.partial(self._checkpoints.add, step))

    def _ask(self, what: str, add: Callable[[Reply], None]) -> Future[StepFound]:
        """Hand ``add`` to the store, on the loop. UsageError in a forked child."""
        if self._forks != forks.generation:
            raise UsageError(IN_CHILD)
        answer: Future[StepFound] = Future()
        reply = functools.partial(settle, answer, what)
        if threading.get_ident() == self._thread:  # waking the loop would cost a system call
            add(reply)
        else:
            self._loop.call_soon_threadsafe(add, reply)
        return answer

    def report_end(self, end: End, *, is_last: bool = False) -> None:
        """Note an end; the ends of one iteration of the loop are passed on together."""
        if not self._ends:
            self._loop.call_soon(self.flush)
        self._ends[end.token] = end

    def send_ends(self) -> bool:
        """Return True: ends are always reported, and no attempt waits here behind others."""
        return True

    def has_ended(self, token: int) -> bool:
        return token in self._ends

    def flush(self) -> None:
        self._take_reports()
        ends, self._ends = self._ends, {}
        self._note_ended([running for running, _ in self._in_flight.end_all(ends.values())])

    def send(self, frame: Began | FunctionsEnded | StackAtLimit) -> None:
        if isinstance(frame, Began):
            for token, at in frame.attempts:
                self._in_flight.note_begun(token, at)
        elif isinstance(frame, FunctionsEnded):
            for token in frame.tokens:
                self._in_flight.note_returned(token)
        elif (running := self._in_flight.running.get(frame.token)) is not None:
            running.stack = frame.stack


class LocalHooks(msgspec.Struct, frozen=True):
    """The hooks of ``outlast.testing``: the factory of the attempts that tasks see, with
    ``Attempt``'s arguments, the seconds of work to claim ahead, and an open store."""

    make_attempt: Callable[..., Attempt] = Attempt
    horizon: float = HORIZON_SECONDS
    store: Store | None = None


NO_HOOKS = LocalHooks()


class LocalPool:
    """The ``Pool`` of a worker in process, and its ``AttemptStarter`` and ``AttemptControl``.

    It ends nothing by force. A placed attempt has a slot from the loop's next iteration on.
    """

    exclusive_from = ALONE_IN_RUNNER
    has_started = is_ready = True  # the lifespan was entered earlier
    keeper = None

    def __init__(
        self,
        app: App,
        resources: Any,
        store_id: str,
        settings: WorkerSettings,
        clock: Clock,
        worker: Worker,
        hooks: LocalHooks = NO_HOOKS,
    ) -> None:
        self._owner = worker
        self._in_flight = worker.in_flight
        self._slots = settings.concurrency
        self._queues = list(settings.queues)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._will_fill = False  # whether the loop's next iteration fills the slots
        self._freed = 0
        hello = announcement(app)
        serves, self._lacks = split_by_tags(hello.tasks, settings.tags, settings.has)
        self._batches = {info.name: info.batch for info in hello.tasks if info.batch}
        self._declared = Declared.of(hello)
        self._tasks = sorted(serves)
        self.link = LocalLink(worker, self._note_ended, store_id)
        self.ahead = Ahead(worker.in_flight, clock, hooks.horizon)
        self._executor = Executor(
            app,
            self.link,
            resources,
            clock=clock,
            threads=settings.concurrency,
            make_attempt=hooks.make_attempt,
        )
        self.starter = self.control = self
        self.watchdog = Watchdog(worker, worker.in_flight, self, self, None, clock)

    async def close(self) -> None:
        self.end_all("the worker stopped")
        self._executor.close()

    # -- claims and starts ---------------------------------------------------------------------

    def tasks(self) -> list[str]:
        """Return the application's tasks, without the tasks in ``lacks``."""
        return self._tasks

    def lacks(self) -> dict[str, list[str]]:
        return self._lacks

    def declared(self) -> Declared:
        return self._declared

    def make_requests(self, unanswered: int) -> list[ClaimRequest]:
        """Return requests for the free slots, less those given to attempts that begin with the
        loop's next iteration: another worker could run a job at once that would wait here. A batch
        has one slot: more jobs are requested for it after its first."""
        gathered = self._executor.batches.count_gathered() if self._batches else {}
        batches = [
            ClaimRequest([name], self._batches[name] - count, self._queues)
            for name, count in gathered.items()
        ]
        held = self._count_held() + unanswered
        free = self._slots + self.ahead.shared.most() - held
        if free <= 0 or not self._tasks:
            return batches
        limit = min(free, self.ahead.shared.part(self._slots), CLAIMS_MAX)
        return [ClaimRequest(self._tasks, limit, self._queues), *batches]

    def make_alone_requests(self) -> list[ClaimRequest]:
        """Return requests for one suspect: here it runs only as the sole attempt."""
        kinds = (ALONE_IN_WORKER, ALONE_IN_RUNNER) if self._tasks else ()
        return [ClaimRequest(self._tasks, 1, self._queues, solo) for solo in kinds]

    def start(self, attempts: list[Running]) -> None:
        """Start attempts with the loop's next iteration, when the next exchange is under way; those
        of batches gather at once."""
        if self._batches:
            gather = [each for each in attempts if each.claimed.task in self._batches]
            attempts = [each for each in attempts if each.claimed.task not in self._batches]
            self._begin(gather)
        self.ahead.shared.line_up(attempts)
        self.note_freed(0)

    def count_ahead(self) -> int:
        return self.ahead.count_ahead() if len(self.ahead) > self._count_free() else 0

    def count_waiting(self) -> int:
        return len(self.ahead)

    def give_back(self, reason: str) -> None:
        self.ahead.give_back(reason)

    def give_back_late(self) -> None:
        if self.ahead:
            self.ahead.give_back_late(free=self._count_free())

    def begin_batches(self) -> None:
        """Begin the batches that gather: no more jobs will come for them."""
        self._executor.batches.begin_gathered()

    def _note_ended(self, ended: list[Running]) -> None:
        if self._batches:  # their many ends at once say nothing of the rate of slots
            ended = [running for running in ended if running.claimed.task not in self._batches]
        self.note_freed(len(ended))

    def note_freed(self, slots: int) -> None:
        """Refill the slots of ended attempts, with the loop's next iteration."""
        self._freed += slots
        if not self._will_fill:
            self._will_fill = True
            self._loop.call_soon(self._fill)

    def _count_free(self) -> int:
        return self._slots - self._count_held() + len(self.ahead)

    def _count_held(self) -> int:
        running = self._in_flight.running
        if not self._batches:
            return len(running)
        others = sum(each.claimed.task not in self._batches for each in running.values())
        return others + self._executor.batches.count_calls()

    def _fill(self) -> None:
        self._will_fill = False
        freed, self._freed = self._freed, 0
        if freed:
            self.ahead.shared.note_freed(freed)
        if not self.ahead:
            return
        if not self._owner.registration.may_claim():
            self.give_back("the worker takes no more")
            return
        self._begin(self.ahead.shared.take(max(0, self._count_free())))

    def _begin(self, attempts: list[Running]) -> None:
        if not attempts:
            return
        self._owner.note_begin(max([running.token for running in attempts]))
        now = self._clock.boot()
        for running in attempts:
            running.started_at = running.last_sign_at = now
        self._executor.start([running.claimed for running in attempts])

    # -- stops ---------------------------------------------------------------------------------

    def has(self, token: int) -> bool:
        runs = self._executor.runs(token) or self.link.has_ended(token)
        return runs or token in self.ahead

    def stop(self, token: int, reason: str) -> None:
        self.ahead.stop(token, reason)
        running = self._in_flight.running.get(token)
        if running is not None and running.stop_reason is None:
            running.stop_reason, running.stopped_at = reason, self._clock.boot()
            self._executor.recall([token])  # one that gathers ends with the watchdog's next check
            self._executor.stop(token, reason)

    def recall(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> bool:
        """Take back attempts that have not begun; the executor ends the ones that had a slot."""
        self.ahead.give_back(reason, which)
        running = self._in_flight.running.values()
        self._executor.recall([e.token for e in running if which is None or which(e.claimed)])
        self._executor.end_recalled()
        return True

    async def find_stack(self, token: int) -> str:
        """Return the stacks of this process, the attempt's own first."""
        if token in self.ahead:
            return WAITS
        if not self._executor.runs(token):
            return ""
        return own_first(f"{self._executor.find_stack(token)}\n\n{stacks_here()}", token)

    def end_all(self, reason: str, spare: Collection[int] = ()) -> None:
        """Hand back attempts that still run; their code continues, and its writes are refused."""
        self.ahead.give_back(reason)
        self.link.flush()
        outcome = Outcome(kind=OutcomeKind.RELEASED, message=f"in process: {reason}")
        if reason == "lease_lost":
            outcome = make_crash(CrashKind.LOST_LEASE, "the worker's lease ended")
        for token in self._in_flight.running.keys() - set(spare):
            self._in_flight.end(token, outcome)

    def _spare(self, *_: object, **__: object) -> None:
        """Do nothing: the attempts' process is the worker's own."""

    kill = kill_process = kill_locking = give_up = _spare


@contextlib.asynccontextmanager
async def open_worker(
    app: App, settings: WorkerSettings, hooks: LocalHooks = NO_HOOKS
) -> AsyncIterator[Worker]:
    """Yield a worker of this loop that is not started, with its resources opened."""
    clock, durable = app.stores.clock, app.stores.is_durable
    async with (
        open_parts(
            app.url, app.wakeup, settings, clock, given=hooks.store, durable=durable
        ) as parts,
        contextlib.AsyncExitStack() as lifespan,
    ):
        resources = await enter_lifespan(app, lifespan)
        store_id = await parts.store.store_id()
        make_pool = functools.partial(LocalPool, app, resources, store_id, settings, clock)
        yield parts.make_worker(functools.partial(make_pool, hooks=hooks))


@contextlib.asynccontextmanager
async def embedded(app: App, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker in this loop for the length of the block; leave it drained."""
    chosen = worker_settings(**settings)
    if not loop_is_running():  # for example trio's
        raise UsageError("app.worker() needs an asyncio event loop, and this is not one")
    refuse_greenlets()
    async with (
        open_probes(chosen, app.stores.clock) as vitals,
        open_worker(app, chosen) as worker,
    ):
        vitals.attach(worker)
        running = asyncio.create_task(worker.run(), name="outlast-worker")
        try:
            yield worker
        finally:
            worker.request_stop()
            await running
