"""A worker in the caller's loop: what ends a job, and what stops the worker while jobs run."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

import outlast
from outlast.insight.queries import read_details
from outlast.insight.why import why
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.store.protocol import Store
from outlast.store.values import Orphan
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, until
from tests.conformance.kit import reap

app = in_process_kit.app
store = in_process_kit.store


async def test_a_worker_asked_to_drain_ends_while_its_block_goes_on(
    app: outlast.App, store: Store
) -> None:
    @app.task
    async def plain() -> None:
        pass

    async with app.worker(heartbeat=0.1, lease=30.0), asyncio.timeout(DEADLINE):
        await (await plain.enqueue()).result()
        (row,) = await store.inspector.workers()
        await store.request_drain([row.id])
        while (await store.inspector.workers())[0].status != "stopped":
            await asyncio.sleep(0.01)
        late = await plain.enqueue()
    assert await late.status() == "unservable"
    (row,) = await store.inspector.workers()
    assert row.status == "stopped"


async def test_a_job_that_expires_before_a_worker_comes_never_runs(app: outlast.App) -> None:
    ran: list[str] = []

    @app.task(backoff_first=600)
    async def notes(text: str) -> None:
        ran.append(text)
        if text == "twice":
            raise RuntimeError("once more, in ten minutes")

    late = await notes.using(expires=0.001).enqueue("late")
    twice = await notes.using(expires=60).enqueue("twice")
    good = await notes.using(expires=600).enqueue("good")
    await until(lambda: has_expired(late))
    async with app.worker():
        await good.result(timeout=DEADLINE)
        with pytest.raises(outlast.JobCancelled, match="expired: it had not begun") as caught:
            await late.result(timeout=DEADLINE)
    assert caught.value.reason == "expired"
    assert sorted(ran) == ["good", "twice"]
    row = await late.refresh()
    assert (row.state, row.reason, row.attempt_count) == ("cancelled", "expired", 0)
    assert (await twice.refresh()).expires_at is None, "it has begun in time"


async def test_a_task_sees_the_notes_and_labels_of_its_job(app: outlast.App) -> None:
    @app.task
    async def reads() -> Any:
        return [outlast.current().meta, *outlast.current().labels]

    async with app.worker():
        for meta in ({"trace": {"id": [1, None]}}, {"quotes": '"' * 2_000, "null": "\0"}):
            job = await reads.using(meta=meta, labels=["import", "acme"]).enqueue()
            assert await job.result(timeout=DEADLINE) == [meta, "import", "acme"]
        assert await (await reads.enqueue()).result(timeout=DEADLINE) == [{}]


async def has_expired(job: outlast.Job[Any]) -> bool:
    """Whether its time is over, by this machine's clock, which is the store's here."""
    expires_at = (await job.refresh()).expires_at
    assert expires_at is not None
    return expires_at < datetime.now(UTC)


async def test_a_worker_deletes_dead_jobs_only_where_it_is_told_to(app: outlast.App) -> None:
    @app.task(retries=0)
    async def fails() -> None:
        raise RuntimeError("nothing helps")

    @app.task
    async def works() -> None:
        pass

    async with app.worker():
        done, dead = await works.enqueue(), await fails.enqueue()
        with pytest.raises(outlast.JobFailed):
            await dead.result(timeout=DEADLINE)
        await done.result(timeout=DEADLINE)
    async with app.worker(keep_completed=0):
        await until(lambda: is_gone(done))
        assert await dead.status() == "dead"
    async with app.worker(keep_dead=0):
        await until(lambda: is_gone(dead))


async def is_gone(job: outlast.Job[Any]) -> bool:
    try:
        await job.refresh()
    except outlast.JobNotFound:
        return True
    return False


async def test_a_dead_job_shows_its_reason(app: outlast.App) -> None:
    @app.task(retries=1, backoff_first=0.01)
    async def fails() -> None:
        raise RuntimeError("nothing helps")

    async with app.worker():
        job = await fails.enqueue()
        with pytest.raises(outlast.JobFailed, match="nothing helps") as failed:
            await job.result(timeout=DEADLINE)
    assert failed.value.report is not None
    assert failed.value.report.kind is CrashKind.ERROR
    assert "nothing helps" in (failed.value.report.traceback or "")


async def test_verdicts_take_effect_also_when_the_task_swallows_them(app: outlast.App) -> None:
    @app.task
    async def decides(verdict: str) -> str:
        attempt = outlast.current()
        if attempt.number > 1:
            return f"{attempt.number}, {attempt.failures} charged"
        try:
            if verdict == "snooze":
                raise outlast.Snooze(0.05)
            if verdict == "retry":
                raise outlast.Retry(after=0.05)
            if verdict == "cancel":
                raise outlast.Cancel("no use")
            raise outlast.Dead("no hope")
        except Exception:
            return "swallowed"

    async with app.worker():
        jobs = {
            verdict: await decides.enqueue(verdict)
            for verdict in ("snooze", "retry", "cancel", "dead")
        }
        assert await jobs["snooze"].result(timeout=DEADLINE) == "2, 0 charged"
        assert await jobs["retry"].result(timeout=DEADLINE) == "2, 1 charged"
        with pytest.raises(outlast.JobCancelled):
            await jobs["cancel"].result(timeout=DEADLINE)
        with pytest.raises(outlast.JobFailed, match="no hope"):
            await jobs["dead"].result(timeout=DEADLINE)


async def test_a_running_job_is_cancelled(app: outlast.App) -> None:
    stopped: list[str | None] = []

    @app.task
    async def waits() -> None:
        attempt = outlast.current()
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append(attempt.stop_reason)

    async with app.worker(heartbeat=0.1, lease=30):
        job = await waits.enqueue()
        await until(lambda: has_state(job, "running"))
        await job.cancel()
        with pytest.raises(outlast.JobCancelled):
            await job.result(timeout=DEADLINE)
    assert stopped == ["cancel"]


@pytest.mark.on_both_stores
async def test_a_worker_that_lost_its_lease_stops_and_its_late_writes_are_refused(
    app: outlast.App, store: Store
) -> None:
    lost: list[BaseException] = []
    reclaimed = asyncio.Event()

    @app.task
    async def goes_on() -> str:
        attempt = outlast.current()
        if attempt.number > 1:
            return "the second"
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await reclaimed.wait()  # a beat may notice the reap before the job is reclaimed
            try:
                await attempt.save({"late": True})
            except outlast.LostLease as error:
                lost.append(error)
            raise
        return "the first"

    async with app.worker(heartbeat=0.1, lease=30):
        job = await goes_on.enqueue()
        await until(lambda: has_state(job, "running"))
        (seen,) = (await store.observe()).workers
        while not await reap(store, seen):
            (seen,) = (await store.observe()).workers
        await store.reclaim(_lost)
        reclaimed.set()
        assert await job.result(timeout=DEADLINE) == "the second"
        row = await row_of(job)
        assert (row.checkpoint, row.attempt_count) == (None, 2)


def _lost(orphan: Orphan) -> Any:
    crash = Crash(kind=CrashKind.LOST_WORKER, message="reaped by the test")
    return decide(orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash), lambda: 0.0)


async def test_leaving_the_block_releases_what_still_runs(app: outlast.App, store: Store) -> None:
    @app.task
    async def waits() -> None:
        await asyncio.sleep(600)

    async with app.worker(drain_timeout=0.1):
        job = await waits.enqueue()
        await until(lambda: has_state(job, "running"))
    row = await store.inspector.job(job.id)
    assert row is not None
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
    (worker,) = await store.inspector.workers()
    assert worker.status == "stopped"


@pytest.mark.slow_on("sqlite")
async def test_a_save_after_the_worker_has_left_is_a_lost_lease(app: outlast.App) -> None:
    """It goes on in its thread, and without the refusal would wait forever."""
    started, left = threading.Event(), threading.Event()
    said: list[BaseException | None] = []

    @app.task
    def goes_on() -> None:
        attempt = outlast.current()
        started.set()
        left.wait(DEADLINE)
        try:
            attempt.save_sync(1)
        except outlast.LostLease as error:
            said.append(error)

    async with app.worker(drain_timeout=0):
        await goes_on.enqueue()
        await asyncio.to_thread(started.wait, DEADLINE)
    left.set()

    async def refused() -> bool:
        return bool(said)

    await until(refused)


async def test_an_error_that_is_not_worth_another_attempt_ends_the_job(
    app: outlast.App, store: Store
) -> None:
    @app.task(retry_on=OSError, backoff=[0.01])
    async def reads() -> None:
        if outlast.current().number == 1:
            raise ConnectionError("the page is away")
        raise ValueError("no page 7")

    async with app.worker(), asyncio.timeout(DEADLINE):
        job = await reads.enqueue()
        await until(lambda: has_state(job, "dead"))
    row = await row_of(job)
    assert (row.attempt_count, row.failures) == (2, 2)
    first, second = await store.inspector.attempts(job.id)
    assert (first.outcome, second.outcome) == ("error", "dead")
    assert row.ended_at is not None
    facts = await read_details(store, job.id, row.ended_at.timestamp())
    assert facts is not None
    (died, last) = why(facts).sentences
    assert "a retry could not help" in died
    reason = "no further attempt: retry_on does not name ValueError"
    assert last == f"Attempt 2 was the last: ValueError: no page 7 ({reason})."
