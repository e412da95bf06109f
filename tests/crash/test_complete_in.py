"""Work and completion in one transaction: exactly once, or not at all."""

from __future__ import annotations

import pytest

from harness.scene import Scene
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.values import Orphan
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import reap
from tests.crash.kit import IMPATIENT
from tests.crash.payments import EFFECTS

PATIENT = ("--heartbeat", "10", "--lease", "30")
PAYMENTS = {"OUTLAST_TEST_APP": "tests.crash.payments:app"}


async def prepare(stage: Scene) -> None:
    async with raw(stage.url) as file:
        assert await file.run(EFFECTS)


async def effects(stage: Scene) -> list[tuple[int, int]]:
    async with raw(stage.url) as file:
        rows = await file.rows("SELECT job, token FROM effects ORDER BY token")
        return [(job, token) for job, token in rows]


@pytest.fixture
async def shop(stage: Scene) -> Scene:
    await prepare(stage)
    return stage


@pytest.fixture
async def pg_shop(pg_stage: Scene) -> Scene:
    await prepare(pg_stage)
    return pg_stage


async def test_a_stale_attempt_rolls_the_users_writes_back(shop: Scene) -> None:
    await shop.worker(*PATIENT, env=PAYMENTS)
    flag = shop.folder / "flag"
    job = await shop.enqueue("pays_once_the_flag_is_up", flag=str(flag))
    first = await shop.started(1)
    (seen,) = (await shop.store.observe()).workers
    assert await reap(shop.store, seen)
    assert len(await shop.store.reclaim(_lost)) == 1
    flag.touch()

    await shop.until(lambda: shop.store.inspector.refusals(job), "the refusal of the stale attempt")
    assert (first["token"],) not in [(token,) for _, token in await effects(shop)]
    row = await shop.ended(job)
    assert row.state is State.COMPLETED
    assert await effects(shop) == [(job, row.token)]


def _lost(orphan: Orphan) -> Transition:
    crash = Crash(kind=CrashKind.LOST_WORKER, message="reaped by the test")
    return decide(orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash), lambda: 0.0)


@pytest.mark.short("completion_not_committed")
async def test_a_commit_that_failed_and_was_swallowed_is_not_a_completion(shop: Scene) -> None:
    await shop.worker(env=PAYMENTS)
    job = await shop.enqueue("swallows_a_failed_commit")
    row = await shop.ended(job)
    assert row.state is State.COMPLETED
    assert await effects(shop) == [(job, row.token)]
    (closed,) = await shop.attempts(job)
    assert (closed.outcome, closed.charge) == ("completion_not_committed", "failure")


@pytest.mark.short
async def test_a_crash_between_work_and_commit_leaves_no_effect(shop: Scene) -> None:
    await shop.worker(env=PAYMENTS)
    job = await shop.enqueue("dies_before_the_commit")
    row = await shop.ended(job)
    assert row.state is State.COMPLETED
    assert await effects(shop) == [(job, row.token)]


async def test_rows_that_are_kept_for_no_time_go_with_the_work_and_no_sooner(shop: Scene) -> None:
    """Workers and runners are killed before the commit or after it: no row, one effect each."""
    policy = Policy(keep=0.0, max_losses=50, backoff_first=0.05, backoff_max=0.1)
    names = ("pays", "dies_before_the_commit", "swallows_a_failed_commit") * 5
    jobs = [await shop.enqueue(name, policy) for name in names]
    killed = await shop.worker(env=PAYMENTS)
    await shop.started(1)
    killed.kill_tree()
    await shop.worker(env=PAYMENTS)

    async def nothing_is_left() -> bool:
        page = await shop.store.inspector.history(0)
        return not page.jobs and not page.strays

    await shop.until(nothing_is_left, "the end of all jobs, and of their rows")
    assert sorted(job for job, _ in await effects(shop)) == jobs


async def test_a_completion_is_asked_for_again_until_its_commit_is_known(shop: Scene) -> None:
    await shop.worker(env=PAYMENTS)
    job = await shop.enqueue("returns_before_its_commit", seconds=1.0)
    row = await shop.ended(job)
    assert (row.state, row.result, row.attempt_count) == (State.COMPLETED, '"paid late"', 1)
    assert await effects(shop) == [(job, row.token)]


async def test_a_transaction_left_open_delays_no_other_outcome(pg_shop: Scene) -> None:
    await pg_shop.worker(env=PAYMENTS)
    flag = pg_shop.folder / "flag"
    slow = await pg_shop.enqueue("leaves_it_open", flag=str(flag))
    await pg_shop.started(1)
    for value in range(5):
        quick = await pg_shop.enqueue("noop", value=value)
        await pg_shop.ended(quick)
    assert (await pg_shop.job(slow)).state is State.RUNNING
    flag.touch()
    assert (await pg_shop.ended(slow)).result == '"paid"'


async def test_a_transaction_that_is_never_closed_ends_its_runner_and_frees_the_job(
    pg_shop: Scene,
) -> None:
    worker = await pg_shop.worker(env=PAYMENTS | IMPATIENT)
    job = await pg_shop.enqueue("forgets_its_transaction")
    row = await pg_shop.ended(job)
    assert (row.state, row.result) == (State.COMPLETED, '"paid"')
    assert await effects(pg_shop) == [(job, row.token)]
    (closed,) = await pg_shop.attempts(job)
    assert (closed.outcome, closed.charge) == ("completion_not_committed", "failure")
    assert worker.log.read_text().count("transaction_left_open") >= 2, "the event and the kill"


async def test_on_sqlite_a_long_transaction_delays_outcomes_but_costs_no_lease(
    sqlite_stage: Scene,
) -> None:
    await prepare(sqlite_stage)
    short = ("--heartbeat", "1", "--lease", "5")
    await sqlite_stage.worker(*short, env=PAYMENTS)
    await sqlite_stage.worker(*short, env=PAYMENTS)
    slow = await sqlite_stage.enqueue("leaves_it_open", seconds=6.0)
    row = await sqlite_stage.ended(slow)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    assert {each.status for each in await sqlite_stage.store.inspector.workers()} == {"active"}
