"""A pool of runners without processes, for the tests of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from outlast.model.lifecycle import Transition
from outlast.runner import protocol
from outlast.runner.protocol import Began, Hello, Run, TaskInfo
from outlast.store.values import Claimed, ClaimRequest, NamedStep
from outlast.worker.claims.prefetch import RATE_SECONDS
from outlast.worker.runners.pool import RunnerPool
from outlast.worker.runners.process import RunnerProcess, RunnerState
from outlast.worker.runners.recycling import Recycling
from outlast.worker.runners.supervisor import SPARE_AFTER_SECONDS
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner, claimed, death, new_in_flight

OWN, SHARED = "own", "shared"
SIZE, CONCURRENCY = 2, 3


class FakeRunner(RunnerState):
    """A fake RunnerProcess: records what it is sent, dies when the test says so."""

    pids = 1 << 23  # above any real one: what is read of them in /proc is nothing

    def __init__(self, owner, clock: ManualClock) -> None:
        super().__init__(started_at=0.0)
        FakeRunner.pids += 1
        self.pid = FakeRunner.pids
        self.gone = False
        self.printed: dict[int, list[str]] = {}
        self.sent: list[Any] = []
        self.kills: list[str | None] = []
        self.quits = 0
        self.asked = 0
        self.dump = ""  # what it shows of its stacks
        self.dumps = 0
        self.waits = False  # whether what it is sent waits in it
        self._owner, self._clock = owner, clock

    async def start(self) -> None:
        """There is nothing to start."""

    def send(self, frame) -> None:
        protocol.pack(frame)
        self.sent.append(frame)
        if isinstance(frame, Run) and not self.waits:
            self.begins(*(each.token for each in frame.attempts))

    recall = RunnerProcess.recall

    def kill(self, reason: str | None = None) -> None:
        if not self.gone:
            self.note_kill_reason(reason)
        self.kills.append(reason)

    def ask_stacks(self) -> None:
        self.dumps += 1

    def lines_of(self, token: int, since: float) -> list[str]:
        return self.printed.get(token, [])

    def forget(self, tokens) -> None:
        for token in tokens:
            self.printed.pop(token, None)

    def stacks(self) -> str:
        return self.dump

    async def kill_with_stacks(self) -> None:
        self.kill()

    async def ask_for_stacks(self) -> str:
        self.asked += 1
        return "File x, line 1"

    def quit(self) -> None:
        self.quits += 1

    # -- what tests do to it

    def begin_of(self, *tokens: int) -> Began:
        """Return what it reports if these begin now."""
        return Began([(token, self._clock.boot()) for token in tokens])

    def begins(self, *tokens: int) -> None:
        self.says(self.begin_of(*tokens))

    def says(self, frame) -> None:
        self._owner.take_frames(self, [frame])

    def greets(self, **tasks: bool) -> None:
        self.says(Hello([TaskInfo(name, own) for name, own in tasks.items()], None, "3"))

    def dies(self, **how: Any) -> None:
        self._owner.take_death(self, death(pid=self.pid, **how))

    def runs(self) -> list[int]:
        return [
            each.token for frame in self.sent if isinstance(frame, Run) for each in frame.attempts
        ]


class SentCheckpoints:
    def __init__(self) -> None:
        self.saves: list[int] = []
        self.steps: list[NamedStep] = []
        self.reports: list[int] = []

    def add(self, one, reply) -> None:
        if isinstance(one, NamedStep):
            self.steps.append(one)
        else:
            self.saves.append(one.token)
        reply("accepted", None)

    def report(self, running, frame) -> None:
        self.tell(running)

    def tell(self, running) -> None:
        self.reports.append(running.token)


class FakeTether:
    """Notes which groups it is to hold (True) and to let go of (False)."""

    def __init__(self) -> None:
        self.groups: list[tuple[int, bool]] = []

    def add(self, pgid: int) -> None:
        self.groups.append((pgid, True))

    def drop(self, pgid: int) -> None:
        self.groups.append((pgid, False))


class Bench:
    """A pool with fake runners, its in_flight, and its messages to the worker."""

    def __init__(
        self,
        size: int = SIZE,
        concurrency: int = CONCURRENCY,
        tags: Sequence[str] = (),
        redact: Sequence[str] = (),
        **limits: Any,
    ) -> None:
        self.clock = ManualClock(boot=0.0)
        self.in_flight = new_in_flight(self.clock, redact=redact)
        self.checkpoints = SentCheckpoints()
        self.owner = FakeOwner()
        self.tether = FakeTether()
        self.pool = RunnerPool(
            self.owner,
            lambda owner: FakeRunner(owner, self.clock),  # type: ignore[arg-type,return-value]
            self.in_flight,
            self.checkpoints,  # type: ignore[arg-type]
            self.tether,  # type: ignore[arg-type]
            size=size,
            concurrency=concurrency,
            queues=[],
            tags=tags,
            clock=self.clock,
            recycling=Recycling(size=size, clock=self.clock, **limits),
        )

    @property
    def runners(self) -> list[FakeRunner]:
        return self.pool.runners  # type: ignore[return-value]

    async def when_spare_is_due(self) -> None:
        """Run the supervisor once more, when the spare may start."""
        self.clock.advance(SPARE_AFTER_SECONDS)
        await self.pool.keeper.run_once()

    async def starting(self, **tasks: bool) -> Self:
        """Spawn the first runners; let each greet if there are tasks."""
        await self.pool.keeper.run_once()
        for runner in self.runners if tasks else ():
            runner.greets(**tasks)
        return self

    async def ready(self, **tasks: bool) -> Self:
        """Spawn all runners, the spare last, and let each greet with these tasks."""
        for _ in range(2):
            self.pool._supervisor._spare_at = (
                self.clock.boot()
            )  # it does not wait: no time passes here
            await self.pool.keeper.run_once()
            for runner in self.runners:
                if not runner.ready:
                    runner.greets(**(tasks or {OWN: True, SHARED: False}))
        return self

    def requests(self, unanswered: int) -> list[ClaimRequest]:
        """What is asked for besides suspects."""
        return [
            request for request in self.pool.starter.make_requests(unanswered) if not request.solo
        ]

    def end_many(self, count: int) -> None:
        """Let this number of attempts of each kind end in the time over which they are counted."""
        for kind in (self.pool._ahead.alone, self.pool._ahead.shared):
            kind.note_freed(count)
        self.clock.advance(RATE_SECONDS)

    def runner(self, token: int) -> FakeRunner:
        """Return the runner that has this attempt."""
        (found,) = [runner for runner in self.runners if token in runner.tokens]
        return found

    def place(self, *attempts: Claimed) -> None:
        self.pool.starter.start(self.in_flight.claim(attempts))

    def ends(self) -> list[Transition]:
        return self.in_flight.take(1000)

    def outcomes(self) -> list[str]:
        return [end.outcome for end in self.ends()]


def own(token: int) -> Claimed:
    return claimed(token, OWN)


def shared(token: int, **fields: Any) -> Claimed:
    return claimed(token, SHARED, **fields)
