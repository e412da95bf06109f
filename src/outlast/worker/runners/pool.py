"""Runs attempts in child processes: what is claimed, what waits for a slot, what runs where.

Runners are started and ended in ``worker/runners/supervisor.py``; which runner takes what
in ``worker/runners/assignment.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from outlast.clock import Clock
from outlast.codec import is_ours
from outlast.errors import ApplicationError, text_of
from outlast.events import emit, heard
from outlast.model.crash import LIMITS, CrashKind
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.protocol import (
    AttemptsEnded,
    FrameError,
    Hello,
    Pong,
    Reported,
    Restored,
    Run,
    Saved,
    SaveRequest,
    StackAtLimit,
    Stop,
    ToWorker,
    in_batches,
)
from outlast.store.values import Answer, Claimed, ClaimRequest
from outlast.worker.base import CheckpointSink
from outlast.worker.claims.ledger import Ledger, Running
from outlast.worker.claims.prefetch import (
    TURN_EVERY_SECONDS,
    TURN_SECONDS,
    WAIT_SECONDS_MAX,
    Prefetch,
    linger,
)
from outlast.worker.runners.assignment import Assignment
from outlast.worker.runners.exits import SUPERSEDED, crashed, outcome_of, suspicions_of
from outlast.worker.runners.process import Death, RunnerProcess
from outlast.worker.runners.recycling import Recycling
from outlast.worker.runners.responsiveness import Responsiveness, ResponsivenessMonitor
from outlast.worker.runners.supervisor import RunnerSupervisor

_CRASHED = OutcomeKind.CRASHED
_NO_PLACE = Outcome(
    kind=OutcomeKind.RELEASED,
    message="no runner that knows it was free",  # one of them died, or has older code
    delay=1.0,  # seconds: it must not be claimed again at once, and again
)


class RunnerPool:
    """Gives claimed attempts to runners, and the ends of what they run to the ledger.

    ``trusted``: whether the lease is. ``draining``: nothing new begins. ``on_begin`` is told
    the newest token of attempts, before they begin. The rest: see ``RunnerSupervisor``.
    """

    name = "pool"
    alone_from = ALONE_IN_WORKER

    def __init__(
        self,
        make: Callable[..., RunnerProcess],
        ledger: Ledger,
        checkpoints: CheckpointSink,
        *,
        size: int,
        concurrency: int,
        queues: list[str],
        clock: Clock,
        recycling: Recycling,
        trusted: Callable[[], bool],
        draining: Callable[[], bool],
        on_begin: Callable[[int], None],
        on_change: Callable[[], None],
        on_broken: Callable[[ApplicationError], None],
        on_group: Callable[[int, bool], None],
        tags: Collection[str] = (),
    ) -> None:
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._slots = size * concurrency
        self._assignment = Assignment(size=size, concurrency=concurrency, queues=queues)
        self._clock = clock
        self._responsiveness = ResponsivenessMonitor(ledger, clock)
        self._recycling = recycling
        self._on_begin = on_begin
        self._on_change = on_change
        self._worker_id = 0
        self._trusted = trusted
        self._draining = draining
        self._supervisor = RunnerSupervisor(
            make,
            size=size,
            tags=tags,
            clock=clock,
            recycling=recycling,
            beside=self._beside,
            draining=draining,
            on_frame=self._on_frame,
            on_death=self._end_attempts,
            on_change=on_change,
            on_broken=on_broken,
            on_group=on_group,
        )
        self.runners = self._supervisor.runners
        self._prefetch_alone = Prefetch(ledger, clock)  # of tasks that have a runner to themselves
        self._prefetch_shared = Prefetch(ledger, clock)
        self._next_turn_at = clock.boot() + TURN_EVERY_SECONDS
        self._prefetches = (self._prefetch_alone, self._prefetch_shared)

    async def run_once(self) -> float | None:
        """Keep the number of runners; look after starting runners and those due for recycling."""
        return await self._supervisor.look()

    def _beside(self) -> int:
        """The runner of a cohort of suspects comes on top of the others and the spare."""
        return int(self._assignment.of_suspects(self.runners) is not None)

    # -- what the exchange asks ----------------------------------------------------------------

    def registered(self, worker_id: int) -> None:
        """Note the id that attempts show."""
        self._worker_id = worker_id

    def tasks(self) -> list[str]:
        """Return the names that the runners at work have announced, less those in ``lacks``."""
        return sorted({name for runner in self._active() for name in runner.tasks})

    def lacks(self) -> dict[str, list[str]]:
        """Return what they have announced and this worker's tags do not allow."""
        active = self._active()
        return {name: runner.lacks[name] for runner in active for name in sorted(runner.lacks)}

    def rooms(self, unanswered: int) -> list[ClaimRequest]:
        """Return what fits now and may wait for it, and a request for suspects while a spare runner
        is ready."""
        alone, shared = (prefetch.room() for prefetch in self._prefetches)
        if not alone and self._clock.boot() >= self._next_turn_at:
            alone = self._room_for_turn()
        part = self._prefetch_shared.part(self._slots)
        return self._assignment.rooms(self.runners, unanswered, alone, shared, part)

    def _room_for_turn(self) -> int:
        """Return the request for one plain function where async tasks fill all runners: a steady
        stream of them would leave none idle."""
        if not (self._assignment.crowds_out(self.runners) and self._empties_soon()):
            return 0
        self._next_turn_at = self._clock.boot() + TURN_EVERY_SECONDS
        return self._prefetch_alone.room_for_turn()

    def _empties_soon(self) -> bool:
        """Whether no attempt in the runner to be emptied has run for longer than a turn: else the
        plain function would be given back, and claimed, again and again."""
        since, running = self._clock.boot() - TURN_SECONDS, self._ledger.running
        held = (running.get(token) for token in self._assignment.emptiest(self.runners).tokens)
        return all(one is None or one.started_at > since for one in held)

    def room_alone(self, solo: int) -> ClaimRequest | None:
        """Return the request for one job that must have this worker to itself."""
        return self._assignment.room_alone(self.runners)

    def place(self, attempts: list[Running]) -> None:
        """Send attempts to runners; what fits nowhere yet waits, or is released."""
        for running in self._sent(attempts):
            self._keep_ahead(running)
        if any(running.claimed.solo == ALONE_IN_RUNNER for running in attempts):
            self._on_change()  # they have taken the spare: another one is wanted
        self._supervisor.retire_worn()

    def _sent(self, attempts: list[Running]) -> list[Running]:
        """Send attempts to runners; return those that fit nowhere."""
        plan = self._assignment.place(self.runners, attempts)
        for runner, its in plan.items():
            self._start(runner, its)
        if sum(map(len, plan.values())) == len(attempts):
            return []
        placed = {running.token for its in plan.values() for running in its}
        return [running for running in attempts if running.token not in placed]

    def _keep_ahead(self, running: Running) -> None:
        alone = self._assignment.has_own_runner(self.runners, running.claimed.task)
        prefetch = self._prefetch_alone if alone else self._prefetch_shared
        if alone is None or running.claimed.solo or not prefetch.put(running):
            self._ledger.end(running.token, _NO_PLACE)
        self._assignment.empty_one(self.runners, wanted=bool(self._prefetch_alone))

    def linger(self) -> float:
        """Return for how many seconds the next exchange may wait: no slot runs dry meanwhile."""
        return linger(*self._prefetches)

    def give_back(self, reason: str) -> None:
        """Give back what was claimed and has not begun."""
        for prefetch in self._prefetches:
            prefetch.give_back(reason)

    def give_back_late(self) -> None:
        """Give back what has waited too long for a slot; what has one by now starts first."""
        self._refill()
        emptied = self._assignment.empty_one(self.runners, wanted=bool(self._prefetch_alone))
        self._prefetch_alone.give_back_late(TURN_SECONDS if emptied else WAIT_SECONDS_MAX)
        self._prefetch_shared.give_back_late()

    def waiting(self) -> int:
        """Return how many attempts were claimed and have not begun."""
        return sum(map(len, self._prefetches))

    def _refill(self) -> None:
        """Give free slots to those that wait, while new attempts may begin at all."""
        if not any(self._prefetches):
            return
        if self._supervisor.closing or self._draining() or not self._trusted():
            self.give_back("the worker takes no more")
            return
        idle, _ = self._assignment.free(self.runners)
        left = self._sent(self._prefetch_alone.take(idle))
        left += self._sent(
            self._prefetch_shared.take(self._assignment.places_to_share(self.runners))
        )
        for running in left:
            self._ledger.end(running.token, _NO_PLACE)
        self._assignment.empty_one(self.runners, wanted=bool(self._prefetch_alone))
        self._supervisor.retire_worn()

    def _start(self, runner: RunnerProcess, attempts: list[Running]) -> None:
        self._on_begin(max(running.token for running in attempts))  # before any of them can
        runner.taken += len(attempts)
        now = self._clock.boot()
        for running in attempts:
            running.started_at = running.last_sign_at = now
            running.pid, running.release, running.python = runner.pid, runner.release, runner.python
        for batch in in_batches([running.claimed for running in attempts]):
            self._send(runner, batch)

    def _send(self, runner: RunnerProcess, batch: list[Claimed]) -> None:
        try:
            runner.send(Run(self._worker_id, batch))
        except FrameError as error:  # a row that some other program has written
            for claimed in batch:
                runner.tokens.discard(claimed.token)
                self._ledger.end(claimed.token, crashed(CrashKind.ERROR, text_of(error)))
            runner.exclusive = runner.exclusive and bool(runner.tokens)

    def stop(self, token: int, reason: str) -> None:
        """Ask an attempt to stop; the first reason stays. At a limit it shows its stack first."""
        for prefetch in self._prefetches:
            if token in prefetch:
                prefetch.stop(token, reason)
        running, runner = self._ledger.running.get(token), self.runner_of(token)
        if running is None or runner is None or running.stop_reason is not None:
            return
        running.stop_reason, running.stopped_at = reason, self._clock.boot()
        if reason in LIMITS:
            runner.ask_stacks()
        runner.send(Stop(token, reason))

    def kill(self, token: int) -> None:
        """Kill the runner of an attempt, with the stacks of its threads."""
        runner, running = self.runner_of(token), self._ledger.running.get(token)
        if runner is not None and running is not None:
            reason = running.stop_reason or "stop"
            # its neighbours' lease stands, unless the worker trusts none (see deaths.outcome_of)
            self._supervisor.kill(runner, SUPERSEDED if reason == "lease_lost" else reason)

    def kill_process(self, pid: int, reason: str) -> None:
        """Kill the runner with this pid, if it is still there."""
        for runner in self.runners:
            if runner.pid == pid:
                runner.kill(reason)

    def listen(self) -> None:
        """Look whether the runners' event loops turn."""
        self._responsiveness.look(self.runners)

    def responsiveness_of(self, token: int) -> Responsiveness | None:
        """Return the responsiveness of the attempt's runner."""
        runner = self.runner_of(token)
        return None if runner is None else self._responsiveness.of(runner)

    def kill_all(self, reason: str, spare: Collection[int] = ()) -> None:
        """Kill every runner that has work, unless it is only that of these attempts."""
        self.give_back(reason)
        for runner in self.runners:
            if runner.tokens.difference(spare):
                runner.kill(reason)

    async def close(self) -> None:
        """Let idle runners leave; kill those that do not, and wait until all are gone."""
        self.give_back("the worker stopped")
        await self._supervisor.close()

    def give_up(self, tokens: Collection[int]) -> None:
        """Wait no longer for killed runners with these attempts."""
        self._supervisor.give_up(tokens)

    def runs(self, token: int) -> bool:
        """Whether some runner has this attempt, or it waits for one."""
        return self.runner_of(token) is not None or any(token in each for each in self._prefetches)

    def runner_of(self, token: int) -> RunnerProcess | None:
        """Return the runner that this attempt runs in."""
        return next((runner for runner in self.runners if token in runner.tokens), None)

    def _active(self) -> list[RunnerProcess]:
        return self._assignment.active(self.runners)

    # -- what runners say ----------------------------------------------------------------------

    def _on_frame(self, runner: RunnerProcess, frame: ToWorker) -> None:
        if isinstance(frame, AttemptsEnded):
            self._on_ended(runner, frame)
        elif isinstance(frame, SaveRequest):
            self._on_saving(runner, frame)
        elif isinstance(frame, Reported):
            running = self._ledger.running.get(frame.token)
            if running is not None and frame.token in runner.tokens:
                self._checkpoints.report(running, frame)
        elif isinstance(frame, Pong):
            self._responsiveness.answered(runner, frame.seq)
        elif isinstance(frame, StackAtLimit):
            if frame.token in runner.tokens and frame.token in self._ledger.running:
                self._ledger.running[frame.token].stack = frame.stack
        elif isinstance(frame, Restored):
            self._tell_restored(runner, frame)
        elif isinstance(frame, Hello):
            self._supervisor.greeted(runner, frame)
        else:
            self._supervisor.could_not_start(runner, frame)

    def _on_ended(self, runner: RunnerProcess, frame: AttemptsEnded) -> None:
        prefetch = self._prefetch_alone if runner.exclusive else self._prefetch_shared
        ends = [end for end in frame.ends if end.token in runner.tokens]
        completed = OutcomeKind.COMPLETED
        others = [end for end in ends if end.outcome.kind is not completed]
        if any(end.outcome.crash is None for end in others if end.outcome.kind is _CRASHED):
            raise FrameError("a frame with a crash that has no report")  # none is taken in
        results = (end.outcome.result for end in ends)
        if not all(is_ours(result) for result in results if result is not None):
            raise FrameError("a frame with a result that is no JSON")
        ended = [end.token for end in ends]
        runner.tokens.difference_update(ended)
        for end in others:
            self._show(end.token, runner)
        runner.forget(ended)
        self._ledger.end_all(ends)
        runner.exclusive = runner.exclusive and bool(runner.tokens)
        prefetch.freed(len(ends))
        self._recycling.let_go(runner)
        self._refill()

    def _tell_restored(self, runner: RunnerProcess, frame: Restored) -> None:
        running = self._ledger.running.get(frame.token)
        if running is None or frame.token not in runner.tokens:
            return
        if heard("runner_restored", 1):
            emit(
                "runner_restored",
                job_id=running.claimed.job_id,
                token=frame.token,
                task=running.claimed.task,
                others=frame.others,
                pid=runner.pid,
                changes=frame.changes,
            )

    def _show(self, token: int, runner: RunnerProcess) -> None:
        """Give an attempt what it has written as evidence, and the stacks if it was stopped at a
        limit and obeyed."""
        running = self._ledger.running.get(token)
        if running is None:
            return
        running.output = runner.lines_of(token, running.started_at)
        if running.stop_reason in LIMITS:
            running.stack = f"{running.stack}\n\n{runner.stacks()}"

    def _on_saving(self, runner: RunnerProcess, frame: SaveRequest) -> None:
        running = self._ledger.running.get(frame.token)
        if running is not None and frame.token in runner.tokens:
            if not is_ours(frame.value):  # each later attempt would fail at reading it
                raise FrameError("a frame with a checkpoint that is no JSON")
            self._checkpoints.save(runner, running, frame)
        else:  # of a task or thread that has outlived its attempt: it must not wait for ever
            runner.send(Saved(frame.seq, str(Answer.REFUSED)))

    # -- what becomes of a dead runner's attempts ----------------------------------------------

    def _end_attempts(self, runner: RunnerProcess, death: Death) -> None:
        ledger = self._ledger.running
        attempts = [ledger[token] for token in sorted(runner.tokens & ledger.keys())]
        jobs = [running.claimed.job_id for running in attempts]
        suspected = suspicions_of(attempts, death)
        for running in attempts:
            output = runner.lines_of(running.token, running.started_at)
            outcome = outcome_of(
                running,
                msgspec.structs.replace(death, output=output),
                [job_id for job_id in jobs if job_id != running.claimed.job_id],
                suspicion=suspected.get(running.token),
                killed_for=runner.kill_reason,
                trusted=self._trusted(),
                draining=self._draining(),
            )
            self._ledger.end(running.token, outcome)
