"""One attempt, from its arguments to its one end, for all that a task may do."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
from typing import Any

import pytest

import outlast
from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.execute import Executor, enter_lifespan
from outlast.runner.protocol import End
from outlast.store.values import Answer
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import claimed


class FakeLink:
    """Records ends; gives set answers to saves."""

    store_id = "s"
    worker_id = 9

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.stacks: list[tuple[int, str]] = []
        self.told = asyncio.Event()
        self.answer = Answer.ACCEPTED

    def report(self, token, progress) -> None:
        """Ignore progress."""

    async def save(self, job_id, token, number, value_json) -> Answer:
        return self.answer

    def save_blocking(self, job_id, token, number, value_json) -> Answer:
        return self.answer

    def report_end(self, end: End) -> None:
        self.ends.append(end)
        self.told.set()

    def report_stack(self, token, stack) -> None:
        self.stacks.append((token, stack))


class Bench:
    """An application, and an executor that runs its tasks."""

    def __init__(self) -> None:
        self.app = outlast.App("sqlite:///never-opened.db", max_payload=2000)
        self.link = FakeLink()
        self.executor = Executor(
            self.app, self.link, "resources", clock=ManualClock(wall=1000.0), threads=4
        )

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


def raiser(bench: Bench, error: BaseException, *, plain: bool):
    """A task that raises this."""
    if plain:

        @bench.app.task(name="raises")
        def raises() -> None:
            raise error

        return raises

    @bench.app.task(name="raises")
    async def raises_async() -> None:
        raise error

    return raises_async


# ------------------------------------------------------------------------- return values


async def test_a_coroutine_s_return_value_is_its_result(bench):
    @bench.app.task
    async def add(a: int, b: int = 2) -> int:
        return a + b

    outcome = await bench.outcome(add, '{"a":40}')
    assert (outcome.kind, outcome.result) == (OutcomeKind.COMPLETED, "42")


async def test_the_loop_is_woken_for_each_plain_function_that_returns(bench):
    @bench.app.task
    def double(n: int) -> int:
        return 2 * n

    for n in range(3):
        assert (await bench.outcome(double, f'{{"n":{n}}}')).result == str(2 * n)
    for token in range(20):
        bench.start(double, token, f'{{"n":{token}}}')
    async with asyncio.timeout(60):
        while len(bench.link.ends) < 20:
            await bench.link.told.wait()
            bench.link.told.clear()
    assert sorted(end.token for end in bench.link.ends) == list(range(20))


async def test_a_plain_function_runs_in_a_thread_with_its_attempt_and_context(bench):
    tenant = contextvars.ContextVar("tenant", default="none")

    @bench.app.around
    async def sets_tenant(attempt):
        tenant.set("acme")
        yield

    @bench.app.task
    def look() -> list:
        attempt = outlast.current()
        main = threading.current_thread() is threading.main_thread()
        return [main, tenant.get(), attempt.resources, attempt.worker_id]

    assert (await bench.outcome(look)).result == '[false,"acme","resources",9]'
    with pytest.raises(outlast.NotInAttempt):
        outlast.current()


async def test_concurrent_attempts_each_see_their_own_current_attempt(bench):
    gate = asyncio.Event()

    @bench.app.task
    async def mine() -> int:
        await gate.wait()
        return outlast.current().token

    for token in (1, 2, 3):
        bench.start(mine, token)
    await asyncio.sleep(0)
    gate.set()
    while len(bench.link.ends) < 3:
        await asyncio.sleep(0)
    assert {end.token: end.outcome.result for end in bench.link.ends} == {1: "1", 2: "2", 3: "3"}


async def test_the_deadline_is_the_timeout_from_now(bench):
    @bench.app.task
    async def deadline() -> float | None:
        at = outlast.current().deadline
        return None if at is None else at.timestamp()

    assert (await bench.outcome(deadline, policy=Policy(timeout=5.0))).result == "1005.0"
    assert (await bench.outcome(deadline)).result == "null"


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), "\ud800", "x" * 3000],
    ids=["an object", "no number", "a lone surrogate", "too large"],
)
async def test_a_result_that_cannot_be_stored_is_rejected(bench, value):
    @bench.app.task
    async def odd():
        return value

    outcome = await bench.outcome(odd)
    assert kind_of(outcome) is CrashKind.REJECTED_RESULT
    assert "the result" in outcome.message


@pytest.mark.parametrize(
    ("annotation", "value", "stored", "says"),
    [
        (int, "text", '"text"', "does not fit int: Expected `int`, got `str`"),
        (str, b"x", '"eA=="', "does not fit str: it is of class bytes"),
        (int, None, "null", "does not fit int: Expected `int`, got `null`"),
        (list[int], ["a"], '["a"]', "at `$[0]`"),
        (int, 3, "3", ""),
        (float, 3, "3", ""),
        (int | None, None, "null", ""),
        (None, None, "null", ""),
        (Any, "text", '"text"', ""),
    ],
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_result_that_does_not_fit_its_annotation_is_kept_and_named(
    bench, annotation, value, stored, says, plain
):
    """Its work is done: to repeat it would repeat its effects, with the same result."""

    async def returns():
        return value

    def returns_plainly():
        return value

    fn = returns_plainly if plain else returns
    fn.__annotations__["return"] = annotation
    outcome = await bench.outcome(bench.app.task(name="returns")(fn))
    assert (outcome.kind, outcome.result) == (OutcomeKind.COMPLETED, stored)
    assert says in outcome.message
    assert bool(says) == bool(outcome.message)


async def test_arguments_of_another_release_are_undecodable(bench):
    @bench.app.task
    async def add(a: int) -> int:
        return a

    for args in ('{"a":"x"}', '{"b":1}', "[", "{}"):
        assert kind_of(await bench.outcome(add, args)) is CrashKind.UNDECODABLE
    assert kind_of(await bench.outcome("unheard of")) is CrashKind.UNDECODABLE


# ---------------------------------------------------------------------------- exceptions


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("error", "kind", "delay"),
    [
        (outlast.Snooze(60), OutcomeKind.SNOOZED, 60.0),
        (outlast.Retry(after=30), OutcomeKind.CRASHED, 30.0),
        (outlast.Retry(), OutcomeKind.CRASHED, None),
        (outlast.Cancel("why"), OutcomeKind.CANCELLED, None),
        (outlast.Dead("why"), OutcomeKind.DEAD, None),
        (ValueError("boom"), OutcomeKind.CRASHED, None),
        (SystemExit(3), OutcomeKind.CRASHED, None),
        (KeyboardInterrupt(), OutcomeKind.CRASHED, None),
        (asyncio.CancelledError(), OutcomeKind.CRASHED, None),
        (GeneratorExit(), OutcomeKind.CRASHED, None),
        (RecursionError("deep"), OutcomeKind.CRASHED, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_each_exception_of_a_task_becomes_its_one_end(bench, error, kind, delay, plain):
    outcome = await bench.outcome(raiser(bench, error, plain=plain))
    assert (outcome.kind, outcome.delay) == (kind, delay)
    if kind is OutcomeKind.CRASHED:
        assert kind_of(outcome) is CrashKind.ERROR


async def test_a_plain_function_that_raises_stop_iteration_ends_as_well(bench):
    outcome = await bench.outcome(raiser(bench, StopIteration(), plain=True))
    assert kind_of(outcome) is CrashKind.ERROR


async def test_the_report_of_an_error_begins_in_the_user_s_own_code(bench):
    crash = (await bench.outcome(raiser(bench, ValueError("boom"), plain=False))).crash
    assert crash is not None
    assert (crash.exception, crash.message) == ("ValueError", "ValueError: boom")
    assert crash.traceback is not None
    assert "raises_async" in crash.traceback
    assert "runner/execute.py" not in crash.traceback


async def test_an_error_without_a_message_has_a_report(bench):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    crash = (await bench.outcome(raiser(bench, Mute(), plain=False))).crash
    assert crash is not None
    assert crash.exception is not None
    assert "Mute" in crash.exception


async def test_an_odd_message_can_be_stored(bench):
    outcome = await bench.outcome(raiser(bench, ValueError("\x00\ud800" * 9000), plain=True))
    assert outcome.crash is not None
    assert "\x00" not in outcome.crash.message
    assert len(outcome.crash.message) <= 2000


async def test_a_lost_lease_is_no_error_of_the_task(bench):
    @bench.app.task
    async def saves() -> None:
        await outlast.current().save(1)

    bench.link.answer = Answer.REFUSED
    assert kind_of(await bench.outcome(saves)) is CrashKind.LOST_LEASE


# ---------------------------------------------------------------------- arounds, lifespans


def trace(bench: Bench, seen: list[str]) -> None:
    @bench.app.around
    def sync_first(attempt):
        seen.append(f"sync in {threading.current_thread() is threading.main_thread()}")
        yield
        seen.append("sync out")

    @bench.app.around
    async def async_second(attempt):
        seen.append("async in")
        try:
            yield
        finally:
            seen.append("async out")


async def test_arounds_are_entered_in_their_order_the_first_outermost(bench):
    seen: list[str] = []
    trace(bench, seen)

    @bench.app.task
    async def work() -> None:
        seen.append("work")

    assert (await bench.outcome(work)).kind is OutcomeKind.COMPLETED
    assert seen == ["sync in True", "async in", "work", "async out", "sync out"]


async def test_for_a_plain_function_sync_arounds_are_entered_in_its_own_thread(bench):
    """And so inside the async ones: a Flask context belongs to its thread."""
    seen: list[str] = []
    trace(bench, seen)

    @bench.app.task
    def work() -> None:
        seen.append("work")

    assert (await bench.outcome(work)).kind is OutcomeKind.COMPLETED
    assert seen == ["async in", "sync in False", "work", "sync out", "async out"]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_around_that_fails_is_an_error_of_the_attempt(bench, plain):
    @bench.app.around
    def fails(attempt):
        raise LookupError("no such tenant")
        yield

    outcome = await bench.outcome(raiser(bench, ValueError("never raised"), plain=plain))
    assert outcome.crash is not None
    assert outcome.crash.exception == "LookupError"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_around_sees_the_error_and_exits(bench, plain):
    seen: list[BaseException] = []

    @bench.app.around
    def looks(attempt):
        try:
            yield
        except BaseException as error:
            seen.append(error)
            raise

    error = outlast.Snooze(1)
    outcome = await bench.outcome(raiser(bench, error, plain=plain))
    assert outcome.kind is OutcomeKind.SNOOZED
    assert seen == [error]


async def test_what_the_lifespan_yields_are_the_resources(bench):
    seen = []

    @bench.app.lifespan
    async def engines(app):
        seen.append("in")
        yield {"engine": app}
        seen.append("out")

    async with contextlib.AsyncExitStack() as stack:
        assert await enter_lifespan(bench.app, stack) == {"engine": bench.app}
        assert seen == ["in"]
    assert seen == ["in", "out"]


async def test_a_plain_lifespan_and_no_lifespan_are_accepted(bench):
    async with contextlib.AsyncExitStack() as stack:
        assert await enter_lifespan(bench.app, stack) is None

        @bench.app.lifespan
        def engines():
            yield 5

        assert await enter_lifespan(bench.app, stack) == 5


# ------------------------------------------------------------------------------ complete_in


async def test_an_attempt_that_completed_itself_says_so_and_its_return_is_not_stored(bench):
    @bench.app.task
    async def completes() -> object:
        outlast.current().completed_in = True
        return object()

    bench.start(completes)
    end = await bench.end()
    assert end.completed_in
    assert (end.outcome.kind, end.outcome.result) == (OutcomeKind.COMPLETED, None)


async def test_an_ended_attempt_is_garbage_collected(bench):
    await bench.outcome(raiser(bench, ValueError("boom"), plain=False))
    assert bench.executor._tasks == {}
    assert bench.executor._attempts == {}
    assert sys.exception() is None
