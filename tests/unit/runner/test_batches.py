"""One call for many attempts: when it begins, and how each of them ends."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import pytest

import outlast
from outlast.client.attempt import StopReason
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.runner.execute import Executor
from outlast.runner.stacks import is_mark
from tests.cases import each_case
from tests.manual_clock import ManualClock
from tests.unit.runner.execute_kit import Bench, kind_of
from tests.unit.worker.worker_kit import claimed

COMPLETED, RELEASED, CANCELLED = (
    OutcomeKind.COMPLETED,
    OutcomeKind.RELEASED,
    OutcomeKind.CANCELLED,
)
SIZE, WAIT = 3, 2.0


class Batch(Bench):
    """An executor whose only task takes batches of three."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.task = self.app.task(name="each", batch=SIZE, batch_wait=WAIT, **options)(fn)
        self.executor = Executor(self.app, self.link, None, clock=self.clock, threads=4)

    def put(self, *items: str, first: int = 1, **fields: Any) -> None:
        tokens = range(first, first + len(items))
        self.executor.start(
            [
                claimed(token, "each", args=f'{{"items":{item}}}', **fields)
                for token, item in zip(tokens, items, strict=True)
            ]
        )

    async def kinds(self, count: int) -> list[tuple[OutcomeKind, str | None]]:
        ends = sorted(await self.ends(count), key=lambda end: end.token)
        return [(end.outcome.kind, end.outcome.result) for end in ends]


async def doubled(items: list[int]) -> list[int]:
    return [2 * item for item in items]


async def test_a_full_batch_begins_at_once_and_results_are_in_the_order_of_the_items() -> None:
    batch = Batch(doubled)
    batch.put("1", "2", "3", "4")
    assert await batch.kinds(3) == [(COMPLETED, "2"), (COMPLETED, "4"), (COMPLETED, "6")]
    assert [token for token, _ in batch.link.begun] == [1, 2, 3], "told before it begins"
    assert batch.executor.batches.count_gathered() == {"each": 1}


async def test_a_batch_that_is_not_full_begins_when_its_first_item_has_waited() -> None:
    batch = Batch(doubled)
    batch.put("1")
    await batch.clock.run_for(WAIT - 0.5)
    batch.put("2", first=2)
    assert batch.link.begun == []
    await batch.clock.run_for(0.5)
    assert await batch.kinds(2) == [(COMPLETED, "2"), (COMPLETED, "4")]


async def test_suspects_wait_for_no_others() -> None:
    batch = Batch(doubled)
    batch.put("1", "2", solo=1, incident=1)
    assert await batch.kinds(2) == [(COMPLETED, "2"), (COMPLETED, "4")]


async def test_a_plain_function_runs_in_a_thread_and_knows_its_attempts() -> None:
    def numbers(items: list[int]) -> list[int]:
        with pytest.raises(outlast.NotInAttempt, match=r"outlast\.current_batch\(\)"):
            outlast.current()
        attempts = outlast.current_batch()
        for attempt in attempts:
            with pytest.raises(outlast.UsageError, match="a task that takes one job"):
                attempt.step_sync("a", len, [])
            with (
                closing(sqlite3.connect(":memory:")) as mine,
                pytest.raises(outlast.UsageError, match="a task that takes one job"),
            ):
                asyncio.run(attempt.complete_in(mine, 1))
            with pytest.raises(outlast.UsageError, match="a task that takes one job"):
                asyncio.run(attempt.wait_for(None))  # type: ignore[arg-type]
            with pytest.raises(outlast.UsageError, match="a task that takes one job"):
                asyncio.run(attempt.wait_event("answer", timeout=1))
        return [attempt.token for attempt in attempts]

    batch = Batch(numbers)
    batch.put("1", "2", "3", first=7)
    assert await batch.kinds(3) == [(COMPLETED, "7"), (COMPLETED, "8"), (COMPLETED, "9")]


async def test_hooks_run_once_around_the_call() -> None:
    batch = Batch(doubled)
    seen = []

    @batch.app.around
    async def hook(attempt: outlast.Attempt) -> AsyncIterator[None]:
        seen.append(attempt.token)
        yield

    batch.put("1", "2", "3")
    await batch.ends(3)
    assert seen == [1]


async def test_the_worker_hears_for_each_job_that_the_function_has_ended_before_its_hooks() -> None:
    batch = Batch(doubled)
    go_on = asyncio.Event()

    @batch.app.around
    async def hook(attempt: outlast.Attempt) -> AsyncIterator[None]:
        yield
        await go_on.wait()

    batch.put("1", "2", "3")
    async with asyncio.timeout(60):
        while not batch.link.returned:
            await asyncio.sleep(0)
    assert batch.link.returned == [1, 2, 3]
    batch.executor.stop(2, "timeout")
    go_on.set()
    assert await batch.kinds(3) == [(COMPLETED, "2"), (COMPLETED, "4"), (COMPLETED, "6")]


async def test_a_task_that_returns_nothing_gives_each_job_none() -> None:
    async def nothing(items: list[int]) -> None: ...

    batch = Batch(nothing)
    batch.put("1", "2", "3")
    assert await batch.kinds(3) == [(COMPLETED, "null")] * 3


@each_case(
    ("returned", "said"),
    [([1, 2], "returned 2 results"), ({}, "an object of class dict")],
)
async def test_other_than_a_result_for_each_item_fails_them_all(returned, said) -> None:
    async def odd(items: list[int]) -> list[int]:
        return returned

    batch = Batch(odd)
    batch.put("1", "2", "3")
    for end in await batch.ends(3):
        assert kind_of(end.outcome) is CrashKind.ERROR
        assert said in end.outcome.crash.message  # type: ignore[union-attr]


async def test_an_exception_fails_all_items() -> None:
    async def fails(items: list[int]) -> None:
        raise ValueError("no index")

    batch = Batch(fails, dead_on=[ValueError])
    batch.put("1", "2", "3")
    assert [kind for kind, _ in await batch.kinds(3)] == [OutcomeKind.DEAD] * 3


async def test_item_errors_fail_their_items_only_each_by_the_rules_of_a_job() -> None:
    async def some(items: list[int]) -> list[str]:
        raise outlast.ItemErrors({1: outlast.Snooze(60), 2: LookupError("gone")}, ["a", "?", "?"])

    batch = Batch(some, dead_on=[LookupError])
    batch.put("1", "2", "3")
    kinds = await batch.kinds(3)
    assert kinds == [(COMPLETED, '"a"'), (OutcomeKind.SNOOZED, None), (OutcomeKind.DEAD, None)]


async def test_item_errors_beyond_the_batch_fail_all_items() -> None:
    async def beyond(items: list[int]) -> None:
        raise outlast.ItemErrors({7: LookupError("gone")})

    batch = Batch(beyond)
    batch.put("1", "2", "3")
    for end in await batch.ends(3):
        assert "ItemErrors names item 7" in end.outcome.crash.message  # type: ignore[union-attr]


async def test_an_item_that_cannot_be_decoded_ends_alone() -> None:
    batch = Batch(doubled)
    batch.put("1", '"two"', "3")
    ends = {end.token: end.outcome for end in await batch.ends(3)}
    assert kind_of(ends[2]) is CrashKind.UNDECODABLE
    assert (ends[1].result, ends[3].result) == ("2", "6")


async def test_an_item_that_expires_while_it_gathers_is_not_called() -> None:
    batch = Batch(doubled)
    batch.put("1")
    batch.put("2", first=2, begin_by=batch.clock.boot() + WAIT / 2)
    await batch.clock.run_for(WAIT)
    ends = {end.token: end.outcome for end in await batch.ends(2)}
    assert (ends[1].kind, ends[1].result) == (COMPLETED, "2")
    assert (ends[2].kind, ends[2].began) == (RELEASED, False)


async def test_gathered_attempts_are_recalled_and_never_called() -> None:
    batch = Batch(doubled)
    batch.put("1", "2")
    assert batch.executor.recall([1, 2]) == [1, 2]
    batch.executor.end_recalled()
    assert [kind for kind, _ in await batch.kinds(2)] == [RELEASED] * 2
    assert batch.executor.batches.count_calls() == 0
    await batch.clock.run_for(WAIT)
    assert batch.link.begun == []


class Held:
    """A task that waits until the test lets it go on."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.began, self.go_on = asyncio.Event(), asyncio.Event()
        self.swallows = swallows
        self.cancels = 0

    async def __call__(self, items: list[int]) -> list[int]:
        self.began.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancels += 1
            if not self.swallows:
                raise
        return items


def as_function(task: Held) -> Callable[[list[int]], Any]:
    async def waits(items: list[int]) -> list[int]:
        return await task(items)

    return waits


async def held(*, swallows: bool = False) -> tuple[Batch, Held]:
    task = Held(swallows=swallows)
    batch = Batch(as_function(task))
    batch.put("1", "2", "3")
    await task.began.wait()
    return batch, task


async def test_a_job_that_is_cancelled_ends_so_and_the_others_go_on() -> None:
    batch, task = await held()
    batch.executor.stop(2, StopReason.CANCEL)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.go_on.set()
    assert await batch.kinds(3) == [(COMPLETED, "1"), (CANCELLED, None), (COMPLETED, "3")]
    assert task.cancels == 0


async def test_a_call_stops_once_all_its_jobs_are_cancelled() -> None:
    batch, task = await held()
    for token in (1, 2, 3):
        batch.executor.stop(token, StopReason.CANCEL)
    assert [kind for kind, _ in await batch.kinds(3)] == [CANCELLED] * 3
    assert task.cancels == 1


@each_case("swallows", [False, True])
async def test_a_limit_of_one_job_stops_the_call_and_charges_no_other(swallows: bool) -> None:
    batch, task = await held(swallows=swallows)
    batch.executor.stop(2, StopReason.TIMEOUT)
    ends = {end.token: end.outcome for end in await batch.ends(3)}
    assert kind_of(ends[2]) is CrashKind.TIMEOUT
    assert ends[1].kind is ends[3].kind is RELEASED
    assert task.cancels == 1


@pytest.mark.parametrize("gathers", [False, True])
async def test_a_call_that_is_asked_to_stop_before_its_first_step_stops(gathers: bool) -> None:
    """Start and stop may come in one read of the socket."""
    task = Held()
    batch = Batch(as_function(task))
    batch.put("1", "2", *[] if gathers else ["3"])
    batch.executor.stop(1, StopReason.DRAIN)
    if gathers:
        batch.put("3", first=3)
    assert [kind for kind, _ in await batch.kinds(3)] == [RELEASED] * 3
    assert task.cancels == 1


async def test_a_further_stop_does_not_interrupt_the_clean_up() -> None:
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def tidies(items: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.sleep(0.01)
            cleaned.set()

    batch = Batch(tidies)
    batch.put("1", "2", "3")
    await batch.clock.run_for(0)
    batch.executor.stop(1, StopReason.DRAIN)
    await cleaning.wait()
    batch.executor.stop(2, StopReason.DRAIN)
    await batch.ends(3)
    assert cleaned.is_set()


async def test_a_drain_stops_the_call_once_and_releases_all() -> None:
    batch, task = await held(swallows=True)
    for token in (1, 2, 3):
        batch.executor.stop(token, StopReason.DRAIN)
    assert [kind for kind, _ in await batch.kinds(3)] == [RELEASED] * 3
    assert task.cancels == 1


@each_case("count", [1, 3])
async def test_no_frame_names_one_of_many_as_the_culprit(count: int) -> None:
    names: list[str] = []

    def looks(items: list[int]) -> None:
        names.extend(frame.f_code.co_name for frame, _ in traceback.walk_stack(None))

    batch = Batch(looks)
    batch.put(*["5"] * count, first=40)
    await batch.clock.run_for(WAIT)
    await batch.ends(count)
    marks = {name.rpartition("_")[2] for name in names if is_mark(name)}
    assert marks == {"40" if count == 1 else "0"}
