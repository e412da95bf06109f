"""Pauses with a worker in process: once it is acknowledged, nothing of it starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import outlast
from outlast.errors import UsageError
from outlast.store.protocol import Store
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, until
from tests.conformance.kit import Hands

app, store = in_process_kit.app, in_process_kit.store

ENDLESS = 3_600.0  # no test waits that long: what it waits for comes before


@pytest.mark.parametrize(
    "target",
    [
        {"queue": "paused"},
        pytest.param({"task": "held"}, marks=pytest.mark.slow_on("sqlite")),
        pytest.param({"tenant": "acme"}, marks=pytest.mark.slow_on("sqlite")),
    ],
)
async def test_nothing_of_a_pause_starts_and_others_go_on(
    app: outlast.App, target: dict[str, Any]
) -> None:
    ran: Counter[str] = Counter()

    @app.task(name="held", queue="paused")
    async def held() -> None:
        ran["held"] += 1

    @app.task
    async def other() -> None:
        ran["other"] += 1

    async with app.worker(concurrency=4):
        for _ in range(20):
            await held.using(tenant="acme").enqueue()
        done = await app.pause(**target, reason="a test", wait=DEADLINE)
        assert done.unacknowledged == []
        before = ran["held"]
        waiting = [await held.using(tenant="acme").enqueue() for _ in range(20)]
        for job in [await other.enqueue() for _ in range(20)]:
            await job.result(DEADLINE)
        assert ran == Counter(held=before, other=20)
        assert {await job.status() for job in waiting} == {"paused"}
        assert [each.reason for each in await app.pauses()] == ["a test"]
        assert await app.resume(**target)
        assert not await app.resume(**target)
        for job in waiting:
            await job.result(DEADLINE)
    assert ran["held"] == 40


async def test_a_pause_of_everything_outlives_workers_and_holds_new_ones(app: outlast.App) -> None:
    ran: list[int] = []

    @app.task
    async def note(number: int) -> None:
        ran.append(number)

    assert (
        await app.pause(everything=True, wait=DEADLINE)
    ).unacknowledged == []  # there is no worker
    job = await note.enqueue(1)
    for _ in range(2):
        async with app.worker():
            assert (
                await app.pause(queue="other", wait=DEADLINE)
            ).unacknowledged == []  # so it has looked
            assert await job.status() == "paused"
    assert ran == []
    async with app.worker():
        await app.resume(everything=True)
        await job.result(DEADLINE)


async def test_running_attempts_go_on_or_are_asked_to_stop_uncharged(app: outlast.App) -> None:
    begun = asyncio.Semaphore(0)
    reasons: list[outlast.StopReason | None] = []

    @app.task(queue="slow")
    async def slow() -> None:
        begun.release()
        try:
            await asyncio.sleep(ENDLESS)
        except asyncio.CancelledError:
            reasons.append(outlast.current().stop_reason)
            raise

    async with app.worker():
        job = await slow.enqueue()
        await begun.acquire()
        await app.pause(queue="slow", wait=DEADLINE)
        assert await job.status() == "running"
        await app.pause(queue="slow", stop=True, wait=DEADLINE)
        await until(lambda: has_state(job, "queued"))
        assert await job.status() == "paused"
        row = await row_of(job)
        assert (row.failures, row.losses, row.attempt_count) == (0, 0, 1)
        assert reasons == [outlast.StopReason.PAUSE]
        await app.resume(queue="slow")
        await begun.acquire()
        await app.cancel(job.id)


async def test_who_has_not_acknowledged_is_named(app: outlast.App, store: Store) -> None:
    await Hands.on(store, "deaf")
    done = await app.pause(queue="q", wait=0.0)
    assert done.unacknowledged == ["deaf"]
    assert [each.unacknowledged for each in await app.pauses()] == [["deaf"]]


async def test_a_wrong_target_is_refused(app: outlast.App) -> None:
    wrongs: list[dict[str, Any]] = [
        {},
        {"queue": "q", "task": "t"},
        {"queue": "q", "everything": True},
    ]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="give one of queue="):
            await app.pause(**wrong)
    for name in ("", "a\0b", "x" * 2_000):
        with pytest.raises(UsageError, match="queue"):
            await app.resume(queue=name)
    with pytest.raises(UsageError, match="reason"):
        await app.pause(queue="q", reason="")
