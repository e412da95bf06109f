"""Back-pressure: no more jobs of a queue wait than the code allows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlast
from outlast.client import back_pressure
from outlast.store.protocol import Store
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, row_of, until

app = in_process_kit.app
store = in_process_kit.store


@pytest.fixture
def mail(app: outlast.App) -> Any:
    """A task whose queue has room for three waiting jobs."""
    app.queue("mail", waiting_max=3)

    @app.task(queue="mail")
    async def mail(n: int) -> int:
        return n

    return mail


async def test_a_full_queue_refuses_more_and_stores_nothing(
    app: outlast.App, store: Store, mail: Any
) -> None:
    for n in range(3):
        await mail.using(delay=0 if n else 3600).enqueue(n)
    with pytest.raises(outlast.QueueFull, match="queue 'mail' is full: 3 jobs wait") as refused:
        await mail.enqueue(3)
    error = refused.value
    assert (error.queue, error.waiting, error.waiting_max) == ("mail", 3, 3)
    with pytest.raises(outlast.QueueFull):
        await app.enqueue_many([mail.call(4)])
    assert await store.inspector.waiting("mail", 10) == 3
    await mail.using(queue="other").enqueue(5)
    assert await store.inspector.waiting("other", 10) == 1


async def test_a_call_that_does_not_fit_whole_is_not_stored(
    app: outlast.App, store: Store, mail: Any
) -> None:
    with pytest.raises(outlast.QueueFull, match="4 more were not enqueued"):
        await app.enqueue_many([mail.call(n) for n in range(4)])
    assert await store.inspector.waiting("mail", 10) == 0
    assert len(await app.enqueue_many([mail.call(n) for n in range(3)])) == 3


async def test_one_that_waits_gets_the_room_that_a_worker_makes(
    app: outlast.App, mail: Any
) -> None:
    await app.enqueue_many([mail.call(n) for n in range(3)])
    with pytest.raises(outlast.QueueFull):
        await mail.using(wait=0.01).enqueue(3)
    waits = asyncio.create_task(mail.using(wait=DEADLINE).enqueue(3))
    async with app.worker():
        job = await waits
        assert await job.result(timeout=DEADLINE) == 3


async def test_jobs_of_other_clients_count_after_a_moment(
    app: outlast.App, store: Store, mail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mail.enqueue(0)
    other = outlast.App(app.url)
    task = other.task(name=mail._task.name, queue="mail")(mail._task.fn)
    await other.enqueue_many([task.call(n) for n in range(5)])
    monkeypatch.setattr(back_pressure, "COUNT_SECONDS", 0.0)
    with pytest.raises(outlast.QueueFull):
        await mail.enqueue(1)
    await other.close()


async def test_limited_and_fair_jobs_are_counted(app: outlast.App, store: Store) -> None:
    app.queue("slow", waiting_max=2)
    one = app.limit("one", running=1)

    @app.task(queue="slow", limits=[one], fair="tenant")
    async def slow() -> None:
        pass

    for tenant in ("a", "b"):
        await slow.using(tenant=tenant).enqueue()
    with pytest.raises(outlast.QueueFull):
        await slow.using(tenant="c").enqueue()


def test_what_cannot_work_is_refused_where_it_is_written(app: outlast.App, mail: Any) -> None:
    with pytest.raises(outlast.ConfigError, match="waiting_max"):
        app.queue("mail", waiting_max=0)
    with pytest.raises(outlast.ConfigError, match="transaction"):
        mail.using(wait=1, connection=object())
    with pytest.raises(outlast.UsageError, match="using\\(wait="):
        mail.using(wait=1).call(1)
    with pytest.raises(outlast.ConfigError, match="wait"):
        mail.using(wait=-1)


async def test_enqueues_at_once_share_the_room(store: Store, mail: Any) -> None:
    calls = (mail.enqueue(n) for n in range(50))
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, outlast.QueueFull) for each in told) == 47
    assert await store.inspector.waiting("mail", 100) == 3


@pytest.mark.parametrize(
    "same", [{}, {"debounce": 3600}, {"on_conflict": "replace"}, {"once_per": 3600}]
)
@pytest.mark.parametrize("many", [False, True])
async def test_calls_that_store_no_job_take_no_room(
    app: outlast.App, store: Store, mail: Any, same: dict[str, Any], many: bool
) -> None:
    """However many calls with one key come within the second for which a count is used."""
    mail = mail.using(key="k", **same)
    for n in range(20):
        await (app.enqueue_many([mail.call(n)]) if many else mail.enqueue(n))
    assert await store.inspector.waiting("mail", 10) == 1


async def test_what_waits_for_others_counts_as_it_comes_and_what_waits_for_an_event_counts(
    app: outlast.App, store: Store, mail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow and children are refused whole; a blocked job counts again once it can run."""
    monkeypatch.setattr(back_pressure, "COUNT_SECONDS", 0.0)

    @app.task(queue="mail", retries=0)
    async def parent() -> None:
        await outlast.current().spawn(outlast.group([mail.call(n) for n in range(4)]))

    @app.task(queue="mail")
    async def asks() -> Any:
        return await outlast.current().wait_event("answer", timeout=3600)

    @app.task(queue="mail", batch=2, batch_wait=0.01)
    async def items(numbers: list[int]) -> list[int]:
        return numbers

    async def all_wait() -> bool:
        rows = [await row_of(job) for job in waiting]
        return {(row.state, row.attempt_count) for row in rows} == {("queued", 1)}

    with pytest.raises(outlast.QueueFull, match="4 more were not enqueued"):
        await app.enqueue(outlast.chain(*[mail.call(n) for n in range(4)]))
    run = await app.enqueue(outlast.chain(*[mail.call(n) for n in range(3)]))
    assert await store.inspector.waiting("mail", 10) == 1
    async with app.worker():
        await run.result(DEADLINE)
        with pytest.raises(outlast.JobFailed, match="4 more were not enqueued"):
            await (await parent.enqueue()).result(DEADLINE)
        waiting = [await asks.enqueue() for _ in range(3)]
        await until(all_wait)
        assert await store.inspector.waiting("mail", 10) == 3
        with pytest.raises(outlast.QueueFull):
            await mail.enqueue(4)
        await app.send_event("answer", 1)
        assert [await job.result(DEADLINE) for job in waiting] == [1] * 3
        batch = [await items.enqueue(n) for n in range(3)]
        assert [await job.result(DEADLINE) for job in batch] == [0, 1, 2]
