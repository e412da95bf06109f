"""An executor with an application of its own and a link that records, for its tests."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import Future

import pytest

import outlast
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import Outcome
from outlast.runner.execute import Executor
from outlast.runner.protocol import Began, End, FunctionsEnded
from outlast.store.values import Answer, StepFound
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import claimed


class FakeLink:
    """Records ends; gives set answers to saves."""

    store_id = "s"
    worker_id = 9

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.sent = 0  # of these
        self.tells = True
        self.stacks: list[tuple[int, str]] = []
        self.begun: list[tuple[int, float]] = []
        self.returned: list[int] = []
        self.told = asyncio.Event()
        self.answer = Answer.ACCEPTED

    def report(self, token, progress) -> None:
        """Ignore progress."""

    def save(self, job_id, token, number, value_json, *, again) -> Future[StepFound]:
        return self.step(job_id, token, "", value_json)

    def step(self, job_id, token, name, value_json) -> Future[StepFound]:
        answer = Future[StepFound]()
        answer.set_result(StepFound(self.answer))
        return answer

    def report_end(self, end: End, *, is_last: bool = False) -> None:
        self.ends.append(end)
        self.told.set()

    def send_ends(self) -> bool:
        self.sent = len(self.ends)
        return self.tells

    def send(self, frame) -> None:
        if isinstance(frame, Began):
            self.begun += frame.attempts
        elif isinstance(frame, FunctionsEnded):
            self.returned += frame.tokens
        else:
            self.stacks.append((frame.token, frame.stack))


class Bench:
    """An application, and an executor that runs its tasks."""

    def __init__(self, slots: int = 4) -> None:
        self.app = outlast.App("sqlite:///never-opened.db", max_payload=2000)
        self.link = FakeLink()
        self.clock = ManualClock(wall=1000.0)
        self.executor = Executor(self.app, self.link, "resources", clock=self.clock, threads=slots)

    def start(self, task, token: int = 1, args: str = "{}", **fields) -> None:
        name = getattr(task, "name", task)
        self.executor.start([claimed(token, name, args=args, **fields)])

    async def end(self) -> End:
        async with asyncio.timeout(60):
            await self.link.told.wait()
        self.link.told.clear()
        (end,) = self.link.ends
        self.link.ends.clear()
        return end

    async def ends(self, count: int) -> list[End]:
        """Wait until that many attempts have ended."""
        async with asyncio.timeout(60):
            while len(self.link.ends) < count:
                await self.link.told.wait()
                self.link.told.clear()
        return self.link.ends

    async def outcome(self, task, args: str = "{}", **fields) -> Outcome:
        self.start(task, args=args, **fields)
        return (await self.end()).outcome


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.executor.close()


def kind_of(outcome: Outcome) -> CrashKind | None:
    return None if outcome.crash is None else outcome.crash.kind


def as_task(bench: Bench, fn, *, plain: bool, **options):
    """Register a function as a task: as it is, or as a coroutine that calls it."""

    @functools.wraps(fn)
    async def run(*args, **kwargs):
        return fn(*args, **kwargs)

    return bench.app.task(name=fn.__name__, **options)(fn if plain else run)


def raiser(bench: Bench, error: BaseException, *, plain: bool, **options):
    """A task that raises this."""

    def raises() -> None:
        raise error

    return as_task(bench, raises, plain=plain, **options)
