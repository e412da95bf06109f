"""A wait that a task's own code swallows has not passed: the attempt ends by it all the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

import outlast
from outlast import Attempt
from outlast.store.protocol import Store
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, row_of, transaction, until

app = in_process_kit.app
store = in_process_kit.store
HOUR = 3_600.0
ENDS = {"children": "blocked", "event": "waiting", "time": "scheduled"}  # the phase of its job
Wait = Coroutine[Any, Any, None]


async def by_gather(wait: Wait) -> None:
    await asyncio.gather(wait, return_exceptions=True)


async def by_suppress(wait: Wait) -> None:
    with contextlib.suppress(BaseException):
        await wait


async def by_a_bare_except(wait: Wait) -> None:
    try:
        await wait
    except:  # noqa: E722
        await asyncio.sleep(0)


async def by_a_task_whose_end_is_not_read(wait: Wait) -> None:
    await asyncio.wait([asyncio.ensure_future(wait)])


SWALLOWS = {
    each.__name__: each
    for each in (by_gather, by_suppress, by_a_bare_except, by_a_task_whose_end_is_not_read)
}


def waits(app: outlast.App) -> dict[str, Any]:
    @app.task
    async def child() -> None:
        await outlast.current().sleep(HOUR, "busy")

    async def children(attempt: Attempt) -> None:
        await attempt.wait_for(await attempt.spawn(child.call()))

    async def event(attempt: Attempt) -> None:
        await attempt.wait_event(f"go {attempt.job_id}", timeout=HOUR)

    async def time(attempt: Attempt) -> None:
        await attempt.sleep(HOUR, "a while")

    return {"children": children, "event": event, "time": time}


async def phase_after_an_attempt(job: outlast.Job[Any]) -> str:
    async def has_ended() -> bool:
        row = await row_of(job)
        return row.attempt_count == 1 and row.state != "running"

    await until(has_ended)
    return await job.status()


async def test_each_wait_stays_however_it_is_swallowed(app: outlast.App) -> None:
    wait = waits(app)

    @app.task(retries=0)
    async def swallow(kind: str, way: str) -> str:
        await SWALLOWS[way](wait[kind](outlast.current()))
        return "approved"

    jobs = {(kind, way): await swallow.enqueue(kind, way) for kind in ENDS for way in SWALLOWS}
    async with app.worker(concurrency=3):
        phases = {case: await phase_after_an_attempt(job) for case, job in jobs.items()}
        assert phases == {(kind, way): ENDS[kind] for kind, way in jobs}
        approved = jobs["event", "by_gather"]
        await app.send_event(f"go {approved.id}")
        assert await approved.result(DEADLINE) == "approved"


async def test_so_in_plain_code(app: outlast.App) -> None:
    @app.task(retries=0)
    def swallow() -> str:
        attempt = outlast.current()
        with contextlib.suppress(BaseException):
            attempt.wait_event_sync(f"go {attempt.job_id}", timeout=HOUR)
        return "approved"

    async with app.worker():
        job = await swallow.enqueue()
        assert await phase_after_an_attempt(job) == "waiting"
        await app.send_event(f"go {job.id}")
        assert await job.result(DEADLINE) == "approved"


async def test_the_callers_transaction_does_not_complete_it(
    app: outlast.App, store: Store, store_url: str
) -> None:
    @app.task(retries=0)
    async def swallow() -> None:
        attempt = outlast.current()
        with contextlib.suppress(BaseException):
            await attempt.wait_event(f"go {attempt.job_id}", timeout=HOUR)
        async with transaction(store_url) as connection:
            await attempt.complete_in(connection)

    async with app.worker():
        job = await swallow.enqueue()
        assert await phase_after_an_attempt(job) == "waiting"


async def test_the_first_of_several_waits_decides_and_the_others_follow(app: outlast.App) -> None:
    @app.task(retries=0)
    async def both() -> list[Any]:
        attempt = outlast.current()
        names = [f"{name} {attempt.job_id}" for name in ("a", "b")]
        events = [attempt.wait_event(name, timeout=HOUR) for name in names]
        return await asyncio.gather(*events, return_exceptions=True)

    async with app.worker():
        job = await both.enqueue()
        assert await phase_after_an_attempt(job) == "waiting"
        await app.send_event(f"b {job.id}", 2)
        await app.send_event(f"a {job.id}", 1)
        assert await job.result(DEADLINE) == [1, 2]


async def test_finish_says_that_the_work_is_whole_without_it(app: outlast.App) -> None:
    wait = waits(app)

    @app.task(retries=0)
    async def swallow() -> str:
        attempt = outlast.current()
        await by_suppress(wait["event"](attempt))
        return attempt.finish("without it")

    async with app.worker():
        assert await (await swallow.enqueue()).result(DEADLINE) == "without it"


async def test_an_error_after_it_is_an_error(app: outlast.App) -> None:
    wait = waits(app)

    @app.task(retries=0)
    async def swallow() -> None:
        await by_suppress(wait["event"](outlast.current()))
        raise ValueError("not what I meant")

    async with app.worker():
        with pytest.raises(outlast.JobFailed, match="not what I meant"):
            await (await swallow.enqueue()).result(DEADLINE)
