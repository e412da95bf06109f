"""Jobs in odd surroundings: another event loop, snoozes without an end, times at the bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

import outlast
from outlast.base.config import SECONDS_MAX
from outlast.model.job import State

DEADLINE = 60.0


@pytest.mark.slow_on("sqlite")
def test_everything_works_on_uvloop(store_url: str) -> None:
    uvloop = pytest.importorskip("uvloop")
    app = outlast.App(store_url)

    @app.task
    async def double(n: int) -> int:
        outlast.current().report(0.5)
        await outlast.current().save(n)
        return 2 * n

    @app.task
    def triple(n: int) -> int:
        outlast.current().save_sync(n)
        return 3 * n

    async def work() -> list[int]:
        async with app.worker(concurrency=4):
            jobs = await app.enqueue_many([task.call(7) for task in (double, triple)])
            return [await job.result(timeout=DEADLINE) for job in jobs]

    for _ in range(2):
        assert uvloop.run(work()) == [14, 21]
    assert double.enqueue_sync(1).id == 5
    app.close_sync()


async def test_a_job_that_snoozes_again_and_again_lets_the_others_pass(store_url: str) -> None:
    app = outlast.App(store_url)
    enough = False

    @app.task
    async def restless() -> str:
        if enough:
            return "at last"
        raise outlast.Snooze(0)

    @app.task
    async def works(n: int) -> int:
        return n

    async with app.worker(concurrency=1):
        first = await restless.enqueue()
        jobs = [await works.enqueue(n) for n in range(20)]
        assert [await job.result(timeout=DEADLINE) for job in jobs] == list(range(20))
        enough = True
        assert await first.result(timeout=DEADLINE) == "at last"
    row = await first.refresh()
    assert (row.failures, row.losses) == (0, 0)
    await app.close()


@pytest.mark.parametrize(
    "at",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.max.replace(tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ],
    ids=["first", "last", "last_in_utc", "epoch"],
)
async def test_a_job_can_be_due_at_any_time_that_there_is(store_url: str, at: datetime) -> None:
    app = outlast.App(store_url)
    mail = app.task(name="mail")(lambda to: None)
    job = await mail.using(at=at).enqueue("a")
    row = await job.refresh()
    assert row.state is State.QUEUED
    assert row.run_at.tzinfo is not None
    assert (await job.status() == "scheduled") is (at.year > 2000)
    await app.close()


@pytest.mark.parametrize("delay", [1e-9, SECONDS_MAX, timedelta.resolution])
async def test_a_delay_can_be_as_short_and_as_long_as_is_accepted(
    store_url: str, delay: float
) -> None:
    app = outlast.App(store_url)
    mail = app.task(name="mail", backoff_first=delay, backoff_max=SECONDS_MAX)(lambda to: None)
    job = await mail.using(delay=delay).enqueue("a")
    row = await job.refresh()
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    assert abs((row.run_at - row.enqueued_at).total_seconds() - seconds) < 0.001
    await app.close()
