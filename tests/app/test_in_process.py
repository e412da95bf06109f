"""``async with app.worker()``: jobs run in the loop of the caller, with what their worker has."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import pytest

import outlast
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import JobFacts
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.values import ClaimRequest, NewWorker
from outlast.store.wakeup import Health
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, row_of

app = in_process_kit.app
store = in_process_kit.store


@pytest.mark.on_both_stores
async def test_jobs_run_and_give_their_results(app: outlast.App) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task
    def shout(word: str) -> str:
        return word.upper()

    async with app.worker():
        sums = [await add.enqueue(n, 1) for n in range(30)]
        word = await shout.enqueue("quiet")
        assert [await job.result(timeout=DEADLINE) for job in sums] == list(range(1, 31))
        assert await word.result(timeout=DEADLINE) == "QUIET"


async def test_tasks_and_hooks_see_their_own_current_job(app: outlast.App) -> None:
    schema = contextvars.ContextVar("schema", default="public")

    @app.around
    async def in_the_tenants_schema(attempt: outlast.Attempt) -> AsyncIterator[None]:
        before = schema.set(f"tenant_{attempt.tenant}")
        yield
        schema.reset(before)

    @app.task
    async def whose() -> tuple[str | None, str]:
        await asyncio.sleep(0)  # the other one runs meanwhile
        return outlast.current().tenant, schema.get()

    async with app.worker():
        jobs = [await whose.using(tenant=tenant).enqueue() for tenant in ("acme", "eu:4", None)]
        assert [await job.result(timeout=DEADLINE) for job in jobs] == [
            ("acme", "tenant_acme"),
            ("eu:4", "tenant_eu:4"),
            (None, "tenant_None"),
        ]
        assert (await jobs[0].refresh()).tenant == "acme"


async def test_a_task_that_requires_tags_runs_only_where_they_are(app: outlast.App) -> None:
    @app.task(requires=["gpu"])
    async def train() -> str:
        return "trained"

    @app.task
    async def plain() -> None:
        pass

    job = await train.enqueue()
    async with app.worker():
        await (await plain.enqueue()).result(timeout=DEADLINE)
        assert await job.status() == "unservable"
    async with app.worker(tags=["gpu"]):
        assert await job.result(timeout=DEADLINE) == "trained"


async def test_attempts_use_no_more_than_their_worker_has(app: outlast.App, store: Store) -> None:
    now: dict[str, int] = {"train": 0, "plain": 0}
    most: dict[str, int] = {"train": 0, "plain": 0}
    enough = asyncio.Event()

    async def run(name: str) -> None:
        now[name] += 1
        most[name] = max(most[name], now[name])
        if now == {"train": 2, "plain": 8}:
            enough.set()
        await asyncio.wait_for(enough.wait(), DEADLINE)
        now[name] -= 1

    @app.task(uses={"gpu": 1})
    async def train() -> None:
        await run("train")

    @app.task
    async def plain() -> None:
        await run("plain")

    jobs = [await train.enqueue() for _ in range(8)] + [await plain.enqueue() for _ in range(20)]
    async with app.worker(has={"gpu": 2}, concurrency=10):
        for job in jobs:
            await job.result(timeout=DEADLINE)
        (row,) = await store.inspector.workers()
        assert row.tags == ["gpu=2"]
    assert most["train"] == 2


async def test_a_worker_with_too_few_units_runs_no_such_task(
    app: outlast.App, store: Store
) -> None:
    @app.task(uses={"gpu": 2})
    async def train() -> str:
        return "trained"

    @app.task
    async def plain() -> None:
        pass

    job = await train.enqueue()
    async with app.worker(has={"gpu": 1}):
        await (await plain.enqueue()).result(timeout=DEADLINE)
        assert await job.status() == "unservable"
        (row,) = await store.inspector.workers()
        assert row.lacks == {"train": ["gpu=2"]}
    async with app.worker(has={"gpu": 3}):
        assert await job.result(timeout=DEADLINE) == "trained"


def test_units_that_cannot_work_are_refused(app: outlast.App) -> None:
    for uses in ({"gpu": 0}, {"gpu": 1.5}, {"": 1}, ["gpu"], {"gpu": True}):
        with pytest.raises(outlast.ConfigError, match="uses"):
            app.task(uses=uses)(asyncio.sleep)  # type: ignore[arg-type]
    with pytest.raises(outlast.ConfigError, match="has of gpu"):
        app.worker(has={"gpu": -1})


async def test_the_last_progress_of_a_task_is_kept(app: outlast.App) -> None:
    @app.task
    async def tells(n: int) -> None:
        outlast.current().report(0.5, "halfway")
        outlast.current().report(1, f"all of {n}")

    @app.task
    def tells_in_a_thread(n: int) -> None:
        outlast.current().report(0.5, "halfway")
        outlast.current().report(1, f"all of {n}")

    async with app.worker():
        calls = [tells.call(n) for n in range(20)]
        calls += [tells_in_a_thread.call(n) for n in range(20, 40)]
        jobs = await app.enqueue_many(calls)
        for job in jobs:
            await job.result(timeout=DEADLINE)
    told = [(await row_of(job)).progress for job in jobs]
    assert told == [Progress(1.0, message=f"all of {n}") for n in range(40)]


async def test_lines_that_cannot_be_written_hold_up_no_checkpoint(
    app: outlast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a person's transaction has locked the table of the lines."""
    begun, printed = asyncio.Event(), asyncio.Event()

    @app.task(logs=True)
    async def saves() -> int:
        begun.set()
        await printed.wait()
        for page in range(3):
            outlast.current().report(page / 3)
            await outlast.current().save({"page": page})
        return outlast.current().token

    async with app.worker() as worker:
        stuck, released = asyncio.Event(), asyncio.Event()

        async def keep_logs(_: object) -> set[int]:
            stuck.set()
            await released.wait()
            return set()

        monkeypatch.setattr(worker._store, "keep_logs", keep_logs)
        job = await saves.enqueue()
        await begun.wait()
        (token,) = worker.in_flight.running
        worker.checkpoints.logs.add(token, b"a line\n")  # as where a runner had printed it
        async with asyncio.timeout(DEADLINE):
            await stuck.wait()
        printed.set()
        assert await job.result(timeout=DEADLINE) == token
        assert (await row_of(job)).checkpoint == {"page": 2}
        released.set()


class DeafWakeup:
    """Cannot be started."""

    health = Health("deaf")

    async def start(self, on_wake: object) -> None:
        raise RuntimeError("no socket")

    async def close(self) -> None:
        """There is nothing to close."""


async def test_a_worker_that_cannot_start_does_not_beat_on(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = AsyncMock(return_value=DeafWakeup())
    monkeypatch.setattr("outlast.worker.assemble.wakeup_for", opened)
    app = outlast.App(sqlite_url)
    with pytest.raises(RuntimeError, match="no socket"):
        async with app.worker():
            pass
    assert "outlast-heartbeat" not in {thread.name for thread in threading.enumerate()}
    store = open_store(sqlite_url)
    await store.open()
    (row,) = await store.inspector.workers()
    assert row.status == "stopped"
    await store.close()
    await app.close()


@pytest.mark.slow_on("sqlite")
async def test_a_suspect_runs_when_it_is_the_only_attempt(app: outlast.App, store: Store) -> None:
    beside: list[set[int]] = []
    running: set[int] = set()

    @app.task
    async def looks_round(seconds: float = 0.0) -> None:
        running.add(me := outlast.current().job_id)
        beside.append(set(running))
        await asyncio.sleep(seconds)
        beside.append(set(running))
        running.discard(me)

    jobs = [await looks_round.enqueue() for _ in range(3)]
    worker = await store.register(
        NewWorker(name="w", host="h", pid=1, boot_id="b", heartbeat=1.0, lease=3.0)
    )
    room = ClaimRequest([looks_round.name], 10)
    claimed = (await store.exchange(worker, [], [room])).claimed
    crash = Crash(kind=CrashKind.BYSTANDER, neighbours=[0])
    ends = []
    for one in claimed:
        facts = JobFacts(job_id=one.job_id, token=one.token)
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, incident=claimed[0].token)
        ends.append(decide(facts, outcome, lambda: 0.5))
    await store.exchange(worker, ends, [])
    others = [await looks_round.enqueue(0.1) for _ in range(5)]
    async with app.worker():
        for job in [*jobs, *others]:
            await job.result(timeout=DEADLINE)
    for job in jobs:
        assert [seen for seen in beside if job.id in seen] == [{job.id}] * 2


def test_a_worker_on_an_event_loop_that_is_not_asyncio_s_says_so(sqlite_url: str) -> None:
    """As trio's: it drives coroutines by itself."""
    entering: Any = outlast.App(sqlite_url).worker().__aenter__()
    with pytest.raises(outlast.UsageError, match="an asyncio event loop"):
        entering.send(None)


async def test_tasks_that_use_units_starve_no_others(app: outlast.App) -> None:
    order: list[str] = []

    @app.task(uses={"gpu": 1})
    async def train() -> None:
        order.append("train")

    @app.task(priority=9)
    async def urgent() -> None:
        order.append("urgent")

    await app.enqueue_many([train.call() for _ in range(200)])
    job = await urgent.enqueue()
    async with app.worker(has={"gpu": 100}, concurrency=4):
        await job.result(timeout=DEADLINE)
    assert order.index("urgent") < 40


async def test_a_job_of_many_units_starts_beside_a_flood_of_small_ones(app: outlast.App) -> None:
    ends: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    @app.task(uses={"gpu": 1})
    async def small() -> None:
        await small.enqueue()
        end = asyncio.Event()
        ends.put_nowait(end)
        await end.wait()

    @app.task(uses={"gpu": 2})
    async def large() -> None:
        pass

    async def end_one_after_the_other(running: list[asyncio.Event]) -> None:
        while True:
            with suppress(TimeoutError):  # none begins while units are kept
                running.append(await asyncio.wait_for(ends.get(), 1))
            running.pop(0).set()
            if not running:
                running.append(await ends.get())

    await app.enqueue_many([small.call() for _ in range(4)])
    async with app.worker(has={"gpu": 2}, concurrency=4, drain_timeout=0.1):
        ending = asyncio.create_task(end_one_after_the_other([await ends.get()]))
        job = await large.enqueue()
        await job.result(timeout=DEADLINE)
        ending.cancel()
