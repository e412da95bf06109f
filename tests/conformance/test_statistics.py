"""Statistics of a store."""

from __future__ import annotations

import json

from outlast import Compression, Encryption
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.payload.payloads import Payloads
from outlast.store.protocol import Store
from outlast.store.statistics import ScheduledJobs, Statistics, Undecodable, Unencrypted
from outlast.store.values import Save
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job


def lanes(statistics: Statistics) -> dict[tuple[str, str], int]:
    return {(one.queue, one.task): one.number for one in statistics.lanes}


async def test_an_empty_store_has_empty_statistics(store: Store) -> None:
    found = await store.inspector.statistics()
    values = [found.lanes, found.scheduled, found.running, found.suspects, found.dead, found.ended]
    assert values == [[]] * 6
    assert found.refused == 0


async def test_waiting_jobs_are_counted_by_queue_and_task(store: Store) -> None:
    made = [
        job(queue=queue, task=task, priority=priority)
        for queue in ("b", "a")
        for task in ("y", "x")
        for priority in (5, 0, -5)
        for _ in range(2)
    ]
    await enqueued(store, *made, job(queue="c"), job(queue="c", delay=600.0))
    found = await store.inspector.statistics()
    assert lanes(found) == {
        ("a", "x"): 6,
        ("a", "y"): 6,
        ("b", "x"): 6,
        ("b", "y"): 6,
        ("c", TASK): 1,
    }
    assert found.scheduled == [ScheduledJobs("c", 1)]


async def test_the_oldest_of_a_lane_may_be_the_least_urgent(store: Store) -> None:
    await enqueued(store, job(priority=-5, run_at=1_000.0))
    await enqueued(store, job(priority=5, run_at=2_000.0))
    hands = await Hands.on(store)
    await hands.exchange(limit=1, queues=["default"], tasks=["none of these"])  # into the line
    await enqueued(store, job(queue="unserved", run_at=500.0))
    found = await store.inspector.statistics()
    assert [(one.queue, one.number, one.oldest) for one in found.lanes] == [
        ("default", 2, 1_000.0),
        ("unserved", 1, 500.0),
    ]


async def test_running_and_ended_jobs_are_counted(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[job(queue="a") for _ in range(5)], job(queue="b"))
    await store.cancel(ids[-1:])
    done, dead, failed, *_ = await hands.claim(4)
    await hands.hand_in(ended(done), ended(dead, OutcomeKind.DEAD), crashed(failed, delay=600.0))
    assert await store.checkpoint([Save(done.job_id, done.token, 1, "1")]) == ["refused"]
    found = await store.inspector.statistics()
    assert [(one.queue, one.number) for one in found.running] == [("a", 1)]
    assert [(one.queue, one.number) for one in found.dead] == [("a", 1)]
    assert found.scheduled == [ScheduledJobs("a", 1)]
    assert lanes(found) == {("a", TASK): 1}
    assert {(one.queue, one.state, one.number, one.minute, one.hour) for one in found.ended} == {
        ("a", "completed", 1, 1, 1),
        ("b", "cancelled", 1, 1, 1),
    }
    assert found.refused == 1


async def test_counting_stops_at_the_bound(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(delay=600.0) for _ in range(3)])
    await enqueued(store, *[job() for _ in range(6)])
    claimed = await hands.claim(6)
    await hands.hand_in(*map(ended, claimed[:3]))
    found = await store.inspector.statistics(2)
    assert found.most == 2
    assert found.scheduled == [ScheduledJobs("default", 1, at_least=True)]
    assert [one.number for one in found.running] == [2]
    assert [one.number for one in found.ended] == [2]


async def test_lanes_share_the_rows_that_are_counted(store: Store) -> None:
    await enqueued(store, *[job(task=f"t{n}") for n in range(5) for _ in range(1 + 40 * (n < 2))])
    found = await store.inspector.statistics(30)
    counted = {one.task: (one.number, one.at_least) for one in found.lanes}
    assert counted == {
        "t0": (13, True),  # what a lane does not use of its share is shared once more
        "t1": (13, True),
        "t2": (1, False),
        "t3": (1, False),
        "t4": (1, False),
    }
    assert not found.more_lanes
    found = await store.inspector.statistics(30, lanes=3)
    assert [one.task for one in found.lanes] == ["t0", "t1", "t2"]
    assert found.more_lanes


async def test_queues_that_wait_share_the_rows_that_are_counted(store: Store) -> None:
    jobs = [job(queue=f"q{n}", delay=600.0) for n in range(4) for _ in range(60 if n == 1 else 1)]
    await enqueued(store, *jobs)
    found = await store.inspector.statistics(80)
    counted = {one.queue: (one.number, one.at_least) for one in found.scheduled}
    assert counted == {"q0": (1, False), "q1": (38, True), "q2": (1, False), "q3": (1, False)}
    found = await store.inspector.statistics(80, lanes=2)
    assert sorted(one.queue for one in found.scheduled) == ["q0", "q1"]
    assert found.more_lanes


async def test_jobs_that_no_release_can_decode_are_counted_by_task(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, job(), job(), job(queue="other"))
    for _ in range(2):
        for claimed in await hands.claim(3):
            await hands.hand_in(crashed(claimed, CrashKind.UNDECODABLE))
        await store.cancel(ids[:1])
        await store.requeue(ids[:1])
    for claimed in await hands.claim(3):
        await hands.hand_in(crashed(claimed, CrashKind.UNDECODABLE))
    found = (await store.inspector.statistics()).undecodable
    assert found == [
        Undecodable(queue="default", task=TASK, number=2, repeats=3),
        Undecodable(queue="other", task=TASK, number=1, repeats=1),
    ]


async def test_unfinished_jobs_with_plain_payloads_are_counted_by_task(
    store: Store, hands: Hands
) -> None:
    sealed = Payloads([Encryption({"k": Encryption.make_key()})])
    args, checkpoint = sealed.encode("args", "{}"), sealed.encode("checkpoint", "1")
    zipped = Payloads([Compression(least=0)]).encode("args", json.dumps({"text": "a" * 999}))
    quoted = json.dumps({"text": 'of "aes-256-gcm:k"'})
    plain_save, sealed_save = await enqueued(store, job(args=args), job(args=args))
    for claimed in await hands.claim(2):
        value = "1" if claimed.job_id == plain_save else checkpoint
        await store.checkpoint([Save(claimed.job_id, claimed.token, 1, value)])
    await enqueued(
        store,
        job(args=args, delay=60),
        job(args="{}", delay=60),
        job(args=quoted),
        job(args=zipped),
        job(task="other", args=args),
    )
    assert sealed_save
    assert await store.inspector.unencrypted() == [
        Unencrypted(task=TASK, looked_at=6, number=4),
        Unencrypted(task="other", looked_at=1, number=0),
    ]
    assert sum(one.looked_at for one in await store.inspector.unencrypted(2)) == 2
