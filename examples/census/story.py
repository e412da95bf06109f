"""The story that the demo tells: two workers, one job, a death at about half, and an end.

    both workers are ready → the job runs on one of them → at half that worker is killed with
    all below it → the other notices → the job goes on from its checkpoint → it completes

Nothing is faked: every sentence comes from a look at the store. What does not come as told ends
the story with NotSoError, which says what happened instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from examples.census.app import analyze
from examples.census.evolution import Packed
from examples.census.show import COLOURS, Show
from examples.census.watch import Observation, Watch, done_of
from examples.census.workers import DemoWorker, DemoWorkers
from outlast.base.clock import SYSTEM
from outlast.base.text import count_of, line, span
from outlast.cli.errors import NotSoError
from outlast.client.job import Job
from outlast.model.job import State

LOOK_SECONDS, CLOSE_LOOK_SECONDS = 0.1, 0.02
"""Between two looks at the store; from the kill until the job runs again."""
READY_SECONDS = 60.0
NOTICE_SECONDS = 90.0
"""The lease, should there be no lock file, and then some."""
REPORT_SECONDS = 0.8
"""After this time a job's report is in the store: reports are written twice a second."""
HALF = 0.5


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be shown.

    Attributes:
        repo: absolute path of the repository; ``name`` is what people call it.
        wanted, goal: commits asked for; those that there are.
        total: commits of the whole history.
        pace: seconds that a commit takes at least.
        every: commits between checkpoints.
        queue: where only this demo's job waits.
    """

    repo: str
    name: str
    wanted: int
    goal: int
    total: int
    pace: float
    every: int
    queue: str


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. ``killed_at``, ``resumed_from``: commits. ``noticed_after``: seconds."""

    look: Observation
    killed_at: int
    resumed_from: int
    noticed_after: float
    result: Packed


class Story:
    """Tells the story once. Leaves the workers to the caller, who opened the workers."""

    def __init__(self, plan: Plan, workers: DemoWorkers, watch: Watch, show: Show) -> None:
        self._plan = plan
        self._workers = workers
        self._watch = watch
        self._show = show
        self.job: Job[Packed] | None = None

    async def begin(self) -> None:
        """Tell it up to where the job runs. Raises NotSoError, and the store's errors."""
        await self._start_workers()
        await self._enqueue()

    async def go_on(self) -> Ending:
        """Tell the rest. Raises as ``begin`` does."""
        await self._run_to_half()
        member, killed_token = await self._kill_the_holder()
        noticed_after = await self._wait_until_noticed(member, killed_token)
        await self._wait_until_resumed(member, killed_token)
        look = await self._wait_for_the_end()
        return _ending(look, noticed_after)

    async def give_up(self) -> None:
        """Take an unfinished job back, so that it does not wait in the store forever.

        A live worker hands it back when it is stopped. Where a dead one still has it, this
        returns once the other worker has noticed.
        """
        if self.job is not None:
            await self.job.cancel()
            while (await self._watch.look()).holder in self._killed():
                await SYSTEM.sleep(CLOSE_LOOK_SECONDS)

    async def _start_workers(self) -> None:
        self._watch.pids = {name: self._workers.start(name).pid for name in COLOURS}
        self._say("starting two workers, each a process with a runner and a spare below it")

        def ready(look: Observation) -> bool:
            return all(name in look.workers and look.workers[name].tasks for name in COLOURS)

        look = await self._until(ready, "both workers to be ready", limit=READY_SECONDS)
        names = " and ".join(f"{name} (pid {self._watch.pids[name]})" for name in COLOURS)
        self._say(f"{names} are ready")
        if not all(row.lock_path for row in look.workers.values()):
            self._say("there can be no lock file here: a death is noticed when its lease is over")

    async def _enqueue(self) -> None:
        plan = self._plan
        self.job = await analyze.using(queue=plan.queue).enqueue(
            plan.repo, plan.wanted, pace=plan.pace, every=plan.every
        )
        self._watch.job_id = self.job.id
        self._say(f"job {self.job.id} enqueued: count {plan.name}'s lines at {plan.goal} commits")
        look = await self._until(lambda look: look.holder is not None, "a worker to take the job")
        self._say(f"{look.holder} took it: {_attempt(look)}")

    async def _run_to_half(self) -> None:
        half, reported_at = self._plan.goal * HALF, SYSTEM.boot() + REPORT_SECONDS
        slowed = await self._until(
            lambda look: "slowed" in look.stage or (look.done >= half and look.at > reported_at)
        )
        if "slowed" in slowed.stage:
            self._say(f"quick work: {slowed.stage}, so that there is something to kill")

        await self._until(lambda look: look.done >= half and look.saved > 0)

    async def _kill_the_holder(self) -> tuple[DemoWorker, int]:
        look = await self._until(lambda look: look.holder in COLOURS, "the job to run")
        assert look.holder is not None
        assert look.job is not None
        assert look.job.token is not None
        member = self._workers.by_name[look.holder]
        killed = member.kill_tree()
        self._say(f"kill -9 of {member.name} and all below it: {', '.join(killed)}", "bold red")
        await self._tell_what_is_saved()
        return member, look.job.token

    async def _tell_what_is_saved(self) -> None:
        """Look again: it may have saved between the last look and its death."""
        look = await self._watch.look()
        self._say(f"{look.saved} of {look.goal} commits are saved; what it did since then is lost")

    async def _wait_until_noticed(self, member: DemoWorker, token: int) -> float:
        def noticed(look: Observation) -> bool:
            return any(each.token == token for each in look.attempts)

        look = await self._until(
            noticed, "the death to be noticed", limit=NOTICE_SECONDS, pause=CLOSE_LOOK_SECONDS
        )
        after = look.at - (member.killed_at or look.at)
        closed = next(each for each in look.attempts if each.token == token)
        self._say(
            f"noticed after {span(after)}: attempt {closed.number} closed as {closed.outcome}",
            "bold",
        )
        return after

    async def _wait_until_resumed(self, member: DemoWorker, token: int) -> None:
        def resumed(look: Observation) -> bool:
            return look.job is not None and (look.job.token or 0) > token

        look = await self._until(
            resumed, "the second attempt", limit=NOTICE_SECONDS, pause=CLOSE_LOOK_SECONDS
        )
        begin = look.starts[look.job.token] if look.job and look.job.token else 0
        after = span(look.at - (member.killed_at or look.at))
        who = look.holder or "a worker"
        self._say(
            f"{who} goes on from commit {begin}, {after} after the kill: {_attempt(look)}", "bold"
        )

    async def _wait_for_the_end(self) -> Observation:
        look = await self._until(lambda look: look.state is State.COMPLETED)
        self._say(f"job {look.job.id if look.job else ''} completed", "bold green")
        return look

    async def _until(
        self,
        reached: Callable[[Observation], bool],
        what: str = "",
        *,
        limit: float | None = None,
        pause: float = LOOK_SECONDS,
    ) -> Observation:
        """Look, and show, until something is so. What can never be so any more is NotSoError."""
        begun = SYSTEM.boot()
        while True:
            look = await self._watch.look()
            self._show.update(look, self._killed())
            if reached(look):
                return look
            self._refuse_the_impossible(look)
            if limit is not None and look.at - begun > limit:
                raise NotSoError(f"waited {span(limit)} for {what}, which did not happen")
            await asyncio.sleep(pause)

    def _refuse_the_impossible(self, look: Observation) -> None:
        if (lost := self._workers.find_lost()) is not None:
            how = lost.process.returncode
            raise NotSoError(
                f"worker {lost.name} ended by itself ({how}): {line(lost.read_log_tail())}"
            )
        if look.state is State.COMPLETED:
            raise NotSoError(
                "the job was over before its worker could be killed: more --commits make it longer"
            )
        if look.state in {State.DEAD, State.CANCELLED}:
            why = look.attempts[-1].message if look.attempts else ""
            raise NotSoError(f"the job ended as {look.state}: {line(why) or 'no reason given'}")

    def _killed(self) -> dict[str, float]:
        members = self._workers.by_name.values()
        return {m.name: m.killed_at for m in members if m.killed_at is not None}

    def _say(self, text: str, style: str = "") -> None:
        self._show.say(text, style)


def _attempt(look: Observation) -> str:
    return f"attempt {look.job.attempt_count}, token {look.job.token}" if look.job else ""


def _ending(look: Observation, noticed_after: float) -> Ending:
    """Check that it ended as promised: two attempts, the first lost with its worker, the second
    resumed from a checkpoint."""
    outcomes = [each["outcome"] for each in look.timeline()]
    if outcomes != ["lost_worker", "completed"]:
        told = ", ".join(outcomes)
        raise NotSoError(f"the job completed in {count_of(len(outcomes), 'attempt')}: {told}")
    assert look.job is not None
    resumed_from = look.starts.get(look.job.token or 0, 0)
    if resumed_from == 0:
        raise NotSoError("the second attempt started over: it found no checkpoint")
    last = look.attempts[0].progress
    return Ending(
        look=look,
        killed_at=max(done_of(last.fraction if last else None, look.goal), resumed_from),
        resumed_from=resumed_from,
        noticed_after=noticed_after,
        result=msgspec.json.decode(look.job.result or "{}"),
    )
