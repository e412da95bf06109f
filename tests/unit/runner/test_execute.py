"""One attempt, from its arguments to its one end, for all that a task may do."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.runner import interruptions
from outlast.runner.execute import enter_lifespan
from outlast.store.values import Answer
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import Bench, as_task, kind_of, raiser

bench = execute_kit.bench


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
    assert sorted(end.token for end in await bench.ends(20)) == list(range(20))


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


async def test_plain_functions_see_no_context_of_each_other(bench):
    tenant = contextvars.ContextVar("tenant", default="none")

    @bench.app.task
    def look(n: int) -> list:
        seen = tenant.get()
        tenant.set(f"acme {n}")
        return [outlast.current().token, seen]

    for token in range(50):
        bench.start(look, token, f'{{"n":{token}}}')
    seen = {end.token: end.outcome.result for end in await bench.ends(50)}
    assert seen == {token: f'[{token},"none"]' for token in range(50)}


async def test_the_loop_turns_while_the_error_of_a_plain_function_is_described(bench):
    described, loop_turned = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Slow(Exception):
        def __str__(self) -> str:
            loop.call_soon_threadsafe(described.set)
            return "the loop turned" if loop_turned.wait(20) else "the loop stood still"

    @bench.app.task
    def fails() -> None:
        raise Slow

    bench.start(fails)
    await described.wait()
    loop_turned.set()
    assert "the loop turned" in (await bench.end()).outcome.crash.message


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
    assert {end.token: end.outcome.result for end in await bench.ends(3)} == {
        1: "1",
        2: "2",
        3: "3",
    }


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

    def returns():
        return value

    returns.__annotations__["return"] = annotation
    outcome = await bench.outcome(as_task(bench, returns, plain=plain))
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
        (outlast.Snooze(timedelta(minutes=1)), OutcomeKind.SNOOZED, 60.0),
        (outlast.Retry(after=timedelta(minutes=1)), OutcomeKind.CRASHED, 60.0),
        (outlast.Retry(after=30), OutcomeKind.CRASHED, 30.0),
        (outlast.Retry(), OutcomeKind.CRASHED, None),
        (outlast.Cancel("why"), OutcomeKind.CANCELLED, None),
        (outlast.Dead("why"), OutcomeKind.DEAD, None),
        (ValueError("boom"), OutcomeKind.CRASHED, None),
        (SystemExit(3), OutcomeKind.CRASHED, None),
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


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_task_that_ctrl_c_interrupts_is_no_failure(bench, plain):
    """User code has put back Python's own handler, and a signal reaches any attempt here."""
    outcome = await bench.outcome(raiser(bench, KeyboardInterrupt(), plain=plain))
    assert kind_of(outcome) is CrashKind.BYSTANDER


async def test_a_plain_function_that_raises_stop_iteration_ends_as_well(bench):
    outcome = await bench.outcome(raiser(bench, StopIteration(), plain=True))
    assert kind_of(outcome) is CrashKind.ERROR


async def test_the_report_of_an_error_begins_in_the_user_s_own_code(bench):
    crash = (await bench.outcome(raiser(bench, ValueError("boom"), plain=False))).crash
    assert crash is not None
    assert (crash.exception, crash.message) == ("ValueError", "ValueError: boom")
    assert crash.traceback is not None
    assert " in raises\n" in crash.traceback
    assert "runner/execute.py" not in crash.traceback


@pytest.mark.parametrize("verdict", [outlast.Retry, outlast.Dead])
@pytest.mark.parametrize("plainly", [False, True])
async def test_a_verdict_without_words_reports_the_error_that_it_was_raised_for(
    bench, verdict, plainly
):
    @bench.app.task
    async def raises() -> None:
        try:
            raise OSError("no route to the shop")
        except OSError as error:
            if plainly:
                raise verdict()  # noqa: B904
            raise verdict() from error

    crash = (await bench.outcome(raises)).crash
    assert crash is not None
    assert (crash.exception, crash.message) == ("OSError", "OSError: no route to the shop")
    assert " in raises\n" in crash.traceback


@pytest.mark.parametrize("verdict", [outlast.Retry, outlast.Dead])
async def test_a_verdict_with_words_or_alone_is_reported_itself(bench, verdict):
    async def said() -> None:
        try:
            raise OSError("no route to the shop")
        except OSError as error:
            raise verdict("in an hour") from error

    async def alone() -> None:
        try:
            raise OSError("no route to the shop")
        except OSError:
            raise verdict() from None

    for fn in (said, alone):
        crash = (await bench.outcome(bench.app.task(fn))).crash
        assert crash is not None
        assert crash.exception == verdict.__name__


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
    assert bench.executor._records == {}
    assert sys.exception() is None


# ------------------------------------------------------------------- signals from outside


@pytest.mark.parametrize("options", [{}, {"retry_on": (KeyError,)}], ids=str)
async def test_a_failure_after_a_signal_to_the_runner_is_no_failure_of_the_job(bench, options):
    """The signal may have ended what the task had started: it reaches the whole group."""

    @bench.app.task(**options)
    def converts() -> None:
        interruptions.note(signal.SIGTERM, None)
        raise ValueError("sleep died of SIGTERM")

    outcome = await bench.outcome(converts)
    assert kind_of(outcome) is CrashKind.BYSTANDER
    assert "received a signal from outside" in outcome.crash.message
    assert "sleep died of SIGTERM" in outcome.crash.traceback


async def test_a_signal_excuses_only_what_ran_and_failed(bench):
    @bench.app.task
    async def returns() -> int:
        interruptions.note(signal.SIGTERM, None)
        return 1

    @bench.app.task
    async def fails() -> None:
        raise ValueError

    assert (await bench.outcome(returns)).kind is OutcomeKind.COMPLETED
    assert kind_of(await bench.outcome(fails)) is CrashKind.ERROR


# ---------------------------------------------------------------------------------- expiry


@pytest.mark.parametrize("plain", [False, True])
async def test_an_attempt_that_waited_until_its_job_expired_does_not_begin(bench, plain):
    """In its worker, or here behind code that blocks: a claim is no start."""
    ran: list[int] = []

    def offer() -> None:
        ran.append(1)

    task, now = as_task(bench, offer, plain=plain), bench.executor._clock.boot()
    outcome = await bench.outcome(task, begin_by=now)
    assert (outcome.kind, outcome.began, ran) == (OutcomeKind.RELEASED, False, [])
    outcome = await bench.outcome(task, begin_by=now + 1.0)
    assert (outcome.kind, ran) == (OutcomeKind.COMPLETED, [1])


# -------------------------------------------------------------------------- hooks and lifespans


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


# ------------------------------------------------------------------------- hooks that misbehave


both = pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])


def worker(bench: Bench, ran: list[str], *, plain: bool) -> Any:
    """A task that just works."""

    def works() -> int:
        ran.append("task")
        return 42

    return as_task(bench, works, plain=plain)


def as_async(fn: Any) -> Any:
    async def around(attempt):
        for value in fn(attempt):
            yield value

    return around


# ---------------------------------------------------------------------------------- around


def raises_behind(attempt):
    yield
    raise LookupError("as asked")


def yields_twice(attempt):
    yield
    yield


def yields_never(attempt):
    if attempt is None:
        yield


@both
@pytest.mark.parametrize("kind", ["def", "async_def"])
@pytest.mark.parametrize(
    ("around", "exception", "ran"),
    [
        (raises_behind, "LookupError", ["task"]),
        (yields_twice, "RuntimeError", ["task"]),
        (yields_never, "RuntimeError", []),
    ],
)
async def test_an_around_that_does_not_just_yield_once_is_an_error_of_the_attempt(
    bench, plain, kind, around, exception, ran
):
    seen: list[str] = []
    bench.app.around(around if kind == "def" else as_async(around))
    outcome = await bench.outcome(worker(bench, seen, plain=plain))
    assert (kind_of(outcome), outcome.crash.exception) == (CrashKind.ERROR, exception)
    assert seen == ran


def swallows(attempt):
    try:
        yield
    except BaseException:
        """As if all were well."""


async def swallows_async(attempt):
    with contextlib.suppress(BaseException):
        yield


@both
@pytest.mark.parametrize("around", [swallows, swallows_async])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("as asked"), OutcomeKind.CRASHED),
        (outlast.Snooze(60), OutcomeKind.SNOOZED),
        (outlast.Dead("no more"), OutcomeKind.DEAD),
    ],
)
async def test_what_an_around_swallows_is_the_end_all_the_same(bench, plain, around, error, kind):
    """Work that was not done would be lost: completed, with no result."""
    bench.app.around(around)
    assert (await bench.outcome(raiser(bench, error, plain=plain))).kind is kind


@both
@pytest.mark.parametrize("around", [swallows, swallows_async])
async def test_a_task_that_was_never_called_has_not_completed(bench, plain, around):
    @bench.app.around
    def before(attempt):
        raise LookupError("no such tenant")
        yield

    bench.app.around_fns.insert(0, _maker(bench, around))
    ran: list[str] = []
    outcome = await bench.outcome(worker(bench, ran, plain=plain))
    assert (kind_of(outcome), ran) == (CrashKind.ERROR, [])


def _maker(bench: Bench, around: Any) -> Any:
    bench.app.around(around)
    return bench.app.around_fns.pop()


@both
async def test_an_around_may_put_another_error_in_the_place_of_the_task_s(bench, plain):
    @bench.app.around
    def turns(attempt):
        try:
            yield
        except ValueError:
            raise outlast.Cancel("not wanted any more") from None

    task = raiser(bench, ValueError("as asked"), plain=plain)
    assert (await bench.outcome(task)).kind is OutcomeKind.CANCELLED


@both
async def test_a_variable_that_an_around_sets_is_there_for_the_task_and_set_back(bench, plain):
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    seen: list[str] = []

    @bench.app.around
    def sets(attempt):
        token = tenant.set("t")
        yield
        tenant.reset(token)  # ValueError in another context than the one in which it was set

    @bench.app.around
    async def sets_too(attempt):
        before = tenant.set(f"{tenant.get()}!")
        yield
        tenant.reset(before)

    def look() -> None:
        seen.append(tenant.get())

    task = as_task(bench, look, plain=plain)
    for _ in range(2):
        assert (await bench.outcome(task)).kind is OutcomeKind.COMPLETED
    assert seen == ["t" if plain else "t!"] * 2


# ---------------------------------------------------------------------- groups of exceptions


def grouped(bench: Bench, *errors: BaseException) -> Any:
    """A task of as many steps at once, each of which raises one of these."""

    @bench.app.task(name="steps")
    async def steps() -> None:
        ready = asyncio.Barrier(len(errors))

        async def step(error: BaseException) -> None:
            await ready.wait()
            raise error

        async with asyncio.TaskGroup() as group:
            for error in errors:
                group.create_task(step(error))

    return steps


async def test_a_verdict_of_a_step_in_a_task_group_is_the_task_s(bench):
    outcome = await bench.outcome(grouped(bench, outlast.Snooze(60)))
    assert (outcome.kind, outcome.delay) == (OutcomeKind.SNOOZED, 60)


async def test_of_several_verdicts_in_a_group_the_first_counts(bench):
    error = BaseExceptionGroup("steps", [outlast.Snooze(5), outlast.Snooze(60)])
    outcome = await bench.outcome(raiser(bench, error, plain=False))
    assert (outcome.kind, outcome.delay) == (OutcomeKind.SNOOZED, 5)


async def test_a_verdict_beside_an_error_is_an_error_with_both_in_its_report(bench):
    outcome = await bench.outcome(grouped(bench, outlast.Snooze(60), ValueError("as asked")))
    assert kind_of(outcome) is CrashKind.ERROR
    assert "as asked" in outcome.crash.traceback
    assert "snooze for 60 s" in outcome.crash.traceback


async def test_a_lost_lease_in_a_group_is_no_error_of_the_task(bench):
    bench.link.answer = Answer.REFUSED

    @bench.app.task
    async def saves() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(outlast.current().save(1))

    assert kind_of(await bench.outcome(saves)) is CrashKind.LOST_LEASE


@both
async def test_a_group_within_groups_is_looked_through(bench, plain):
    error: BaseException = outlast.Retry(after=7)
    for _ in range(2000):  # deeper than any recursion
        error = BaseExceptionGroup("deep", [error])
    outcome = await bench.outcome(raiser(bench, error, plain=plain))
    assert (kind_of(outcome), outcome.delay) == (CrashKind.ERROR, 7)


async def test_a_group_that_is_too_deep_to_be_told_is_an_error_all_the_same(bench):
    error: BaseException = ValueError("as asked")
    for _ in range(2000):
        error = BaseExceptionGroup("deep", [error])
    assert kind_of(await bench.outcome(raiser(bench, error, plain=False))) is CrashKind.ERROR
