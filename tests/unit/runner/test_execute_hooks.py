"""Hooks around an attempt and lifespans: their order, their threads and their errors."""

from __future__ import annotations

import contextlib
import threading

import pytest

import outlast
from outlast.model.lifecycle import OutcomeKind
from outlast.runner.execute import enter_lifespan
from tests.unit.runner import execute_kit
from tests.unit.runner.execute_kit import Bench, raiser

bench = execute_kit.bench


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
