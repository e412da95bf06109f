"""Hooks around an attempt that misbehave, and exceptions in groups: one end, and the right one."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import Any

import pytest

import outlast
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.store.values import Answer
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import Bench, as_task, kind_of, raiser

bench = execute_kit.bench
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
