"""Pauses with a worker in process: once it is acknowledged, nothing of it starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import outlast
from outlast.errors import UsageError
from outlast.store.protocol import Store
from outlast.worker.worker import Worker
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, run_sql, transaction, until
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


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_what_is_saved_when_a_pause_asks_is_where_the_job_goes_on(
    app: outlast.App, is_async: bool
) -> None:
    """Each page once, and no failure or loss."""
    turned: list[int] = []
    begun = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    async def pages() -> None:
        attempt = outlast.current()
        page = attempt.checkpoint or 0
        begun.release()
        try:
            await asyncio.sleep(0 if attempt.number > 1 else ENDLESS)
        except asyncio.CancelledError:
            turned.append(page)
            await attempt.save(page + 1)
            raise
        turned.append(page)

    def pages_in_a_thread() -> None:
        attempt = outlast.current()
        page = attempt.checkpoint or 0
        loop.call_soon_threadsafe(begun.release)
        while attempt.number == 1 and not attempt.stopping:
            attempt.report(message="waits")
        turned.append(page)
        if attempt.stopping:
            attempt.save_sync(page + 1)
            attempt.check()

    task = app.task(queue="slow")(pages if is_async else pages_in_a_thread)
    async with app.worker():
        job = await task.enqueue()
        await begun.acquire()
        await app.pause(queue="slow", stop=True, wait=DEADLINE)
        await until(lambda: has_state(job, "queued"))
        row = await row_of(job)
        assert (row.checkpoint, row.failures, row.losses) == (1, 0, 0)
        await app.resume(queue="slow")
        await job.result(DEADLINE)
    row = await row_of(job)
    assert (turned, row.failures, row.losses, row.attempt_count) == ([0, 1], 0, 0, 2)


@pytest.mark.on_both_stores
@pytest.mark.parametrize("is_committed", [False, True], ids=["before", "after"])
async def test_work_that_a_pause_interrupts_about_its_commit_is_done_once(
    app: outlast.App, store_url: str, is_committed: bool
) -> None:
    """An attempt that stops after its commit has completed."""
    begun = asyncio.Event()
    async with transaction(store_url) as connection:
        await run_sql(connection, "CREATE TABLE effects (token bigint)")

    async def wait_for_the_pause(*, here: bool) -> None:
        if here and outlast.current().number == 1:
            begun.set()
            await asyncio.sleep(ENDLESS)

    @app.task(queue="slow")
    async def pays() -> str:
        attempt = outlast.current()
        async with transaction(store_url) as connection:
            await run_sql(connection, f"INSERT INTO effects VALUES ({attempt.token})")
            await attempt.complete_in(connection, "paid")
            await wait_for_the_pause(here=not is_committed)
        await wait_for_the_pause(here=is_committed)
        return "never stored"

    async with app.worker() as worker:
        job = await pays.enqueue()
        await begun.wait()
        (token,) = worker.in_flight.running
        if is_committed:
            await app.pause(queue="slow", stop=True, wait=DEADLINE)
        else:  # on SQLite the task holds the write lock that a pause would need
            worker.pool.control.stop(token, "pause")
        assert await job.result(DEADLINE) == "paid"
        await until(lambda: is_idle(worker))
    async with transaction(store_url) as connection:
        tokens = [row[0] for row in await run_sql(connection, "SELECT token FROM effects")]
    row = await row_of(job)
    assert tokens == [row.token]
    assert (row.attempt_count, row.failures, row.losses) == (1 if is_committed else 2, 0, 0)


async def is_idle(worker: Worker) -> bool:
    return worker.in_flight.is_empty()


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
