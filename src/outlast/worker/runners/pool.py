"""Runs attempts in child processes: assembles the parts of a pool, and handles runners' frames.

``RunnerSupervisor`` keeps the runners, ``RunnerStarter`` gives them attempts, ``RunnersControl``
ends these, and ``Watchdog`` holds them to their limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from outlast.base.clock import Clock
from outlast.events import count_wanted, emit
from outlast.model.crash import LIMITS, CrashKind
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.payload.codec import is_ours
from outlast.runner.protocol import (
    AttemptsEnded,
    Began,
    End,
    FrameError,
    FunctionsEnded,
    Hello,
    Pong,
    Recalled,
    Reported,
    Restored,
    Saved,
    SaveRequest,
    StackAtLimit,
    StackShown,
    StepRequest,
    ToWorker,
)
from outlast.store.values import Answer, NamedStep, Save
from outlast.worker.base import Owner, Running
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.dead_jobs import tell_end_of_own
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.prefetch import HORIZON_SECONDS, Ahead
from outlast.worker.runners.assignment import Assignment
from outlast.worker.runners.control import RunnersControl
from outlast.worker.runners.exits import LOCKS_FILE, outcome_of, suspects_of
from outlast.worker.runners.process import Death, RunnerOwner, RunnerProcess
from outlast.worker.runners.recycling import MAX_RSS, SPOILED, Recycling
from outlast.worker.runners.reload import Reloader
from outlast.worker.runners.responsiveness import ResponsivenessMonitor
from outlast.worker.runners.starter import RunnerStarter
from outlast.worker.runners.supervisor import RunnerSupervisor
from outlast.worker.runners.tags import NOTHING
from outlast.worker.runners.tether import Tether
from outlast.worker.runners.watchdog import Watchdog

# used for every job: a lookup in the class takes 0.3 us on Python 3.11
_COMPLETED, _CRASHED = OutcomeKind.COMPLETED, OutcomeKind.CRASHED
_NOT_BEGUN = Outcome(
    kind=OutcomeKind.RELEASED, message="its runner ended before it began", began=False
)
SIGNAL_SECONDS = 0.2  # for a signal to the whole group to reach the worker, too


class RunnerPool:
    """The ``Pool`` of a worker: ``size`` runners, each of which runs up to ``concurrency``
    attempts. ``make`` returns a runner that is not started yet."""

    def __init__(
        self,
        owner: Owner,
        make: Callable[[RunnerOwner], RunnerProcess],
        in_flight: InFlight,
        checkpoints: CheckpointWriter,
        tether: Tether,
        *,
        size: int,
        concurrency: int,
        queues: list[str],
        clock: Clock,
        recycling: Recycling,
        tags: Collection[str] = (),
        has: Mapping[str, int] = NOTHING,
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._in_flight = in_flight
        self._checkpoints = checkpoints
        self._recycling = recycling
        self._ahead = ahead = Ahead(in_flight, clock, 0.0 if recycling.alone else HORIZON_SECONDS)
        self._assignment = Assignment(
            ahead,
            size=size,
            concurrency=concurrency,
            queues=queues,
            stocks=not recycling.has_limits,
            clock=clock,
        )
        self._supervisor = RunnerSupervisor(
            owner,
            lambda: make(RunnerOwner(self.take_frames, self.take_death, owner.fail)),
            self._assignment,
            recycling,
            tether,
            in_flight.hide,
            tags=tags,
            has=has,
            clock=clock,
        )
        self.runners = self._supervisor.runners
        self._monitor = ResponsivenessMonitor(in_flight, checkpoints.tell, clock)
        self.starter = RunnerStarter(
            owner, in_flight, self._supervisor, self._assignment, ahead, clock
        )
        self.control = RunnersControl(in_flight, self._supervisor, ahead, self._monitor, clock)
        self.keeper = self._supervisor
        self.watchdog = Watchdog(owner, in_flight, self.starter, self.control, self.control, clock)

    @property
    def has_started(self) -> bool:
        return self._supervisor.ever_ready

    @property
    def is_ready(self) -> bool:
        return any(each.takes_attempts for each in list(self.runners))

    def make_reloader(self) -> Reloader:
        """Return the duty that replaces the runners when the code has changed."""
        return Reloader(self._supervisor, self.control, self._clock)

    async def close(self) -> None:
        self.starter.give_back("the worker stopped")
        await self._supervisor.close()

    # -- frames from runners --------------------------------------------------------------------

    def take_frames(self, runner: RunnerProcess, frames: Iterable[ToWorker]) -> None:
        """Obey frames, and give freed slots to waiting attempts. FrameError for a forged frame."""
        for frame in frames:
            self._take_frame(runner, frame)
        self.starter.refill()

    def _take_frame(self, runner: RunnerProcess, frame: ToWorker) -> None:
        if isinstance(frame, AttemptsEnded):
            self._take_ends(runner, frame)
        elif isinstance(frame, (SaveRequest, StepRequest)):
            self._take_save(runner, frame)
        elif isinstance(frame, Reported):
            if (running := self._find(runner, frame.token)) is not None:
                self._checkpoints.report(running, frame)
        elif isinstance(frame, Began):
            for token, at in frame.attempts:
                if token in runner.tokens:
                    self._in_flight.note_begun(token, at)
            if runner.gathering and (
                late := runner.note_call([each for each, _ in frame.attempts])
            ):
                runner.recall(late)  # they were on their way when the call began
        elif isinstance(frame, FunctionsEnded):
            for token in runner.tokens.intersection(frame.tokens):
                self._in_flight.note_returned(token)
        elif isinstance(frame, Recalled):
            runner.note_recalled(frame.tokens)
        elif isinstance(frame, Pong):
            self._monitor.take_answer(runner, frame)
        elif isinstance(frame, (StackAtLimit, StackShown)):
            if (running := self._find(runner, frame.token)) is not None:
                setattr(running, "shown" if isinstance(frame, StackShown) else "stack", frame.stack)
        elif isinstance(frame, Restored):
            self._tell_restored(runner, frame)
            if frame.spoiled and runner.retiring is None:
                self._recycling.retire_one(runner, SPOILED)
                self._owner.note_pool_change()
        elif isinstance(frame, Hello):
            self._supervisor.take_hello(runner, frame)
        else:
            self._supervisor.note_failed(runner, frame)

    def _take_ends(self, runner: RunnerProcess, frame: AttemptsEnded) -> None:
        held = runner.tokens
        ends = [end for end in frame.ends if end.token in held]
        others = [end for end in ends if end.outcome.kind is not _COMPLETED]
        if any(end.outcome.crash is None for end in others if end.outcome.kind is _CRASHED):
            raise FrameError("a frame with a crash that has no report")  # no end is accepted
        results = {end.outcome.result for end in ends}  # results of small jobs are often equal
        if not all(is_ours(result) for result in results if result is not None):
            raise FrameError("a frame with a result that is not JSON")
        signalled = [end for end in others if _was_signalled(end)]
        runner.note_ended([end.token for end in signalled], self._clock.boot())
        self._end(runner, [end for end in ends if end not in signalled] if signalled else ends)
        if signalled and self._owner.registration.draining:
            self._end_signalled(runner, signalled)
        elif signalled:
            loop = asyncio.get_running_loop()
            loop.call_later(SIGNAL_SECONDS, self._end_signalled, runner, signalled)

    def _end_signalled(self, runner: RunnerProcess, ends: list[End]) -> None:
        left = [end for end in ends if end.token in runner.tokens]
        others = runner.tokens - {end.token for end in left}
        if left:
            self._end(runner, [self._excuse(end, others) for end in left])
            self.starter.refill()

    def _end(self, runner: RunnerProcess, ends: list[End]) -> None:
        ahead = self._ahead.alone if runner.exclusive else self._ahead.shared
        is_batch = runner.batch is not None
        ended, began = [], 0
        for end in ends:
            ended.append(end.token)
            began += end.outcome.began
            if end.outcome.kind is not _COMPLETED:
                self._add_evidence(end.token, runner)
        runner.let_go(ended)
        runner.forget(ended)
        left = self._in_flight.end_all(ends)
        if self._recycling.note_left(runner, [running.claimed.job_id for running, _ in left]):
            self._supervisor.retire_worn()  # before another attempt begins there
        if not is_batch:  # the many ends of a batch say nothing of the rate of slots
            ahead.note_freed(began)
        self._recycling.dismiss(runner)

    def _excuse(self, end: End, others: AbstractSet[int]) -> End:
        """Return the end of an attempt that failed after its runner was signalled from outside:
        during a drain it costs nothing, else it is a loss. ``others`` are in its runner."""
        crash = end.outcome.crash
        assert crash is not None
        if self._owner.registration.draining:
            outcome = Outcome(kind=OutcomeKind.RELEASED, message=crash.message)
            return msgspec.structs.replace(end, outcome=outcome)
        jobs = (self._in_flight.job_of(token) for token in others)
        crash = msgspec.structs.replace(crash, neighbours=[job[0] for job in jobs if job])
        outcome = msgspec.structs.replace(end.outcome, crash=crash)
        return msgspec.structs.replace(end, outcome=outcome)

    def _tell_restored(self, runner: RunnerProcess, frame: Restored) -> None:
        running = self._find(runner, frame.token)
        if running is not None and count_wanted("runner_restored", 1):
            emit(
                "runner_restored",
                job_id=running.claimed.job_id,
                token=frame.token,
                task=running.claimed.task,
                others=frame.others,
                pid=runner.pid,
                changes=frame.changes,
            )

    def _add_evidence(self, token: int, runner: RunnerProcess) -> None:
        running = self._in_flight.running.get(token)
        if running is None:
            return
        running.output = runner.lines_of(token, running.started_at)
        if running.stop_reason in LIMITS:
            running.stack = f"{running.stack}\n\n{runner.stacks()}"

    def _take_save(self, runner: RunnerProcess, frame: SaveRequest | StepRequest) -> None:
        running = self._find(runner, frame.token)
        if running is None:
            # from a task or thread that outlived its attempt: it must not wait forever
            runner.send(Saved(frame.seq, str(Answer.REFUSED)))
            return
        if frame.value is not None and not is_ours(frame.value):  # later attempts could not read it
            raise FrameError("a frame with a step or checkpoint that is not JSON")
        job_id = running.claimed.job_id
        one: Save | NamedStep
        if isinstance(frame, StepRequest):
            one = NamedStep(job_id, frame.token, frame.name, frame.value)
        else:
            losses = self._in_flight.losses_with_save(frame.token, again=frame.again)
            one = Save(job_id, frame.token, frame.number, frame.value, losses)
        self._checkpoints.add(one, lambda *found: runner.send(Saved(frame.seq, *found)))

    def _find(self, runner: RunnerProcess, token: int) -> Running | None:
        """Return this attempt if it runs in this runner: a runner may speak of no other."""
        return self._in_flight.running.get(token) if token in runner.tokens else None

    # -- the attempts of a dead runner ---------------------------------------------------------

    def take_death(self, runner: RunnerProcess, death: Death) -> None:
        """End the attempts of a runner that is gone, and let it be replaced."""
        death = self._supervisor.note_death(runner, death)
        self._end_attempts(runner, death)
        self._owner.note_pool_change()

    def _end_attempts(self, runner: RunnerProcess, death: Death) -> None:
        in_flight = self._in_flight.running
        # after an unreadable frame no end is known: any attempt may have begun
        unbegun = {*runner.find_stock(self._assignment.concurrency), *runner.gathering}
        waited = set() if death.complaint else unbegun
        for token in waited & in_flight.keys():
            self._in_flight.end(token, _NOT_BEGUN)
        attempts = [in_flight[token] for token in sorted(runner.tokens & in_flight.keys() - waited)]
        jobs = [running.claimed.job_id for running in attempts]
        if runner.kill_reason in (MAX_RSS, LOCKS_FILE):
            jobs += runner.left_by.difference(jobs)
        suspected = suspects_of(attempts, death)
        for running in attempts:
            output = runner.lines_of(running.token, running.started_at)
            outcome = outcome_of(
                running,
                msgspec.structs.replace(death, output=output),
                [job_id for job_id in jobs if job_id != running.claimed.job_id],
                incident=suspected.get(running.token),
                killed_for=runner.kill_reason,
                trusted=self._owner.registration.is_trusted(),
                draining=self._owner.registration.draining,
            )
            transition = self._in_flight.end(running.token, outcome)
            if transition is not None:
                tell_end_of_own(running, transition, self._clock.boot())


def _was_signalled(end: End) -> bool:
    """Whether a runner reports that a signal from outside may have made the attempt fail."""
    crash = end.outcome.crash
    return crash is not None and crash.kind is CrashKind.BYSTANDER
