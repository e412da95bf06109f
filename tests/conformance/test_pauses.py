"""Pauses: noted once, acknowledged by id, and passed over by claims that are told of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outlast.insight.pauses import pause_and_wait, read_pauses
from outlast.model.pause import Pause, PauseKind, Pauses, is_acknowledged
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import ClaimRequest, NewPause
from tests.conformance.kit import TASK, Hands, enqueued, job
from tests.conformance.test_suspects import lost_twice, suspects

MANY = 300  # more than a claim has places


def of_queue(name: str, **fields: str | bool) -> NewPause:
    return msgspec.convert({"kind": "queue", "name": name, **fields}, NewPause)


async def test_a_pause_is_listed_until_it_is_resumed(store: Store) -> None:
    first = await store.pause(of_queue("q", paused_by="ada", reason="the disk is full"))
    everything = await store.pause(NewPause(kind=PauseKind.ALL, stop=True))
    assert await store.inspector.pauses() == [first, everything]
    assert (first.kind, first.name, first.stop) == (PauseKind.QUEUE, "q", False)
    assert (first.paused_by, first.reason) == ("ada", "the disk is full")
    assert await store.resume(PauseKind.QUEUE, "q") == first
    assert await store.resume(PauseKind.QUEUE, "q") is None
    assert await store.resume(PauseKind.TASK, "") is None
    assert await store.inspector.pauses() == [everything]
    assert (await store.pause(of_queue("q"))).id > everything.id


async def test_the_same_again_is_one_pause_with_a_new_id(store: Store) -> None:
    first = await store.pause(of_queue("q", paused_by="ada", reason="the disk is full"))
    again = await store.pause(of_queue("q", stop=True))
    assert again == msgspec.structs.replace(first, id=again.id, stop=True)
    assert again.id > first.id
    last = await store.pause(of_queue("q", reason="it burns"))
    assert (last.paused_by, last.reason, last.stop) == ("ada", "it burns", False)
    assert last.paused_at == first.paused_at
    assert await store.inspector.pauses() == [last]


async def test_a_draining_worker_counts_until_it_heeds_the_pause(
    store: Store, hands: Hands
) -> None:
    await store.set_status(hands.me, WorkerStatus.DRAINING)
    pause, left = await pause_and_wait(store, of_queue("q"), 0.0)
    assert [each.id for each in left] == [
        hands.me.worker_id
    ]  # what a runner has may not have begun
    await store.acknowledge_pauses(hands.me, str(pause.id))
    assert (await pause_and_wait(store, of_queue("r"), 0.0))[1]
    assert (await read_pauses(store)).unheard(pause) == []


async def test_a_look_shows_the_version(store: Store, hands: Hands) -> None:
    assert (await store.observe()).pauses == ""
    made = [await store.pause(of_queue(name)) for name in ("q", "r")]
    version = (await store.observe()).pauses
    assert version == Pauses(await store.inspector.pauses()).version
    assert all(is_acknowledged(pause.id, version) for pause in made)
    assert not is_acknowledged(made[-1].id + 1, version)
    assert not is_acknowledged(made[0].id, None)


async def test_a_worker_acknowledges_on_its_own_row(store: Store, hands: Hands) -> None:
    other = await Hands.on(store, "w2", registration="r2")
    assert (await hands.row()).acknowledged_pauses is None
    await store.acknowledge_pauses(hands.me, "3,4")
    await store.acknowledge_pauses(msgspec.structs.replace(other.me, registration="another"), "9")
    assert (await hands.row()).acknowledged_pauses == "3,4"
    assert (await other.row()).acknowledged_pauses is None
    await store.acknowledge_pauses(other.me, "")
    assert (await other.row()).acknowledged_pauses == ""


@pytest.mark.parametrize("queues", [[], ["a", "b", "c"]], ids=["all queues", "named ones"])
async def test_jobs_of_a_paused_queue_are_passed_over(
    store: Store, hands: Hands, queues: list[str]
) -> None:
    ids = await enqueued(store, *[job(queue=queue) for queue in ("a", "b", "a", "c")])
    told: dict[str, Any] = {"queues": queues, "not_queues": ("a",)}
    assert {each.job_id for each in await hands.claim(**told)} == {ids[1], ids[3]}
    assert await hands.claim(**told) == []
    assert await hands.claim(queues=["a"], not_queues=("a",)) == []
    assert {each.job_id for each in await hands.claim(queues=queues)} == {ids[0], ids[2]}


async def test_many_paused_queues_hide_none_behind_them(store: Store, hands: Hands) -> None:
    paused = [f"q{number:03}" for number in range(MANY)]
    await enqueued(store, *[job(queue=queue) for queue in paused])
    ids = await enqueued(store, job(queue="z"), job(queue="a"))
    for _ in range(2):
        found = await hands.claim(10, not_queues=tuple(paused))
        assert {each.job_id for each in found} <= {*ids}
        ids = [one for one in ids if one not in {each.job_id for each in found}]
    assert ids == []


async def test_jobs_of_a_paused_tenant_are_passed_over(store: Store, hands: Hands) -> None:
    acme = [job(tenant="acme", queue=f"q{number % 50}") for number in range(MANY)]
    await enqueued(store, *acme)
    others = [job(tenant="other"), job(), job(queue="q7"), job(queue="q7", priority=-3)]
    ids = await enqueued(store, *others)
    found = [each for _ in range(6) for each in await hands.claim(3, not_tenants=("acme", "x"))]
    assert {each.job_id for each in found} == {*ids}
    assert len(await hands.claim(500)) == MANY


@pytest.mark.parametrize(
    "passed", [{"not_queues": ("default",)}, {"not_tenants": ("acme",)}], ids=["queue", "tenant"]
)
async def test_suspects_are_passed_over_and_not_waited_for(
    store: Store, hands: Hands, passed: dict[str, Any]
) -> None:
    ids = await suspects(hands, 3, tenant="acme")
    others = await suspects(hands, queue="other")
    request = ClaimRequest([TASK], 10, solo=1, **passed)
    reply = await hands.exchange(limit=10, solo=1, **passed)
    assert [each.job_id for each in reply.claimed] == others
    usual = ClaimRequest([TASK], 10, **passed)
    assert (await store.exchange(hands.me, [], [usual, request])).claimed == []
    reply = await hands.exchange(limit=10, solo=1)
    assert {each.job_id for each in reply.claimed} <= {*ids}
    assert reply.claimed


async def test_a_paused_job_that_wants_a_whole_worker_is_passed_over(store: Store) -> None:
    job_id = await lost_twice(store)
    hands = await Hands.on(store, "later")
    assert await hands.claim(1, solo=2, not_queues=("default",)) == []
    assert [each.job_id for each in await hands.claim(1, solo=2)] == [job_id]


def pause_of(kind: PauseKind, name: str, number: int = 1) -> Pause:
    return Pause(id=number, kind=kind, name=name, paused_at=0.0)


def test_a_job_is_paused_by_its_queue_task_or_tenant() -> None:
    queue = pause_of(PauseKind.QUEUE, "mail", 3)
    task = pause_of(PauseKind.TASK, "send", 2)
    tenant = pause_of(PauseKind.TENANT, "acme", 1)
    pauses = Pauses([queue, task, tenant])
    assert pauses.find("mail", "other", None) is queue
    assert pauses.find("send", "send", "mail") is task
    assert pauses.find("mail", "send", "acme") is tenant  # the first by id
    assert pauses.find("acme", "mail", "send") is None
    assert pauses.find("", "", None) is None
    assert pauses.version == "1,2,3"
    everything = pause_of(PauseKind.ALL, "", 9)
    assert Pauses([everything]).find("q", "t", None) is everything
