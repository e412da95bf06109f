"""``outlast.testing.isolate``: an application on a store of the test's own, and a real worker."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import outlast
from outlast.insight.verify import verify
from outlast.store import open_store
from outlast.testing import AppUnderTest, isolate
from tests.app import testing_kit
from tests.app.testing_kit import Shop

shop, jobs = testing_kit.shop, testing_kit.jobs


def path_of(jobs: AppUnderTest) -> Path:
    return Path(jobs.url.removeprefix("sqlite:///"))


def test_jobs_and_those_that_they_enqueue_run_until_nothing_is_due(
    shop: Shop, jobs: AppUnderTest
) -> None:
    for number in range(3):
        shop.order.enqueue_sync(number)
    assert shop.effects == []
    assert jobs.drain_sync() == 6
    assert sorted(shop.effects) == ["customer 0", "customer 1", "customer 2"]
    assert [job.row and job.row.state for job in jobs.jobs()] == ["completed"] * 6
    assert [job.task for job in jobs.jobs(shop.mail)] == ["_mail"] * 3
    assert jobs.drain_sync() == 0


async def test_an_async_test_drains_in_its_own_loop(shop: Shop, jobs: AppUnderTest) -> None:
    loops = []

    @shop.app.task
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    await where.enqueue()
    jobs.enqueued(where)
    assert await jobs.drain() == 1
    assert loops == [asyncio.get_running_loop()]


async def test_the_history_of_a_drain_holds_every_rule(shop: Shop, jobs: AppUnderTest) -> None:
    await shop.resumes.enqueue(3)
    await shop.fails_once.enqueue()
    jobs.crash_after_save(2)
    await jobs.drain(may_fail=True)
    store = open_store(jobs.url)
    await store.open()
    report = await verify(store.inspector)
    await store.close()
    assert report.violations == []
    assert report.jobs == 2


def test_afterwards_the_application_uses_its_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    shop.app.url = own = f"sqlite:///{tmp_path}/own.db"
    before = shop.mail.enqueue_sync("before")
    for _ in range(2):  # each isolation is empty at first
        with isolate(shop.app) as jobs:
            assert jobs.jobs() == []
            assert shop.app.url == jobs.url != own
            shop.mail.enqueue_sync("meanwhile")
            monkeypatch.setenv("OUTLAST_WAKEUP", "nats://nowhere.invalid")
            assert shop.app.wakeup is None
            shop.mail.enqueue_sync("meanwhile, too")  # no messenger is asked
            path = path_of(jobs)
            assert path.exists()
        monkeypatch.delenv("OUTLAST_WAKEUP")
        assert not path.exists()
        assert shop.app.url == own
    assert shop.mail.enqueue_sync("after").id == before.id + 1
    shop.app.close_sync()


def test_the_store_of_a_test_does_not_wait_for_the_disk(shop: Shop, jobs: AppUnderTest) -> None:
    async def synchronous() -> int:
        store = await shop.app.stores.store()
        connection = store._connection  # type: ignore[attr-defined]
        pragma = "PRAGMA synchronous"
        found: int = await connection.read(lambda it, _: it.execute(pragma).fetchone()[0])
        return found

    from outlast.base.sync import run_in_background

    assert run_in_background(synchronous) == 0


def test_a_task_that_fails_fails_the_test_unless_it_may(shop: Shop, jobs: AppUnderTest) -> None:
    job = shop.fails_once.enqueue_sync()
    with pytest.raises(
        AssertionError, match=r"(?s)_fails_once \(job 1\) failed.*no card.*may_fail"
    ):
        jobs.drain_sync()
    shop.effects.clear()
    assert jobs.drain_sync() == 0  # its back-off has not passed
    jobs.travel(timedelta(hours=1))
    assert jobs.drain_sync(may_fail=True) == 1
    jobs.travel(3600)
    assert jobs.drain_sync() == 1
    assert job.refresh_sync().state == "completed"


def test_time_travels_for_delays_and_for_limits(shop: Shop, jobs: AppUnderTest) -> None:
    later = shop.mail.using(delay=3600).enqueue_sync("in an hour")
    gone = shop.mail.using(delay=10, expires=60).enqueue_sync("too late")
    assert jobs.drain_sync() == 0
    jobs.travel(3599 + 60)
    assert jobs.drain_sync() == 1
    assert shop.effects == ["in an hour"]
    assert later.refresh_sync().state == "completed"
    assert gone.refresh_sync().reason == "expired"


def test_time_travels_over_the_windows_of_a_key(shop: Shop, jobs: AppUnderTest) -> None:
    """Six times twenty minutes: two hours, or three, if the first call is late in its hour."""
    mail = shop.mail.using(key="acme", once_per=timedelta(hours=1))
    stored = []
    for _ in range(6):
        stored.append(mail.enqueue_sync("digest"))
        jobs.drain_sync()
        jobs.travel(1_200)
    assert stored[0].created
    assert [each.created for each in stored].count(True) in {2, 3}
    assert len(shop.effects) == len({each.id for each in stored}) in {2, 3}


def test_time_travels_for_the_caller_s_own_transaction(shop: Shop, jobs: AppUnderTest) -> None:
    jobs.travel(86_400)
    shop.mail.enqueue_sync("makes the file")
    with closing(sqlite3.connect(path_of(jobs))) as connection, connection:
        shop.mail.using(connection=connection, delay=60).enqueue_sync("in a minute")
    assert jobs.drain_sync() == 1
    jobs.travel(60)
    assert jobs.drain_sync() == 1
    assert shop.effects == ["makes the file", "in a minute"]


def test_a_schedule_of_the_code_ticks_when_time_travels(shop: Shop, jobs: AppUnderTest) -> None:
    shop.app.schedule("nightly", shop.mail.call("report"), every=86_400)
    jobs.travel(86_400)
    assert jobs.drain_sync() == 1
    jobs.travel(86_400)
    jobs.drain_sync()
    assert shop.effects == ["report", "report"]
    assert len(jobs.jobs(shop.mail)) == 2


@pytest.mark.slow_but("[1")
@pytest.mark.parametrize("days", [1, 31])
def test_one_drain_fires_a_cron_line_whose_ticks_have_passed_by_the_thousand(
    shop: Shop, jobs: AppUnderTest, days: int
) -> None:
    shop.app.schedule("minutely", shop.mail.call("report"), cron="* * * * *")
    jobs.travel(timedelta(days=days))
    assert jobs.drain_sync() == 1
    assert shop.effects == ["report"]


def test_a_paused_task_waits(shop: Shop, jobs: AppUnderTest) -> None:
    shop.app.pause_sync(task="_mail", wait=0)
    shop.mail.enqueue_sync("a")
    assert jobs.drain_sync() == 0
    shop.app.resume_sync(task="_mail")
    assert jobs.drain_sync() == 1


def test_a_task_that_requires_tags_runs_and_hooks_do(shop: Shop, jobs: AppUnderTest) -> None:
    @shop.app.lifespan
    def engines() -> Iterator[str]:
        shop.effects.append("open")
        yield "an engine"
        shop.effects.append("close")

    @shop.app.around
    def scoped(attempt: outlast.Attempt) -> Iterator[None]:
        shop.effects.append(attempt.resources)
        yield

    @shop.app.task(requires=["gpu"])
    def train() -> None:
        shop.effects.append("trained")

    train.enqueue_sync()
    assert jobs.drain_sync() == 1
    assert shop.effects == ["open", "an engine", "trained", "close"]


def test_a_limit_ends_an_attempt(shop: Shop, jobs: AppUnderTest) -> None:
    @shop.app.task(timeout=0.05, retries=0)
    async def hangs() -> None:
        await asyncio.Event().wait()

    job = hangs.enqueue_sync()
    assert jobs.drain_sync(may_fail=True) == 1
    assert job.refresh_sync().state == "dead"


async def test_app_worker_works_in_an_isolation_too(shop: Shop, jobs: AppUnderTest) -> None:
    jobs.travel(3600)
    async with shop.app.worker():
        job = await shop.mail.enqueue("a")
        assert await job.result(timeout=60) == "a"


def test_what_cannot_work_says_so(shop: Shop, jobs: AppUnderTest) -> None:
    @shop.app.task
    async def meddles() -> None:
        with pytest.raises(outlast.UsageError, match="a task cannot call it"):
            await jobs.drain()
        with pytest.raises(outlast.UsageError, match="cannot run during drain"):
            jobs.travel(1)
        with pytest.raises(outlast.SyncInLoop, match="make it in your test"):
            jobs.enqueued(meddles)

    meddles.enqueue_sync()
    jobs.drain_sync()
    with pytest.raises(outlast.ConfigError, match="seconds"):
        jobs.travel(-1)
    with pytest.raises(outlast.ConfigError, match="concurrency"):
        jobs.drain_sync(concurrency=0)


@pytest.mark.parametrize("name", ["shop", "attest"])
def test_no_database_is_emptied_that_is_not_for_tests(shop: Shop, name: str) -> None:
    with (
        pytest.raises(outlast.ConfigError, match="may hold real jobs"),
        isolate(shop.app, f"postgresql://user:secret@localhost/{name}"),
    ):
        pytest.fail("it is isolated")


@pytest.mark.parametrize("kind", ["file", "server"])
def test_a_store_of_the_test_s_loop_is_closed_by_that_loop(
    kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop()
    url = None if kind == "file" else request.getfixturevalue("pg_url")
    with asyncio.Runner() as runner:
        with isolate(shop.app, url):
            runner.run(shop.mail.enqueue("a"))
        gc.collect()  # as it may in any test: what is collected before is not closed in order
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


class TestOnPostgres:
    """The same on a server, whose tables stay."""

    def test_a_database_is_emptied_before_and_after(self, shop: Shop, pg_url: str) -> None:
        shop.app.url = pg_url
        shop.mail.enqueue_sync("left by an earlier test")
        shop.app.close_sync()
        for _ in range(2):
            with isolate(shop.app, pg_url) as jobs:
                assert jobs.jobs() == []
                shop.app.pause_sync(task="_order", wait=0)
                shop.app.schedules.put_sync("tick", shop.mail.call("tick"), every=86_400)
                shop.order.enqueue_sync(1)
                shop.mail.enqueue_sync("a")
                assert jobs.drain_sync() == 1
        assert shop.effects == ["a", "a"]
        assert shop.app.pauses_sync() == []
        assert shop.app.schedules.list_sync() == []
        shop.app.close_sync()

    async def test_faults_are_those_of_a_file(self, shop: Shop, pg_url: str) -> None:
        with isolate(shop.app, pg_url) as jobs:
            crashed = await shop.resumes.enqueue(3)
            jobs.crash_after_save(2)
            await jobs.drain()
            assert shop.effects == [0, 1, 2]
            lost = await shop.resumes.enqueue(3)
            jobs.lose_lease(2)
            await jobs.drain()
            assert shop.effects == [0, 1, 2, 0, 1, 1, 2]
            assert [(await job.refresh()).attempt_count for job in (crashed, lost)] == [2, 2]
            with pytest.raises(outlast.UsageError, match="has its own clock"):
                jobs.travel(1)
