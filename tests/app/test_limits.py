"""Limits as tasks meet them, with a worker in process on each store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast.events import subscribe
from outlast.insight.acting import By, hold_limit
from outlast.model.limits import LimitSpec, Per
from outlast.store.limits import Hold, NewLimit
from outlast.store.protocol import Store
from outlast.testing import inline
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, until
from tests.cases import each_case

app = in_process_kit.app
store = in_process_kit.store


async def test_a_429_holds_the_limit_and_the_job_runs_again_uncharged(app: outlast.App) -> None:
    api = app.limit("api", rate="1000/s", burst=1000)
    calls = 0

    @app.task(limits=[api])
    async def fetch() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise outlast.Throttled(api, after=0.3)
        return calls

    told: list[Any] = []
    end = subscribe(lambda name, fields: told.append((name, fields)))
    async with app.worker():
        first = await fetch.enqueue()
        assert await first.result(timeout=DEADLINE) == 2
        end()
        (event,) = [fields for name, fields in told if name == "limit_throttled"]
        assert (event["limit"], event["job_id"], event["seconds"]) == ("api", first.id, 0.3)
        row = await row_of(first)
        assert (row.attempt_count, row.failures, row.losses) == (2, 0, 0)
        (limit,) = await app.limits.list()
        assert limit.held_until is None or limit.held_until <= row.started_at.timestamp()  # type: ignore[union-attr]


async def test_what_was_spent_holds_up_the_next(app: outlast.App) -> None:
    tokens = app.limit("tokens", rate="10/s", burst=10)

    @app.task(limits=[tokens])
    async def ask() -> None:
        await tokens.spend(10_000)

    @app.task
    async def other() -> None:
        with pytest.raises(outlast.UsageError, match=r"was enqueued without .*tokens"):
            await tokens.spend(1)

    async with app.worker():
        first = await ask.enqueue()
        await first.result(timeout=DEADLINE)
        await (await other.enqueue()).result(timeout=DEADLINE)
        second = await ask.enqueue()
        third = await other.enqueue()
        await third.result(timeout=DEADLINE)
        assert await has_state(second, "queued")


async def test_a_raised_limit_lets_waiting_jobs_start(app: outlast.App) -> None:
    gate = app.limit("gate", running=0)

    @app.task(limits=[gate])
    async def work() -> int:
        return 7

    async with app.worker():
        job = await work.enqueue()

        async def is_known() -> bool:
            return any(each.declared for each in await app.limits.list())

        await until(is_known)
        assert await has_state(job, "queued")
        await app.limits.set("gate", running=1)
        assert await job.result(timeout=DEADLINE) == 7
        (limit,) = await app.limits.list()
        assert (limit.running, limit.declared) == (1, outlast.LimitSpec(running=0))
        await app.limits.reset("gate")
        with pytest.raises(outlast.LimitNotFound, match="no limit 'gaet'"):
            await app.limits.hold("gaet", 5)


async def test_each_call_has_its_twin_for_plain_code(app: outlast.App) -> None:
    app.limit("gate", running=1)
    async with app.worker():

        async def is_known() -> bool:
            return any(each.declared for each in await app.limits.list())

        await until(is_known)

    def plainly() -> list[str]:
        app.limits.set_sync("gate", running=3)
        app.limits.hold_sync("gate", 60)
        app.limits.reset_sync("gate")
        assert app.limits.permits_sync("gate") is not None
        return [limit.name for limit in app.limits.list_sync()]

    assert await asyncio.to_thread(plainly) == ["gate"]


async def test_what_is_changed_at_run_time_is_an_event_in_the_program_that_does_it(
    app: outlast.App, store: Store
) -> None:
    await store.declare_limits([NewLimit("api", LimitSpec(running=1, per=Per.TENANT))])
    told: list[Any] = []
    end = subscribe(lambda name, fields: told.append((name, *fields.values())))
    try:
        await app.limits.set("api", running=3, rate="5/s")
        await app.limits.hold("api", 60, key="acme")
        await hold_limit(store, Hold("api", "", 0.0), By("ada"))
        await app.limits.reset("api", key="acme")
        with pytest.raises(outlast.LimitNotFound):
            await app.limits.set("apy", running=3)
        with pytest.raises(outlast.LimitNotFound):
            await app.limits.hold("apy", 1)
    finally:
        end()
    assert told == [
        ("limit_set", "api", None, 3, 0.2, 5.0, None),
        ("limit_held", "api", "acme", 60.0, None),
        ("limit_held", "api", None, 0.0, "ada"),
        ("limit_reset", "api", "acme", None),
    ]


async def test_ordered_jobs_run_in_order_also_when_one_has_to_run_again(app: outlast.App) -> None:
    turn = app.limit("turn", running=1, per="limit_key", ordered=True)
    ran: list[tuple[str, int]] = []
    failed: set[int] = set()

    @app.task(limits=[turn], backoff_first=0.05, retries=5)
    async def step(key: str, n: int) -> None:
        if n % 3 == 0 and n not in failed:
            failed.add(n)
            raise RuntimeError("once more")
        ran.append((key, n))

    calls = [
        step.using(limit_keys={"turn": key}).call(key, n) for n in range(8) for key in ("a", "b")
    ]
    async with app.worker(concurrency=10):
        jobs = await app.enqueue_many(calls)
        await asyncio.gather(*(job.result(timeout=DEADLINE) for job in jobs))
    for key in ("a", "b"):
        assert [n for its, n in ran if its == key] == list(range(8))


def test_an_ordered_limit_that_cannot_keep_its_order_is_refused(app: outlast.App) -> None:
    with pytest.raises(outlast.ConfigError, match="needs running=1"):
        app.limit("two", running=2, ordered=True)
    with pytest.raises(outlast.ConfigError, match="ordered must be True or False"):
        app.limit("odd", running=1, ordered="yes")  # type: ignore[arg-type]
    turn = app.limit("turn", running=1, ordered=True)

    with pytest.raises(outlast.ConfigError, match="aging lets jobs overtake others"):
        app.task(limits=[turn], aging=60)(asyncio.sleep)

    with pytest.raises(outlast.ConfigError, match="fair lets tenants overtake others"):
        app.task(limits=[turn], fair="tenant")(asyncio.sleep)
    paced = app.limit("paced", rate="60/min", burst=5)
    keyed = app.limit("keyed", running=3, per="limit_key")

    @app.task(limits=[turn, paced, keyed])
    async def parted() -> None:
        pass

    with pytest.raises(outlast.ConfigError, match="other costs would overtake"):
        parted.using(cost={"paced": 2}, limit_keys={"keyed": "k"}).call()
    with pytest.raises(outlast.ConfigError, match="other keys of 'keyed' would overtake"):
        parted.using(limit_keys={"keyed": "k"}).call()

    @app.task(limits=[turn], priority=5)
    async def step() -> None:
        pass

    step.using(priority=5).call()
    with pytest.raises(outlast.ConfigError, match="its jobs have its own priority, 5"):
        step.using(priority=6).call()


async def test_a_throttle_names_a_limit_of_its_task(app: outlast.App) -> None:
    """Else nothing would be held, and the job would snooze without end, uncharged."""
    other = app.limit("other", running=1)
    mine = app.limit("mine", rate="600/min")

    @app.task(limits=[mine], retries=0)
    async def wrong() -> None:
        raise outlast.Throttled(other, after=1)

    job = await wrong.enqueue()
    async with app.worker():
        with pytest.raises(outlast.JobFailed, match="'other', which the task is not under"):
            await job.result(30)


async def test_a_call_without_a_worker_spends_nothing(app: outlast.App) -> None:
    mine = app.limit("mine", rate="600/min")

    @app.task(limits=[mine])
    async def spends() -> int:
        await mine.spend(5)
        return 5

    assert await inline(spends.call()) == 5


@each_case("after", [-1, float("nan"), 1_764_000_000, timedelta(days=32)])
def test_a_throttle_of_an_odd_length_is_refused_where_it_is_raised(after: Any) -> None:
    """Such as the time in X-RateLimit-Reset: all workers would wait for decades."""
    with pytest.raises(outlast.UsageError, match="subtract the current time"):
        raise outlast.Throttled("api", after=after)
