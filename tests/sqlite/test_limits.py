"""Limits on SQLite where a random history seldom comes: marks, clocks, suspects, cost of a trip."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from harness.stores import held_open
from outlast.insight.queries import read_details
from outlast.insight.why import why
from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.store.limits import IDLE_SECONDS, SetLimit
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import ClaimRequest
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import declare, held, limited, need
from tests.manual_clock import ManualClock

OTHER = "app.other"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    url = f"sqlite:///{tmp_path}/outlast.db"
    async with held_open(SqliteStore(url, clock=clock, durable=False)) as store:
        yield store


@pytest.fixture
async def hands(store: SqliteStore) -> Hands:
    return await Hands.on(store, lease=600.0)


async def test_a_stream_that_no_worker_serves_holds_no_permit(
    store: SqliteStore, hands: Hands
) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a"), task=OTHER), *[limited(need("a"))] * 2)
    one = await hands.claim_one()
    assert await hands.claim(1, tasks=[OTHER]) == []  # its stream is blocked as well, and first
    assert await hands.claim() == []
    assert len(await hands.claim(1, tasks=[TASK])) == 0
    (two,) = (await hands.exchange(ended(one), limit=5)).claimed
    await hands.hand_in(ended(two))
    assert len(await hands.claim(1, tasks=[OTHER])) == 1


async def test_a_worker_without_places_leaves_a_permit_to_others(
    store: SqliteStore, hands: Hands
) -> None:
    await declare(store, running=3)
    jobs = [limited(need("a"), fair=f"t{n}", tenant=f"t{n}") for n in range(4)]
    await enqueued(store, *jobs, limited(need("a"), task=OTHER))
    first = await hands.claim(3)
    assert len(first) == 3
    assert await hands.claim() == []
    assert await hands.claim(1, tasks=[OTHER]) == []
    await hands.hand_in(*map(ended, first))
    assert len(await hands.claim(1)) == 1  # two places are left, and its own streams are empty
    assert len(await hands.claim(1, tasks=[OTHER])) == 1


async def test_an_idle_exchange_writes_nothing(store: SqliteStore, hands: Hands) -> None:
    """Each commit wakes all workers: two of them would keep each other awake."""
    await declare(store, running=1, spacing=100.0)
    await enqueued(store, *[limited(need("a"))] * 2)
    await enqueued(store, limited(fair="t1", tenant="t1"), limited(tenant="t1"))
    await hands.claim(50, not_tenants=["t1"])
    before = await store._connection.run(_changes_of(store))
    reply = await hands.exchange(limit=5, not_tenants=["t1"])
    assert reply.claimed == []
    assert await store._connection.run(_changes_of(store)) == before


def _changes_of(store: SqliteStore) -> Callable[[], int]:
    return lambda: store._connection.connect().total_changes


async def test_a_refunded_rate_opens_what_waits_for_it(store: SqliteStore, hands: Hands) -> None:
    await declare(store, spacing=1_000.0)
    await enqueued(store, *[limited(need("a"))] * 2)
    one = await hands.claim_one()
    assert await hands.claim() == []
    await hands.hand_in(ended(one, OutcomeKind.RELEASED, began=False, delay=9_999.0))
    assert len(await hands.claim()) == 1


async def test_a_suspect_waits_for_its_permit_and_holds_up_no_other(
    store: SqliteStore, hands: Hands
) -> None:
    await declare(store, running=1)
    (suspect,) = await enqueued(store, limited(need("a")))
    one = await hands.claim_one()
    (other,) = await enqueued(store, job())
    two = await hands.claim_one()
    for each in (one, two):
        end = crashed(each, CrashKind.BYSTANDER, incident=one.token)
        await hands.hand_in(end)
    assert await held(store) == 0
    await enqueued(store, limited(need("a")))
    holder = await hands.claim_one()
    asked = [ClaimRequest([TASK], 10, solo=1)]
    reply = await store.exchange(hands.me, [], asked)
    assert [each.job_id for each in reply.claimed] == [other]
    reply = await store.exchange(hands.me, [], asked)
    assert reply.claimed == []
    reply = await store.exchange(hands.me, [ended(holder)], asked)
    assert [each.job_id for each in reply.claimed] == [suspect]
    assert await held(store) == 1


async def test_many_suspects_of_a_full_limit_hold_up_no_other(
    store: SqliteStore, hands: Hands
) -> None:
    await declare(store, running=200)
    await enqueued(store, *[limited(need("a"))] * 101)
    full = await hands.claim(200)
    (other,) = await enqueued(store, job())
    for each in (*full, await hands.claim_one()):
        end = crashed(each, CrashKind.BYSTANDER, incident=1)
        await hands.hand_in(end)
    await store.set_limit(SetLimit(name="a", running=0))
    assert [each.job_id for each in await hands.claim(solo=1)] == [other]


async def test_streams_and_permits_that_rest_for_a_day_go_and_come_again(
    store: SqliteStore, hands: Hands, clock: ManualClock
) -> None:
    await declare(store, running=2)
    await enqueued(store, *[limited(need("a"), policy=Policy(keep=0.0))] * 2)
    one, two = await hands.claim()
    await hands.hand_in(ended(one))
    clock.step_wall(IDLE_SECONDS + 1)
    await store.prune(jobs_older_than=1e9, workers_older_than=1e9)
    assert await held(store) == 1  # its permit is in use
    await hands.hand_in(ended(two))
    clock.step_wall(IDLE_SECONDS + 1)
    await store.prune(jobs_older_than=1e9, workers_older_than=1e9)
    assert await store.inspector.permits("a") == []
    await enqueued(store, limited(need("a")))
    assert len(await hands.claim()) == 1
    assert await held(store) == 1


async def test_a_job_that_waits_for_a_place_that_is_kept_waits_for_no_rate(
    store: SqliteStore, hands: Hands, clock: ManualClock
) -> None:
    """A place of a is kept for a job that lacks b; another job under a alone waits meanwhile."""
    for name in "ab":
        await declare(store, name, running=1)
    await enqueued(store, limited(need("b")))
    assert len(await hands.claim()) == 1
    await enqueued(store, limited(need("a"), need("b")))
    clock.advance(60.0)
    assert await hands.claim() == []
    (other,) = await enqueued(store, limited(need("a")))
    assert await hands.claim() == []
    details = await read_details(store, other, clock.wall())
    assert details is not None
    assert details.phase == "limited"
    assert "rate" not in " ".join(why(details).sentences)
