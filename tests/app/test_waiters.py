"""What calls that wait for results cost their store, counted in its trips and connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

import outlast
from outlast.store.inspector import Inspector
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob

WAITERS = 1000
DEADLINE = 120.0


class Counting:
    """Counts the looks at jobs, and how many of them are under way at once."""

    def __init__(self, inspector: Inspector) -> None:
        self._job, self._jobs_of = inspector.job, inspector.jobs_of
        self.alone = self.together = self.under_way = self.most = 0
        inspector.job = self.job  # type: ignore[method-assign,assignment]
        inspector.jobs_of = self.jobs_of  # type: ignore[method-assign]

    async def job(self, job_id: int) -> StoredJob | None:
        self.alone += 1
        return await self._job(job_id)

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> list[StoredJob]:
        self.together += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await self._jobs_of(ids, text_max)
        finally:
            self.under_way -= 1


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[outlast.App]:
    made = outlast.App(store_url)
    yield made
    await made.close()


async def looked_at(store: Store) -> Counting:
    return Counting(store.inspector)


@pytest.mark.slow
async def test_a_thousand_waiters_look_together_and_each_has_its_own_result(
    app: outlast.App,
) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    jobs = await app.enqueue_many([double.call(n) for n in range(WAITERS)])
    counting = await app.stores.ask(looked_at)
    waiters = [asyncio.create_task(job.result(timeout=DEADLINE)) for job in jobs]
    async with asyncio.timeout(DEADLINE):
        while counting.together < 20:  # each has looked some times, and none is done
            await asyncio.sleep(0.01)
    assert counting.alone <= WAITERS + 20, "each looked once by itself, at its begin"
    assert counting.most == 1
    async with app.worker(concurrency=100):
        assert await asyncio.gather(*waiters) == [2 * n for n in range(WAITERS)]
    assert counting.alone <= 2 * WAITERS + 20, "once more, for its result"


async def test_a_waiter_that_leaves_takes_no_other_with_it(app: outlast.App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    job = await double.enqueue(4)
    async with asyncio.TaskGroup() as group:
        stays = group.create_task(job.result(timeout=DEADLINE))
        for seconds in (0.0, 0.01, 0.05, 0.1):
            with pytest.raises(TimeoutError):
                await job.result(timeout=seconds)
            leaves = group.create_task(job.result())
            await asyncio.sleep(0)
            leaves.cancel()
        async with app.worker():
            assert await stays == 8
