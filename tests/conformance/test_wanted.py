"""How many workers a queue could use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from outlast.insight.queues import read_scale
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.model.limits import LimitSpec
from outlast.model.pause import PauseKind
from outlast.store.limits import NewLimit, SetLimit
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewEvent, NewPause
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually, job
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.schedules_kit import put_one
from tests.conformance.test_children import spawned
from tests.conformance.test_dependencies import after
from tests.conformance.test_ordered import ordered


async def wanted(store: Store, queue: str = "default") -> int:
    return await store.inspector.wanted(queue)


async def test_nothing_is_wanted_of_an_empty_store(store: Store) -> None:
    assert await read_scale(store, "default") == {
        "schema": 1, "queue": "default", "wanted": 0, "at_least": False,
    }  # fmt: skip


async def test_what_is_due_and_what_runs_is_wanted(store: Store) -> None:
    await enqueued(store, *[job()] * 5, job(queue="other"), job(delay=600.0))
    assert await wanted(store) == 5
    hands = await Hands.on(store)
    await hands.claim(2)
    assert (await wanted(store), await wanted(store, "other")) == (5, 1)
    await store.set_status(hands.me, WorkerStatus.DRAINING)
    assert await wanted(store) == 5


async def test_jobs_that_fall_due_count_before_they_are_in_line(store: Store) -> None:
    await enqueued(store, job(run_at=1_000.0), job(delay=-5.0))
    assert await wanted(store) == 2


async def test_a_fleet_of_none_comes_back_for_any_task(store: Store) -> None:
    await enqueued(store, job(task="unknown to all"))
    assert await wanted(store) == 1
    await Hands.on(store, queues=["another"])
    assert await wanted(store) == 1  # no worker serves this queue


@pytest.mark.parametrize("queues", [[], ["default", "more"]])
async def test_jobs_that_no_worker_of_the_queue_knows_are_not_wanted(
    store: Store, queues: list[str]
) -> None:
    await enqueued(store, job(), job(task="unknown to all"), job(task="app"))
    await Hands.on(store, queues=queues)
    assert await wanted(store) == 1


async def test_a_task_of_workers_that_have_gone_is_wanted_still(store: Store) -> None:
    gone = await Hands.on(store, "gone", tasks=["rare"])
    await store.set_status(gone.me, WorkerStatus.STOPPED)
    await Hands.on(store)
    await enqueued(store, job(task="rare"))
    assert await wanted(store) == 1


@pytest.mark.parametrize(
    ("kind", "name", "left"),
    [
        (PauseKind.ALL, "", 1),
        (PauseKind.QUEUE, "default", 1),
        (PauseKind.TASK, TASK, 1),
        (PauseKind.QUEUE, "another", 4),
        (PauseKind.TASK, "another", 4),
    ],
)
async def test_what_is_paused_wants_no_worker(
    store: Store, kind: PauseKind, name: str, left: int
) -> None:
    await enqueued(store, *[job()] * 4)
    await (await Hands.on(store)).claim_one()
    await store.pause(NewPause(kind=kind, name=name))
    assert await wanted(store) == left


async def test_jobs_of_a_paused_tenant_want_no_worker(store: Store) -> None:
    """In the line, not in it yet, in a stream of the tenant, and in one of several tenants."""
    await declare(store, running=3)
    for tenant in ("held", "other", "third"):
        await enqueued(store, job(tenant=tenant), job(tenant=tenant, delay=-5.0))
        await enqueued(store, *[limited(need("a"), tenant=tenant)] * 2)
        await enqueued(store, limited(fair=tenant, tenant=tenant))
    await (await Hands.on(store)).exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 6 + 3 + 3
    await store.pause(NewPause(kind=PauseKind.TENANT, name="held"))
    assert await wanted(store) == 4 + 3 + 2
    await store.pause(NewPause(kind=PauseKind.TENANT, name="other"))
    assert await wanted(store) == 2 + 2 + 1


async def test_suspects_that_are_due_are_wanted(store: Store, store_url: str) -> None:
    ids = await enqueued(store, job(), job())
    async with raw(store_url) as file:
        await file.run(f"UPDATE outlast_jobs SET solo = 1, position = NULL WHERE id = {ids[0]}")
    assert await wanted(store) == 2


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_hostile_name_is_a_name(store: Store, is_named: bool) -> None:
    name = 'it\'s "a\\queue" </script> ключ'
    await enqueued(store, job(queue=name, task=name), job(queue=name, task="unknown to all"))
    await Hands.on(store, queues=[name] * is_named, tasks=[name])
    assert await wanted(store, name) == 1
    assert await wanted(store, name[:-1]) == 0


@pytest.mark.parametrize("column", ["queues", "tasks", "lacks"])
async def test_no_row_of_a_worker_stops_the_count(
    store: Store, store_url: str, column: str
) -> None:
    await enqueued(store, job())
    await Hands.on(store)
    async with raw(store_url) as file:
        for value in file.values:
            await file.run(f"UPDATE outlast_workers SET {column} = {value}")
            assert await wanted(store) in {0, 1}


# -- what only an exchange moves on, while there is no worker


async def _leave(hands: Hands, *ends: Transition) -> None:
    """Hand in the last ends, as a worker does that is asked to stop."""
    await hands.store.set_status(hands.me, WorkerStatus.DRAINING)
    await hands.follow(*ends, limit=0)
    await hands.store.set_status(hands.me, WorkerStatus.STOPPED)


async def _under_limits(store: Store, _: str) -> None:
    await declare(store, running=2)
    await enqueued(store, *[limited(need("a"))] * 10)


async def _of_tenants(store: Store, _: str) -> None:
    await enqueued(store, *[limited(fair=f"t{n}", tenant=f"t{n}") for n in range(3)])


async def _in_order(store: Store, _: str) -> None:
    await store.declare_limits([NewLimit("o", LimitSpec(running=1, per=None, ordered=True))])
    await enqueued(store, *[ordered()] * 10)


async def _behind_last_ends(store: Store, _: str) -> None:
    await _under_limits(store, _)
    hands = await Hands.on(store)
    await _leave(hands, *map(ended, await hands.claim(9)))


async def _behind_the_last_of_others(store: Store, _: str) -> None:
    await declare(store, running=1)
    await declare(store, "b", running=1)
    hands = await Hands.on(store)
    await enqueued(store, limited(need("a"), need("b")))
    claimed = await hands.claim(9)
    await enqueued(store, limited(need("a")))
    await hands.claim(9)
    await _leave(hands, *map(ended, claimed))


async def _in_order_behind_the_last(store: Store, _: str) -> None:
    await _in_order(store, _)
    hands = await Hands.on(store)
    await _leave(hands, *map(ended, await hands.claim(9)))


async def _behind_a_rate(store: Store, _: str) -> None:
    await declare(store, spacing=0.2, burst=1.0)
    await enqueued(store, *[limited(need("a"))] * 3)
    hands = await Hands.on(store)
    await hands.follow(*map(ended, await hands.claim(9)), limit=0)
    await hands.exchange(limit=1, tasks=["app.none"])
    await _leave(hands)


async def _behind_a_raised_limit(store: Store, _: str) -> None:
    await declare(store, running=0)
    await enqueued(store, limited(need("a")))
    hands = await Hands.on(store)
    await hands.claim(1)
    await _leave(hands)
    assert await wanted(store) == 0
    await store.set_limit(SetLimit(name="a", running=1))


async def _for_an_event(store: Store, _: str) -> None:
    await enqueued(store, job())
    hands = await Hands.on(store)
    claimed = await hands.claim_one()
    await _leave(hands, ended(claimed, OutcomeKind.SNOOZED, delay=3600, event="e"))
    await store.send_event(NewEvent("e", "[1]"))


async def _after_one_that_has_ended(store: Store, _: str) -> None:
    (first,) = await enqueued(store, job())
    hands = await Hands.on(store)
    await _leave(hands, ended(await hands.claim_one()))
    await enqueued(store, after(first))


async def _after_a_cancelled_child(store: Store, _: str) -> None:
    await enqueued(store, job())
    hands = await Hands.on(store)
    parent = await hands.claim_one()
    (child,) = await store.spawn([job(queue="other")], spawned(parent))
    await _leave(hands, ended(parent, OutcomeKind.SNOOZED, blocks=True))
    await store.cancel([child.job_id])


async def _of_a_schedule(store: Store, store_url: str) -> None:
    await put_one(store)
    async with raw(store_url) as file:
        await file.run("UPDATE outlast_schedules SET next_tick = 1")


LEFT: list[Callable[[Store, str], Awaitable[None]]] = [
    _under_limits,
    _of_tenants,
    _in_order,
    _behind_last_ends,
    _behind_the_last_of_others,
    _in_order_behind_the_last,
    _behind_a_rate,
    _behind_a_raised_limit,
    _for_an_event,
    _after_one_that_has_ended,
    _after_a_cancelled_child,
    _of_a_schedule,
]


@pytest.mark.parametrize("left", LEFT)
async def test_a_fleet_of_none_comes_back_for_what_only_a_worker_moves_on(
    left: Callable[[Store, str], Awaitable[None]], store: Store, store_url: str
) -> None:
    await left(store, store_url)
    assert await eventually(lambda: wanted(store), 5.0) >= 1
    assert await wanted(store, "another") == 0


@pytest.mark.parametrize(
    ("left", "pause"),
    list(product(LEFT, [(PauseKind.QUEUE, "default"), (PauseKind.TASK, TASK)])),
)
async def test_it_does_not_come_back_for_what_is_paused(
    left: Callable[[Store, str], Awaitable[None]],
    pause: tuple[PauseKind, str],
    store: Store,
    store_url: str,
) -> None:
    await left(store, store_url)
    await store.pause(NewPause(kind=pause[0], name=pause[1]))
    assert await wanted(store) == 0


async def test_the_last_ends_of_a_fleet_do_not_bring_it_back(store: Store) -> None:
    await store.declare_limits([NewLimit("o", LimitSpec(running=1, per=None, ordered=True))])
    await enqueued(store, ordered(), limited(fair="t", tenant="t"))
    hands = await Hands.on(store)
    await _leave(hands, *map(ended, [*await hands.claim(9), *await hands.claim(9)]))
    assert await store.inspector.counts() == {("default", State.COMPLETED): 2}
    assert await wanted(store) == 0


# -- limits


async def test_a_limit_wants_no_more_workers_than_it_lets_run(store: Store) -> None:
    await _under_limits(store, "")
    hands = await Hands.on(store)
    await hands.exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 2
    claimed = await hands.claim(1)
    assert await wanted(store) == 2
    await hands.hand_in(*map(ended, claimed))
    await hands.exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 2


async def test_a_shared_limit_wants_no_more_than_it_lets_run_of_all_keys(store: Store) -> None:
    await declare(store, running=3)
    await declare(store, "k", running=2)
    keys = [limited(need("a"), need("k", f"k{n % 4}")) for n in range(20)]
    await enqueued(store, *keys, job(), *[limited(need("k", "own"))] * 5)
    await (await Hands.on(store)).exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 3 + 1 + 2


async def test_each_shared_limit_wants_no_more_than_it_lets_run(store: Store) -> None:
    for name in ("a", "b"):
        await declare(store, name, running=2)
        jobs = [limited(need(name), priority=priority) for priority in range(3) for _ in range(4)]
        await enqueued(store, *jobs)
    await declare(store, "r", spacing=60.0, burst=3.0)
    await enqueued(store, *[limited(need("r"), priority=priority) for priority in range(3)] * 2)
    await (await Hands.on(store)).exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 2 + 2 + 3


async def test_keys_in_order_want_one_worker_each(store: Store) -> None:
    await store.declare_limits([NewLimit("o", LimitSpec(running=1, per=None, ordered=True))])
    await enqueued(store, *[ordered(f"k{n % 3}") for n in range(30)])
    hands = await Hands.on(store)
    await hands.exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 3
    await hands.claim(1)
    assert await wanted(store) == 3


async def test_a_rate_wants_what_may_start_now(store: Store) -> None:
    await declare(store, spacing=60.0, burst=2.0)
    await enqueued(store, *[limited(need("a"))] * 9)
    await (await Hands.on(store)).exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 2


@pytest.mark.slow_on("sqlite")
async def test_the_count_stops_at_its_bound(store: Store) -> None:
    for _ in range(3):
        await store.enqueue([job()] * 4_000)
    assert await wanted(store) == 10_000
    assert (await read_scale(store, "default"))["at_least"]


@pytest.mark.slow_on("sqlite")
async def test_what_a_limit_has_no_room_for_hides_no_other_job(store: Store) -> None:
    await declare(store, running=4_990)
    for priority in range(2):
        await store.enqueue([limited(need("a"), priority=priority)] * 4_990)
    await enqueued(store, *[limited(fair=f"t{n}", tenant=f"t{n}") for n in range(50)])
    await (await Hands.on(store)).exchange(limit=1, tasks=["app.none"])
    assert await wanted(store) == 5_040
