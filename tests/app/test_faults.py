"""Crashes and lost leases in ``drain``: as production has them, and what they show of a task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import outlast
from outlast.base.sync import run_in_background
from outlast.store import open_store
from outlast.store.rows import AttemptRow, RefusalRow
from outlast.testing import AppUnderTest, isolate
from tests.app import testing_kit
from tests.app.testing_kit import Shop

shop, jobs = testing_kit.shop, testing_kit.jobs


def evidence(jobs: AppUnderTest, job_id: int) -> tuple[list[AttemptRow], list[RefusalRow]]:
    async def look() -> tuple[list[AttemptRow], list[RefusalRow]]:
        store = open_store(jobs.url)
        await store.open()
        found = await store.inspector.attempts(job_id), await store.inspector.refusals(job_id)
        await store.close()
        return found

    return run_in_background(look)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["resumes", "resumes_plainly"])
def test_a_killed_worker_s_job_goes_on_from_its_checkpoint(
    shop: Shop, jobs: AppUnderTest, name: str, n: int
) -> None:
    job = getattr(shop, name).enqueue_sync(4)
    jobs.crash_after_save(n)
    assert jobs.drain_sync() == 2
    assert shop.effects == [0, 1, 2, 3]
    row = job.refresh_sync()
    assert (row.state, row.attempt_count, row.failures) == ("completed", 2, 0)
    (attempt,), refusals = evidence(jobs, job.id)
    assert (attempt.outcome, attempt.charge) == ("lost_worker", "loss")
    assert attempt.token < row.token
    assert "lock file" in attempt.message
    assert refusals == []


def test_the_next_attempt_has_a_higher_token(shop: Shop, jobs: AppUnderTest) -> None:
    shop.resumes.enqueue_sync(4)
    jobs.crash_after_save(2)
    jobs.drain_sync()
    first, second = shop.tokens
    assert first < second


def test_a_task_that_never_looks_at_its_checkpoint_is_found(shop: Shop, jobs: AppUnderTest) -> None:
    shop.restarts.enqueue_sync(3)
    jobs.crash_after_save(2)
    with pytest.raises(AssertionError, match="_restarts does not resume"):
        jobs.drain_sync()


def test_nothing_is_written_after_the_crash(shop: Shop, jobs: AppUnderTest) -> None:
    @shop.app.task
    async def stubborn() -> str:
        attempt = outlast.current()
        if attempt.checkpoint:
            return "done"
        for step in range(1, 4):
            try:
                await attempt.save(step)
                attempt.report(step / 4)
            except BaseException as error:
                shop.effects.append(type(error).__name__)
        return "of the dead"

    job = stubborn.enqueue_sync()
    jobs.crash_after_save(1)
    jobs.drain_sync()
    assert shop.effects == ["Killed", "Killed", "Killed"]
    row = job.refresh_sync()
    assert (row.result, row.checkpoint, row.progress) == ("done", 1, None)


def test_a_killed_attempt_lets_go_of_its_locks(shop: Shop, jobs: AppUnderTest) -> None:
    lock, plain_lock = asyncio.Lock(), threading.Lock()

    @shop.app.task
    async def holds() -> None:
        async with lock:
            if not outlast.current().checkpoint:
                await outlast.current().save(True)

    @shop.app.task
    def holds_plainly() -> None:
        with plain_lock:
            if not outlast.current().checkpoint:
                outlast.current().save_sync(True)

    for task in (holds, holds_plainly):
        job = task.enqueue_sync()
        jobs.crash_after_save(task=task)
        jobs.drain_sync()
        assert job.refresh_sync().attempt_count == 2


def test_others_run_once_while_one_is_hit(shop: Shop, jobs: AppUnderTest) -> None:
    shop.mail.enqueue_sync("before")
    shop.resumes.enqueue_sync(2)
    shop.mail.enqueue_sync("after")
    jobs.crash_after_save(1, task=shop.resumes)
    jobs.drain_sync()
    assert sorted(map(str, shop.effects)) == ["0", "1", "after", "before"]
    assert [job.row and job.row.attempt_count for job in jobs.jobs()] == [1, 2, 1]


@pytest.mark.parametrize("name", ["resumes", "resumes_plainly"])
def test_a_lost_lease_refuses_the_checkpoint_for_real(
    shop: Shop, jobs: AppUnderTest, name: str
) -> None:
    job = getattr(shop, name).enqueue_sync(3)
    jobs.lose_lease(2)
    jobs.drain_sync()
    assert shop.effects == [0, 1, 1, 2]  # the page whose checkpoint was refused is done again
    (attempt,), refusals = evidence(jobs, job.id)
    assert (attempt.outcome, attempt.charge) == ("lost_worker", "loss")
    assert {refusal.verb for refusal in refusals} == {"checkpoint", "end"}
    assert {refusal.token for refusal in refusals} == {attempt.token}
    assert job.refresh_sync().state == "completed"


def test_a_task_that_goes_on_without_its_lease_is_found(shop: Shop, jobs: AppUnderTest) -> None:
    shop.goes_on.enqueue_sync(3)
    jobs.lose_lease()
    with pytest.raises(AssertionError, match="_goes_on went on after LostLease"):
        jobs.drain_sync()


def test_one_whose_last_save_is_refused_has_not_gone_on(shop: Shop, jobs: AppUnderTest) -> None:
    job = shop.goes_on.enqueue_sync(1)
    jobs.lose_lease()
    jobs.drain_sync()
    assert shop.effects == ["swallowed"]
    assert job.refresh_sync().attempt_count == 2


def test_an_effect_happens_twice_unless_the_task_is_idempotent(
    shop: Shop, jobs: AppUnderTest
) -> None:
    charged: dict[str, str] = {}

    @shop.app.task
    async def charge(card: str) -> None:
        charged.setdefault(str(outlast.current().job_id), card)

    shop.mail.enqueue_sync("a@b.example")
    jobs.deliver_twice()
    assert jobs.drain_sync() == 2
    assert shop.effects == ["a@b.example", "a@b.example"]
    charge.enqueue_sync("1234")
    jobs.deliver_twice(task=charge)
    jobs.drain_sync()
    assert list(charged.values()) == ["1234"]


def test_what_completes_in_its_own_transaction_happens_once(shop: Shop, jobs: AppUnderTest) -> None:
    import sqlite3

    @contextmanager
    def connect() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(jobs.url.removeprefix("sqlite:///"))
        try:
            with connection:
                connection.execute("CREATE TABLE IF NOT EXISTS paid (who)")
                yield connection
        finally:
            connection.close()

    @shop.app.task
    def pay(who: str) -> None:
        with connect() as connection:
            connection.execute("INSERT INTO paid VALUES (?)", [who])
            outlast.current().complete_in_sync(connection)

    job = pay.enqueue_sync("Emma")
    jobs.deliver_twice()
    assert jobs.drain_sync() == 1
    assert (job.refresh_sync().state, job.refresh_sync().attempt_count) == ("completed", 1)
    with connect() as connection:
        assert connection.execute("SELECT who FROM paid").fetchall() == [("Emma",)]


def test_a_fault_that_does_not_happen_fails_the_test(shop: Shop, jobs: AppUnderTest) -> None:
    shop.resumes.enqueue_sync(2)
    jobs.crash_after_save(3)
    with pytest.raises(AssertionError, match="no attempt saved 3 checkpoints; the most were 2"):
        jobs.drain_sync()
    jobs.lose_lease(task=shop.restarts)
    with pytest.raises(AssertionError, match="no attempt of _restarts saved 1 checkpoints"):
        jobs.drain_sync()
    jobs.deliver_twice()
    with pytest.raises(AssertionError, match="no attempt completed"):
        jobs.drain_sync()
    jobs.deliver_twice()
    with pytest.raises(outlast.UsageError, match="set one at a time"):
        jobs.lose_lease()
    shop.mail.enqueue_sync("a")
    jobs.drain_sync()


def test_a_fault_without_a_drain_fails_the_test(shop: Shop) -> None:
    with (
        pytest.raises(AssertionError, match="was not called after it"),
        isolate(shop.app) as jobs,
    ):
        jobs.crash_after_save()


def test_a_clean_up_after_lost_lease_is_no_going_on(shop: Shop, jobs: AppUnderTest) -> None:
    @shop.app.task
    async def tidy() -> None:
        attempt = outlast.current()
        try:
            await attempt.save(1)
        except outlast.LostLease:
            attempt.report(0.0, "giving up")
            shop.effects.append("tidied")
            raise

    job = tidy.enqueue_sync()
    jobs.lose_lease()
    assert jobs.drain_sync() == 2
    assert shop.effects == ["tidied"]
    assert job.refresh_sync().state == "completed"


@pytest.mark.parametrize("fault", ["crash_after_save", "lose_lease", "deliver_twice"])
def test_what_is_hit_behind_many_fast_jobs_is_hit_alone(
    shop: Shop, jobs: AppUnderTest, fault: str
) -> None:
    """Nothing is claimed before it has a slot: it would begin in the dead worker."""
    calls = [shop.mail.call(str(number)) for number in range(300)]
    shop.app.enqueue_many_sync([*calls, shop.resumes.call(2), *calls])
    getattr(jobs, fault)(task=shop.resumes)
    assert jobs.drain_sync() == 602
    counts = [job.row.attempt_count for job in jobs.jobs() if job.row]
    assert counts == [*[1] * 300, 2, *[1] * 300]


def test_what_an_attempt_has_left_behind_writes_nothing(shop: Shop, jobs: AppUnderTest) -> None:
    left: list[asyncio.Task[None]] = []

    @shop.app.task
    async def leaves() -> None:
        attempt = outlast.current()

        async def later() -> None:
            await until_killed.wait()
            await attempt.save("of the dead")

        if not attempt.checkpoint:
            left.append(asyncio.create_task(later()))
            await attempt.save("of the living")
        else:
            until_killed.set()
            await asyncio.wait(left)

    until_killed = asyncio.Event()
    job = leaves.enqueue_sync()
    jobs.crash_after_save()
    jobs.drain_sync()
    assert type(left[0].exception()).__name__ == "Killed"
    assert job.refresh_sync().checkpoint == "of the living"
