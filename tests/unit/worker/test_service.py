"""The common loop of all duties: nudges, pauses, errors, the end."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Self

import pytest

from outlast import events
from outlast.base.throttle import TELL_SECONDS
from outlast.errors import StoreUnavailable
from outlast.worker.service import BACKOFF_FIRST, BACKOFF_MAX, CALM_SECONDS, Nudge, Service
from tests.cases import each_case
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import heard

OUTAGE = StoreUnavailable("away")


class Duty:
    """Runs a script of pauses and errors; waits forever after its end."""

    name = "duty"

    def __init__(self, clock: ManualClock, *script: float | BaseException | None) -> None:
        self.nudge = Nudge()
        self.clock = clock
        self.script = list(script)
        self.times: list[float] = []

    @property
    def runs(self) -> int:
        return len(self.times)

    async def run_once(self) -> float | None:
        self.times.append(self.clock.boot())
        step = self.script.pop(0) if self.script else None
        if isinstance(step, BaseException):
            raise step
        return step


class Stage:
    def __init__(self, *script: float | BaseException | None) -> None:
        self.clock = ManualClock(boot=0.0)
        self.duty = Duty(self.clock, *script)
        self.failures: list[BaseException] = []
        self.nudge = self.duty.nudge
        self.service = Service(self.duty, self.clock, self.failures.append)

    async def __aenter__(self) -> Self:
        self.service.start()
        await self.clock.run_for(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.stop()


async def test_a_duty_runs_at_once_and_then_when_it_is_nudged():
    async with Stage() as stage:
        assert stage.duty.runs == 1
        await stage.clock.run_for(1000)
        assert stage.duty.runs == 1
        stage.nudge.give()
        await stage.clock.run_for(0)
        assert stage.duty.runs == 2


async def test_a_duty_goes_on_in_a_loop_that_starts_tasks_at_once():
    """As with asyncio.eager_task_factory (Python 3.12) in a program with an app.worker()."""

    def start_at_once(loop, coroutine, **named):
        with suppress(StopIteration):
            coroutine.send(None)
        return asyncio.Task(asyncio.sleep(0), loop=loop, **named)

    stage, loop = Stage(), asyncio.get_running_loop()
    loop.set_task_factory(start_at_once)
    stage.service.start()
    loop.set_task_factory(None)
    await stage.clock.run_for(0)
    stage.nudge.give()
    await stage.clock.run_for(0)
    assert stage.duty.runs == 2
    await stage.service.stop()


async def test_several_nudges_cause_one_run():
    async with Stage() as stage:
        for _ in range(100):
            stage.nudge.give()
        await stage.clock.run_for(0)
        assert stage.duty.runs == 2


async def test_a_nudge_during_a_run_is_not_lost():
    stage = Stage()
    gate = asyncio.Event()

    async def waits() -> None:
        stage.duty.times.append(0.0)
        await gate.wait()

    stage.duty.run_once = waits  # type: ignore[method-assign]
    async with stage:
        stage.nudge.give()
        gate.set()
        await stage.clock.run_for(0)
        assert stage.duty.runs == 2


async def test_a_duty_that_repeats_at_once_runs_before_tasks_it_started():
    stage = Stage(0.0, 0.0)
    runs: list[int] = []
    script = stage.duty.run_once

    async def starts_something() -> float | None:
        if not stage.duty.runs:
            asyncio.get_running_loop().call_soon(lambda: runs.append(stage.duty.runs))
        return await script()

    stage.duty.run_once = starts_something  # type: ignore[method-assign]
    async with stage:
        assert runs == [3]
        assert stage.duty.runs == 3


@pytest.mark.parametrize(("pause", "runs_at"), [(10.0, 2.0), (1.0, 1.0), (None, 2.0)])
async def test_a_nudge_within_a_time_shortens_a_longer_pause(pause, runs_at):
    nudge = Nudge()
    loop = asyncio.get_running_loop()
    began, times = loop.time(), []
    nudge.give_within(0.0)  # nothing waits yet
    assert not nudge.is_given
    waits = nudge.wait(pause and pause / 100)
    waits.add_done_callback(lambda _: times.append(loop.time() - began))
    nudge.give_within(0.02)
    first = nudge._timer
    nudge.give_within(0.5)
    assert nudge._timer is first, "an earlier time stays"
    async with asyncio.timeout(5):
        await waits
    assert times[0] >= runs_at / 100 - 0.001


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_nudge_within_a_time_takes_a_pause_of_any_length(kind):
    async def waits(pause: float) -> None:
        nudge = Nudge()
        over = nudge.wait(pause)
        nudge.give_within(0.02)
        async with asyncio.timeout(5):
            await over

    with asyncio.Runner(loop_factory=pytest.importorskip(kind).new_event_loop) as runner:
        for pause in (1e-9, 0.0004, 0.001, 60.0):
            runner.run(waits(pause))


async def test_errors_are_reported_and_retried_with_growing_pauses():
    with heard() as names:
        async with Stage(*[OUTAGE] * 8) as stage:
            await stage.clock.run_for(60)
    pauses = [b - a for a, b in itertools.pairwise(stage.duty.times)]
    assert pauses[:4] == pytest.approx([BACKOFF_FIRST, 0.2, 0.4, 0.8])
    assert pauses[5:] == pytest.approx([BACKOFF_MAX] * 3)
    assert names == ["store_unavailable", "store_recovered"]


async def test_an_outage_that_goes_on_is_reported_once_a_minute_with_the_count():
    other = StoreUnavailable("full")
    stage = Stage(OUTAGE, OUTAGE, other, *[OUTAGE, other] * 40, None, OUTAGE)
    told = []

    def hear(name, fields):
        if name == "store_unavailable":
            told.append((stage.clock.boot(), fields))

    end = events.subscribe(hear)
    async with stage:
        await stage.clock.run_for(300)
        stage.nudge.give()
        await stage.clock.run_for(1)
    end()
    errors = [fields["error"].rpartition(" ")[2] for _, fields in told]
    assert errors[:2] == ["away", "full"]
    assert [fields["count"] for _, fields in told[:2]] == [1, 2]
    assert len(told) == 5, "two kinds, two minutes, and the next outage"
    assert told[2][0] - told[1][0] >= TELL_SECONDS
    assert sum(fields["count"] for _, fields in told[:4]) <= 83
    assert told[-1][1]["count"] == 1


async def test_a_nudge_does_not_shorten_a_back_off():
    async with Stage(OUTAGE) as stage:
        stage.nudge.give()
        await stage.clock.run_for(BACKOFF_FIRST / 2)
        assert stage.duty.runs == 1
        await stage.clock.run_for(BACKOFF_FIRST / 2)
        assert stage.duty.runs == 2


async def test_an_unexpected_error_is_reported_and_retried():
    with heard() as names:
        async with Stage(ValueError("a bug")) as stage:
            await stage.clock.run_for(BACKOFF_FIRST)
            assert stage.duty.runs == 2
    assert names == ["duty_failed", "store_recovered"]
    assert stage.failures == []


async def test_a_base_exception_ends_the_worker():
    class TheEnd(BaseException):
        pass

    error = TheEnd()
    async with Stage(error) as stage:
        pass
    assert stage.failures == [error]


async def test_a_duty_cancelled_from_outside_ends_the_worker():
    """Otherwise a worker would continue without it, unnoticed."""
    async with Stage(asyncio.CancelledError()) as stage:
        await stage.clock.run_for(1)
        assert len(stage.failures) == 1


async def test_stopping_cancels_a_duty_and_is_no_failure():
    stage = Stage()
    cancelled = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    stage.duty.run_once = waits  # type: ignore[method-assign]
    async with stage:
        pass
    await stage.service.stop()
    assert cancelled == [1]
    assert stage.failures == []


@each_case("error", [OUTAGE, None])
async def test_a_duty_that_raises_on_cancellation_still_ends(
    error: Exception | None,
) -> None:
    stage = Stage()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error is not None:
                raise error from None

    stage.duty.run_once = waits  # type: ignore[method-assign]
    async with stage:
        pass
    assert stage.failures == []


async def test_a_failing_duty_knows_its_error_and_since_when():
    other = RuntimeError("another")
    async with Stage(OUTAGE, OUTAGE, other, 5.0, None) as stage:
        failure = stage.service.find_failure()
        assert failure is not None
        assert (failure.error, failure.since) == (OUTAGE, 0.0)
        await stage.clock.run_for(0.5)
        failure = stage.service.find_failure()
        assert failure is not None
        assert (failure.error, failure.since) == (other, 0.0)
        await stage.clock.run_for(CALM_SECONDS + 2.0)
        assert stage.service.find_failure() is None


@each_case("script", [[OUTAGE] * 6, [*[OUTAGE] * 5, None, None, *[OUTAGE] * 3]])
async def test_a_duty_no_longer_fails_once_an_outage_is_over(script):
    """The outage comes in one piece or in two."""
    async with Stage(*script) as stage:
        while stage.duty.script:
            stage.nudge.give()
            await stage.clock.run_for(0.1)
        assert stage.service.find_failure() is not None
        for _ in range(25):
            stage.nudge.give()
            await stage.clock.run_for(0.1)
        assert stage.service.find_failure() is None


async def test_a_duty_that_fails_every_other_time_counts_as_failing():
    async with Stage(*[OUTAGE, None] * 5) as stage:
        for _ in range(4):
            await stage.clock.run_for(CALM_SECONDS / 2)
            stage.nudge.give()
            await stage.clock.run_for(0)
        failure = stage.service.find_failure()
        assert failure is not None
        assert failure.since == 0.0
