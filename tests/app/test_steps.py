"""Steps of attempts in a worker in process, in the test kit, and in a caller's transaction."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import msgspec
import pytest

import outlast
from outlast.store.protocol import Store
from outlast.testing import inline, isolate
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, transaction, until
from tests.cases import each_case

app = in_process_kit.app
store = in_process_kit.store


class Cover(msgspec.Struct):
    path: str
    size: int


async def test_a_step_is_called_once_and_its_typed_value_is_there_later(app: outlast.App) -> None:
    calls: list[str] = []
    seen: list[Any] = []

    def draw(path: str, *, size: int) -> Cover:
        calls.append(path)
        return Cover(path, size)

    async def nothing() -> None:
        calls.append("nothing")

    returns_none: Any = nothing

    @app.task(retries=2, backoff=0.0)
    async def album(path: str) -> str:
        attempt = outlast.current()
        cover = await attempt.step("cover", draw, path, size=3)
        seen.append((cover, await attempt.step("nothing", returns_none)))
        if attempt.number < 3:
            raise ValueError("not yet")
        return cover.path

    async with app.worker():
        job = await album.enqueue("a.png")
        assert await job.result(timeout=DEADLINE) == "a.png"
    assert calls == ["a.png", "nothing"]
    assert seen == [(Cover("a.png", 3), None)] * 3


async def test_a_plain_task_has_steps_too(app: outlast.App) -> None:
    calls: list[int] = []

    def add(number: int) -> int:
        calls.append(number)
        return number + 1

    @app.task(retries=1, backoff=0.0)
    def adds() -> int:
        attempt = outlast.current()
        total = attempt.step_sync("one", add, 1) + attempt.step_sync("two", add, 2)
        if attempt.number == 1:
            raise ValueError("not yet")
        return total

    async with app.worker():
        assert await (await adds.enqueue()).result(timeout=DEADLINE) == 5
    assert calls == [1, 2]


async def test_a_name_is_used_once_in_an_attempt_unless_its_function_failed() -> None:
    async def fails() -> int:
        raise OSError("refused")

    async def one() -> int:
        return 1

    app = outlast.App("sqlite:////nowhere/production.db")

    @app.task
    async def twice() -> int:
        attempt = outlast.current()
        with pytest.raises(OSError, match="refused"):
            await attempt.step("call", fails)
        assert await attempt.step("call", one) == 1
        return await attempt.step("call", one)

    with pytest.raises(outlast.UsageError, match="'call' was begun before in this attempt"):
        await inline(twice.call())


@each_case("name", ["", "a\nb", "x" * 201, 7, None])
async def test_a_name_is_a_short_printable_text(name: Any) -> None:
    app = outlast.App("sqlite:////nowhere/production.db")

    @app.task
    async def names() -> None:
        await outlast.current().step(name, dict)

    with pytest.raises(outlast.UsageError, match="the name of a step is a printable text"):
        await inline(names.call())


async def test_a_value_that_does_not_fit_is_refused() -> None:
    app = outlast.App("sqlite:////nowhere/production.db")

    def wrong() -> int:
        return "one"  # type: ignore[return-value]

    @app.task
    async def misfits(how: str) -> None:
        attempt = outlast.current()
        if how == "type":
            await attempt.step("wrong", wrong)
        elif how == "size":
            await attempt.step("large", functools.partial(str.ljust, "", 2_000_000))
        else:
            call: Any = functools.partial(attempt.step_sync, "plain", asyncio.sleep, 0)
            await asyncio.to_thread(call)

    with pytest.raises(outlast.BadArguments, match="value of step 'wrong' does not fit int"):
        await inline(misfits.call("type"))
    with pytest.raises(outlast.BadArguments, match="the value of step 'large' has"):
        await inline(misfits.call("size"))
    with pytest.raises(outlast.UsageError, match="must be plain"):
        await inline(misfits.call("async"))


async def test_a_cancelled_step_ends_when_its_thread_does() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    app = outlast.App("sqlite:////nowhere/production.db")

    def slow() -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        loop.call_soon_threadsafe(ended.set)

    @app.task
    async def waits() -> None:
        await outlast.current().step("slow", slow)

    running = asyncio.create_task(inline(waits.call()))
    await begun.wait()
    running.cancel()
    loop.call_later(0, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


@pytest.mark.on_both_stores
async def test_the_writes_of_a_step_and_its_value_are_one_commit(
    app: outlast.App, store: Store, store_url: str
) -> None:
    """The first attempt rolls back, the second commits, the third gets the value."""
    calls: list[int] = []

    async def book(number: int) -> str:
        calls.append(number)
        return f"order {number}"

    @app.task(retries=2, backoff=0.0)
    async def order() -> str:
        attempt = outlast.current()
        async with transaction(store_url) as connection:
            said = await attempt.step_in(connection, "book", book, attempt.number)
            if attempt.number == 1:
                raise ValueError("rolled back")
        if attempt.number == 2:
            raise ValueError("committed")
        return said

    async with app.worker():
        job = await order.enqueue()
        assert await job.result(timeout=DEADLINE) == "order 2"
    assert calls == [1, 2]
    assert [row.name for row in await store.inspector.steps(job.id)] == ["book"]


async def test_a_late_attempt_keeps_no_step(app: outlast.App, store: Store, store_url: str) -> None:
    """Its job is given to another attempt between its function and the store."""
    calls: list[int] = []
    refused: list[str] = []

    @app.task
    async def late(way: str) -> None:
        attempt = outlast.current()

        async def lose() -> int:
            calls.append(attempt.number)
            if attempt.number == 1:
                await give_away(store_url, attempt.job_id)
            return attempt.number

        try:
            if way == "step":
                await attempt.step("lose", lose)
            else:
                async with transaction(store_url) as connection:
                    await attempt.step_in(connection, "lose", lose)
        except outlast.LostLease:
            refused.append(way)
            raise

    for way in ("step", "step_in") if not store_url.startswith("sqlite") else ("step",):
        async with app.worker():
            job = await late.enqueue(way)
            await until(functools.partial(_is_in, way, refused))
        assert await store.inspector.steps(job.id) == []


async def _is_in(one: str, those: list[str]) -> bool:
    return one in those


async def give_away(url: str, job_id: int) -> None:
    """Do as a claim by another worker does: the row has a higher token."""
    async with transaction(url) as connection:
        statement = f"UPDATE outlast_jobs SET token = token + 1000 WHERE id = {job_id}"
        done = connection.execute(statement)
        if asyncio.iscoroutine(done):
            await done


def test_the_test_kit_keeps_steps_through_a_crash() -> None:
    app = outlast.App("sqlite:////nowhere/production.db")
    calls: list[str] = []

    async def draw() -> str:
        calls.append("cover")
        return "drawn"

    @app.task
    async def draws() -> str:
        attempt = outlast.current()
        cover = await attempt.step("cover", draw)
        await attempt.save(1)
        return cover

    with isolate(app) as jobs:
        job = draws.enqueue_sync()
        jobs.crash_after_save(1)
        jobs.drain_sync()
        assert job.result_sync(timeout=0) == "drawn"
    assert calls == ["cover"]


async def test_a_dead_job_that_is_requeued_goes_on_from_its_steps(app: outlast.App) -> None:
    calls: list[int] = []

    async def one() -> int:
        calls.append(1)
        return 1

    @app.task(retries=0)
    async def dies() -> int:
        attempt = outlast.current()
        value = await attempt.step("one", one)
        if attempt.number == 1:
            raise ValueError("dead")
        return value

    async with app.worker():
        job = await dies.enqueue()
        await until(lambda: has_state(job, "dead"))
        await job.requeue()
        assert await job.result(timeout=DEADLINE) == 1
        assert (await row_of(job)).attempt_count == 2
    assert calls == [1]


async def test_a_sleep_gives_the_slot_back_and_is_over_in_the_next_attempt(
    app: outlast.App, store: Store
) -> None:
    calls: list[str] = []
    numbers: list[int] = []

    async def before() -> int:
        calls.append("before")
        return 1

    @app.task(retries=0)
    async def cools() -> str:
        attempt = outlast.current()
        numbers.append(attempt.number)
        await attempt.step("before", before)
        await attempt.sleep(0.2, "cool down")
        return "cool"

    async with app.worker():
        job = await cools.enqueue()
        assert await job.result(timeout=DEADLINE) == "cool"
    assert (calls, (await row_of(job)).failures) == (["before"], 0)
    slept = await store.inspector.attempts(job.id)
    said = {(row.outcome, row.charge, row.message) for row in slept}
    assert said == {("snoozed", "none", "it sleeps: cool down")}
    assert numbers == list(range(1, len(slept) + 2))


async def test_a_sleep_goes_on_in_an_attempt_that_comes_too_soon(
    app: outlast.App, store: Store
) -> None:
    """Its attempt was lost between the step and the end, or a person has let the job run now."""

    @app.task
    def cools() -> None:
        outlast.current().sleep_sync(3_600, "cool down")

    async with app.worker():
        job = await cools.enqueue()
        await until(functools.partial(_slept, store, job.id, 1))
        (step,) = await store.inspector.steps(job.id)
        first = (await row_of(job)).run_at
        await run_now(app.url or "", job.id)
        await until(functools.partial(_slept, store, job.id, 2))
        assert [step] == await store.inspector.steps(job.id)
        second = (await row_of(job)).run_at
    assert abs((second - first).total_seconds()) < 5


async def _slept(store: Store, job_id: int, times: int) -> bool:
    ended = await store.inspector.attempts(job_id)
    return len([row for row in ended if row.outcome == "snoozed"]) >= times


async def run_now(url: str, job_id: int) -> None:
    """Make a job due that waits for its time."""
    async with transaction(url) as connection:
        done = connection.execute(f"UPDATE outlast_jobs SET run_at = 0 WHERE id = {job_id}")
        if asyncio.iscoroutine(done):
            await done
