"""A task that returns after it was asked to stop is not finished, unless it calls ``finish``."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast.model.crash import LIMITS, CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.stacks import line_of
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import Bench, as_task, kind_of

bench = execute_kit.bench


STOPS = [
    ("cancel", OutcomeKind.CANCELLED, None),
    ("drain", OutcomeKind.RELEASED, None),
    ("pause", OutcomeKind.RELEASED, None),
    ("blocked", OutcomeKind.RELEASED, None),
    ("timeout", OutcomeKind.CRASHED, CrashKind.TIMEOUT),
    ("stalled", OutcomeKind.CRASHED, CrashKind.STALLED),
    ("unresponsive", OutcomeKind.CRASHED, CrashKind.UNRESPONSIVE),
    ("lease_lost", OutcomeKind.CRASHED, CrashKind.LOST_LEASE),
]


@pytest.mark.parametrize(("reason", "kind", "crash"), STOPS)
async def test_a_coroutine_is_cancelled_and_ends_by_the_reason(bench, reason, kind, crash):
    started = asyncio.Event()

    @bench.app.task
    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    bench.start(waits)
    await started.wait()
    bench.executor.stop(1, reason)
    outcome = (await bench.end()).outcome
    assert (outcome.kind, kind_of(outcome)) == (kind, crash)
    shown = [line_of(stack, token) for token, stack in bench.link.stacks]
    assert (outcome.message.endswith("test_stopping.py in waits")) == (reason == "cancel")
    assert len(shown) == (reason in LIMITS)  # at a limit the report has its stack
    assert all(line is not None and line.endswith(" in waits") for line in shown)


@pytest.mark.parametrize(("reason", "kind", "crash"), STOPS)
async def test_an_attempt_that_is_stopped_before_its_first_step_ends_as_well(
    bench, reason, kind, crash
):
    """Start and stop may come in one read of the socket."""

    @bench.app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    bench.start(waits)
    bench.executor.stop(1, reason)
    outcome = (await bench.end()).outcome
    assert (outcome.kind, kind_of(outcome)) == (kind, crash)


async def test_a_stop_while_a_thread_begins_its_attempt_is_heard(bench):
    @bench.app.task
    def looks() -> str:
        return f"{outlast.current().stop_reason}"

    def make_attempt(*args: Any, **options: Any) -> outlast.Attempt:
        bench.executor.stop(1, "cancel")  # the thread has not noted the attempt
        return outlast.Attempt(*args, **options)

    bench.executor._make_attempt = make_attempt
    assert (await bench.outcome(looks)).kind is OutcomeKind.CANCELLED


async def test_stopping_an_unknown_attempt_does_nothing(bench):
    bench.executor.stop(99, "cancel")

    @bench.app.task
    async def looks() -> bool:
        return outlast.current().stopping

    assert (await bench.outcome(looks, token=99)).result == "false"


# ------------------------------------------------------------------- returns after a request

Body = Callable[[outlast.Attempt], Any]


async def stopped_plain(bench: Bench, body: Body, reason: str) -> Outcome:
    """Run a plain function whose ``body`` begins once it has been asked to stop."""
    started, stopped = threading.Event(), threading.Event()

    @bench.app.task(name="looks")
    def looks() -> Any:
        started.set()
        stopped.wait(60)
        return body(outlast.current())

    bench.start(looks)
    await asyncio.to_thread(started.wait, 60)
    bench.executor.stop(1, reason)
    stopped.set()
    return (await bench.end()).outcome


async def stopped_async(bench: Bench, body: Body, reason: str) -> Outcome:
    """Run a coroutine that swallows its cancellation, and then ``body``."""
    started = asyncio.Event()

    @bench.app.task(name="swallows")
    async def swallows() -> Any:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return body(outlast.current())

    bench.start(swallows)
    await started.wait()
    bench.executor.stop(1, reason)
    return (await bench.end()).outcome


def swallow(attempt: outlast.Attempt) -> str:
    with contextlib.suppress(outlast.Stopped):
        attempt.check()
    return "a part"


WAYS_TO_SEE: list[Body] = [
    lambda attempt: "a part" if attempt.stopping else "all of it",
    lambda attempt: "a part" if attempt.stop_reason else "all of it",
    swallow,
]


@pytest.mark.parametrize("body", WAYS_TO_SEE, ids=["stopping", "stop_reason", "check"])
@pytest.mark.parametrize(("reason", "kind", "crash"), STOPS)
async def test_a_plain_function_that_has_seen_the_stop_and_returns_is_not_finished(
    bench, body, reason, kind, crash
):
    outcome = await stopped_plain(bench, body, reason)
    assert (outcome.kind, kind_of(outcome), outcome.result) == (kind, crash, None)


@pytest.mark.parametrize(("reason", "kind", "crash"), STOPS)
async def test_a_coroutine_that_swallows_its_cancellation_is_not_finished(
    bench, reason, kind, crash
):
    outcome = await stopped_async(bench, lambda _: "a part", reason)
    assert (outcome.kind, kind_of(outcome), outcome.result) == (kind, crash, None)


@pytest.mark.parametrize("stopped", [stopped_plain, stopped_async], ids=["plain", "async"])
@pytest.mark.parametrize("reason", [each[0] for each in STOPS])
async def test_finish_marks_a_stopped_task_as_finished(bench, stopped, reason):
    def body(attempt: outlast.Attempt) -> str:
        assert attempt.stopping
        return attempt.finish("all of it")

    outcome = await stopped(bench, body, reason)
    assert (outcome.kind, outcome.result) == (OutcomeKind.COMPLETED, '"all of it"')


@pytest.mark.parametrize("reason", [each[0] for each in STOPS])
async def test_a_task_that_has_not_seen_the_stop_is_finished(bench, reason):
    outcome = await stopped_plain(bench, lambda _: "all of it", reason)
    assert (outcome.kind, outcome.result) == (OutcomeKind.COMPLETED, '"all of it"')


async def test_a_coroutine_that_never_waits_again_has_not_seen_the_stop(bench):
    @bench.app.task
    async def at_once() -> str:
        return "all of it"

    bench.start(at_once)
    bench.executor.stop(1, "drain")
    assert (await bench.end()).outcome.result == '"all of it"'


async def test_the_release_of_a_returned_task_explains_finish(bench):
    outcome = await stopped_async(bench, lambda _: "a part", "drain")
    assert "attempt.finish" in outcome.message


async def test_a_task_that_completed_in_a_transaction_is_finished(bench):
    def body(attempt: outlast.Attempt) -> None:
        assert attempt.stopping
        attempt.completed_in = True

    assert (await stopped_plain(bench, body, "drain")).kind is OutcomeKind.COMPLETED


@pytest.mark.parametrize("reason", [each[0] for each in STOPS])
async def test_only_a_cancelled_job_is_cancelled(bench, reason):
    seen: list[bool] = []
    outcome = await stopped_plain(bench, lambda attempt: seen.append(attempt.cancelled), reason)
    assert seen == [reason == "cancel"]
    obeyed = OutcomeKind.CANCELLED if seen[0] else OutcomeKind.COMPLETED
    assert outcome.kind is obeyed, "reading `cancelled` as False does not count as seeing the stop"


async def test_check_is_not_caught_by_except_exception(bench):
    def body(attempt: outlast.Attempt) -> str:
        with contextlib.suppress(Exception):
            attempt.check()
        return "a part"

    outcome = await stopped_plain(bench, body, "drain")
    assert (outcome.kind, outcome.message) == (OutcomeKind.RELEASED, "the worker is stopping")


async def test_check_does_nothing_without_a_request_and_a_raised_stopped_is_an_error(bench):
    @bench.app.task
    async def works() -> str:
        outlast.current().check()
        return "all of it"

    @bench.app.task
    async def odd() -> None:
        raise outlast.Stopped

    assert (await bench.outcome(works)).kind is OutcomeKind.COMPLETED
    assert kind_of(await bench.outcome(odd)) is CrashKind.ERROR


# ----------------------------------------------------------------- verdicts after a request


def raising(error: BaseException) -> Body:
    def body(attempt: outlast.Attempt) -> None:
        assert attempt.stopping
        raise error

    return body


@pytest.mark.parametrize(("reason", "kind", "crash"), STOPS)
async def test_a_plain_function_can_check_and_stop(bench, reason, kind, crash):
    outcome = await stopped_plain(bench, raising(RuntimeError("I was told to stop")), reason)
    assert (outcome.kind, kind_of(outcome)) == (kind, crash)


VERDICTS = [outlast.Cancel("why"), outlast.Dead("why"), outlast.Retry(after=7.0)]


@pytest.mark.parametrize("stopped", [stopped_plain, stopped_async], ids=["plain", "async"])
@pytest.mark.parametrize("error", VERDICTS, ids=lambda each: type(each).__name__)
async def test_exceptions_after_a_deploys_request_neither_end_nor_charge_a_job(
    bench, stopped, error
):
    outcome = await stopped(bench, raising(error), "drain")
    assert (outcome.kind, outcome.crash) == (OutcomeKind.RELEASED, None)
    assert outcome.delay == (7.0 if isinstance(error, outlast.Retry) else None)


@pytest.mark.parametrize("error", VERDICTS, ids=lambda each: type(each).__name__)
async def test_exceptions_after_a_lost_lease_neither_end_nor_charge_a_job(bench, error):
    outcome = await stopped_plain(bench, raising(error), "lease_lost")
    assert kind_of(outcome) is CrashKind.LOST_LEASE


@pytest.mark.parametrize(
    ("error", "kind"),
    [(outlast.Cancel(), OutcomeKind.CANCELLED), (outlast.Dead(), OutcomeKind.DEAD)],
    ids=["Cancel", "Dead"],
)
@pytest.mark.parametrize("reason", ["timeout", "stalled", "cancel"])
async def test_a_verdict_on_the_job_s_own_limit_or_cancel_stands(bench, error, kind, reason):
    assert (await stopped_plain(bench, raising(error), reason)).kind is kind


async def test_a_verdict_of_a_task_that_has_seen_no_stop_stands(bench):
    def body(_: outlast.Attempt) -> None:
        raise outlast.Dead("no such order")

    assert (await stopped_plain(bench, body, "drain")).kind is OutcomeKind.DEAD


@pytest.mark.parametrize("stopped", [stopped_plain, stopped_async], ids=["plain", "async"])
async def test_a_snooze_stands_for_every_stop_reason(bench, stopped):
    outcome = await stopped(bench, raising(outlast.Snooze(5)), "drain")
    assert (outcome.kind, outcome.delay) == (OutcomeKind.SNOOZED, 5.0)


@pytest.mark.parametrize("reason", ["timeout", "drain", "cancel"])
@pytest.mark.parametrize("is_async", [True, False])
async def test_hooks_around_a_function_that_has_returned_are_not_cancelled(bench, reason, is_async):
    """Its work is done: if it ended in another way now, the work would be done twice."""
    over, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.around
    @contextlib.asynccontextmanager
    async def around(attempt):
        yield
        over.set()
        await go_on.wait()

    def returns() -> int:
        return 7

    bench.start(as_task(bench, returns, plain=not is_async), policy=Policy(timeout=3.0))
    await over.wait()
    while not bench.link.returned:
        await asyncio.sleep(0)
    assert bench.link.returned == [1]
    assert [token for token, _ in bench.link.begun] == [1]
    bench.executor.stop(1, reason)
    for _ in range(3):
        await asyncio.sleep(0)
    go_on.set()
    outcome = (await bench.end()).outcome
    assert (outcome.kind, outcome.result) == (OutcomeKind.COMPLETED, "7")


async def test_starts_are_told_of_attempts_with_limits_that_have_not_ended_by_the_next_turn(bench):
    gate = asyncio.Event()

    @bench.app.task
    async def waits() -> None:
        await gate.wait()

    @bench.app.task
    async def returns() -> None:
        pass

    limited = Policy(timeout=3.0)
    bench.start(waits, 1)
    bench.start(waits, 2, policy=limited)
    bench.start(returns, 3, policy=limited)
    bench.start(waits, 4, policy=Policy(stall_timeout=3.0))
    while len(bench.link.begun) < 2:
        await asyncio.sleep(0)
    assert bench.link.begun == [(2, bench.clock.boot()), (4, bench.clock.boot())]
    gate.set()
    while len(bench.link.ends) < 4:
        await asyncio.sleep(0)


async def test_an_attempt_that_has_not_begun_is_recalled_and_never_begins(bench):
    began = []

    @bench.app.task
    async def runs(n: int) -> None:
        began.append(n)

    bench.executor.expect([1, 2])
    assert bench.executor.recall([1]) == [1], "on its way"
    assert (await bench.outcome(runs, '{"n":1}')).kind is OutcomeKind.RELEASED
    bench.start(runs, 2, '{"n":2}')
    await bench.end()
    assert began == [2]
    assert bench.executor.recall([2]) == [], "it has begun, and ended"
