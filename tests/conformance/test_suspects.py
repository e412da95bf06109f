"""Suspects: passed over in the line, claimed by requests of their own, cleared with the culprit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from outlast.model.crash import CrashKind
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER, State
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import Store
from outlast.store.values import Answer, Claimed, ClaimRequest, Enqueued, NewJob
from tests.conformance.kit import (
    TASK,
    Hands,
    crashed,
    ended,
    enqueued,
    eventually,
    job,
    lost_worker,
    reclaimed,
    row_of,
)
from tests.conformance.limits_kit import declare, limited, need

FAR = 50.0  # within the minute that a store looks ahead


def suspected(claimed: Claimed, incident: int = 1, **fields: Any) -> Transition:
    """Return the end of an attempt that died with others."""
    return crashed(claimed, CrashKind.BYSTANDER, incident=incident, **fields)


async def suspects(hands: Hands, count: int = 1, **fields: Any) -> list[int]:
    """Make suspects of incident 1; return the ids of the jobs."""
    ids = await enqueued(hands.store, *[job(**fields) for _ in range(count)])
    ends = [suspected(one) for one in await hands.claim()]
    assert set(await hands.hand_in(*ends)) == {Answer.ACCEPTED}
    return ids


async def lost_twice(store: Store) -> int:
    """A job that must have its worker to itself."""
    (job_id,) = await enqueued(store)
    for name in ("first", "second"):
        hands = await Hands.on(store, name)
        (claimed,) = await hands.claim(1)
        await hands.vanish()
        await store.reclaim(lambda orphan: at_once(lost_worker(orphan)))
    assert claimed.job_id == job_id
    return job_id


def at_once(transition: Transition) -> Transition:
    return msgspec.structs.replace(transition, delay=0.0)


async def shown(store: Store, job_id: int) -> tuple[int, int | None]:
    row = await row_of(store, job_id)
    return row.solo, row.incident


def ids_of(claimed: list[Claimed]) -> list[int]:
    return sorted(one.job_id for one in claimed)


async def test_a_suspect_is_never_claimed_as_an_ordinary_job(store: Store, hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    assert await shown(store, job_id) == (1, 1)
    assert await hands.claim() == []
    (claimed,) = await hands.claim(1, solo=1)
    assert (claimed.job_id, claimed.solo, claimed.incident) == (job_id, 1, 1)
    assert (claimed.number, claimed.losses, claimed.failures) == (2, 1, 0)


async def test_an_ordinary_job_is_never_claimed_by_a_request_for_suspects(hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    (other,) = await enqueued(hands.store)
    assert ids_of(await hands.claim(solo=2)) == []
    assert ids_of(await hands.claim(solo=1)) == [job_id]
    (ordinary,) = await hands.claim()
    assert (ordinary.job_id, ordinary.solo, ordinary.incident) == (other, 0, None)


async def test_a_request_for_suspects_takes_up_to_its_limit_of_any_incident(
    store: Store, hands: Hands
) -> None:
    ids = await suspects(hands, 3) + await other_incident(hands)
    first = ids_of(await hands.claim(2, solo=1))
    assert len(first) == 2
    assert sorted(first + ids_of(await hands.claim(9, solo=1))) == ids
    assert await hands.claim(solo=1) == []


async def test_due_suspects_are_claimed_by_priority_and_then_time(
    store: Store, hands: Hands
) -> None:
    first, second = await suspects(hands, 2)
    (urgent,) = await suspects(hands, priority=5)
    order = [ids_of(await hands.claim(1, solo=1)) for _ in range(3)]
    assert order == [[urgent], [first], [second]]


async def test_suspects_of_other_tasks_and_queues_are_left_alone(
    store: Store, hands: Hands
) -> None:
    await suspects(hands, queue="elsewhere", priority=9)
    mine = await suspects(hands)
    assert await hands.claim(solo=1, tasks=["unknown"]) == []
    assert await hands.claim(solo=1, queues=["nowhere"]) == []
    assert ids_of(await hands.claim(solo=1, queues=["default", "nowhere"])) == mine


async def test_a_suspect_that_this_worker_does_not_know_is_left_out(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, job(), NewJob(task="other"))
    claimed = await hands.claim(tasks=[TASK, "other"])
    await hands.hand_in(*[suspected(one) for one in claimed])
    (mine,) = await hands.claim(solo=1)
    assert mine.task == TASK


async def test_two_workers_never_claim_the_same_suspect(
    store: Store, other_store: Store, hands: Hands
) -> None:
    ids = await suspects(hands, 12)
    rival = Hands(other_store, (await Hands.on(other_store, "rival")).me)

    async def take_all(who: Hands) -> list[Claimed]:
        taken: list[Claimed] = []
        for _ in ids:
            taken += await who.claim(1, solo=1)
        return taken

    one, two = await asyncio.gather(take_all(hands), take_all(rival))
    assert ids_of(one + two) == ids


async def test_a_suspect_in_back_off_waits(store: Store, hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    (claimed,) = await hands.claim(1, solo=1)
    await hands.hand_in(crashed(claimed, CrashKind.SIGNALLED, delay=FAR))
    assert (await shown(store, job_id))[0] == 1
    assert await hands.claim(solo=1) == []


@pytest.mark.parametrize("solo", [ALONE_IN_RUNNER, ALONE_IN_WORKER])
async def test_a_worker_hears_when_a_suspect_falls_due(
    store: Store, hands: Hands, solo: int
) -> None:
    if solo == ALONE_IN_WORKER:
        await lost_twice(store)
    else:
        await suspects(hands)
    (claimed,) = await hands.claim(solo=solo)
    await hands.hand_in(crashed(claimed, CrashKind.SIGNALLED, delay=FAR))
    dues = (await hands.exchange(limit=1)).next_due, (await store.peek(hands.me)).next_due
    assert any(due is not None and FAR - 40 < due <= FAR for due in dues)


async def test_a_suspect_falls_due(store: Store, hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    (claimed,) = await hands.claim(1, solo=1)
    await hands.hand_in(crashed(claimed, CrashKind.SIGNALLED, delay=0.05))
    (again,) = await eventually(lambda: hands.claim(solo=1))
    assert (again.job_id, again.failures) == (job_id, 1)


async def test_a_charged_culprit_clears_its_incident_and_stays_alone(
    store: Store, hands: Hands
) -> None:
    culprit, *others = await suspects(hands, 3)
    stranger = (await other_incident(hands))[0]
    (claimed,) = await hands.claim(1, solo=1)
    assert claimed.job_id == culprit
    reply = await hands.exchange(crashed(claimed, CrashKind.SIGNALLED), limit=10)
    assert reply.answers == [Answer.ACCEPTED]
    assert ids_of(reply.claimed) == others, "claimed as ordinary jobs by the very same exchange"
    assert {(one.solo, one.incident) for one in reply.claimed} == {(0, None)}
    assert await shown(store, culprit) == (1, claimed.token)
    assert (await shown(store, stranger))[0] == 1, "of another incident"


async def other_incident(hands: Hands) -> list[int]:
    ids = await enqueued(hands.store)
    await hands.hand_in(suspected(await hands.claim_one(), 999))
    return ids


async def test_a_late_end_clears_no_suspects(store: Store, hands: Hands) -> None:
    culprit, other = await suspects(hands, 2)
    (claimed,) = await hands.claim(1, solo=1)
    late = crashed(claimed, CrashKind.SIGNALLED)
    assert late.clears == 1
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    assert await hands.hand_in(late) == [Answer.REFUSED]
    assert await hands.hand_in(late, suspected(claimed, 7)) == [Answer.REFUSED] * 2
    assert await shown(store, culprit) == (1, 1)
    assert await shown(store, other) == (1, 1)


async def test_a_late_end_beside_an_accepted_one_clears_no_suspects(
    store: Store, hands: Hands
) -> None:
    _, other = await suspects(hands, 2)
    (claimed,) = await hands.claim(1, solo=1)
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    await enqueued(store)
    good = ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=FAR)
    answers = await hands.hand_in(crashed(claimed, CrashKind.SIGNALLED), good)
    assert answers == [Answer.REFUSED, Answer.ACCEPTED]
    assert await shown(store, other) == (1, 1)


async def test_the_same_end_written_twice_is_already_and_clears_once(
    store: Store, hands: Hands
) -> None:
    await suspects(hands, 2)
    (claimed,) = await hands.claim(1, solo=1)
    end = crashed(claimed, CrashKind.SIGNALLED)
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    assert await hands.hand_in(end) == [Answer.ALREADY]
    assert len(await hands.claim()) == 1


async def test_a_suspect_that_runs_while_it_is_cleared_ends_as_it_would(
    store: Store, hands: Hands
) -> None:
    _, other = await suspects(hands, 2)
    (culprit,) = await hands.claim(1, solo=1)
    (running,) = await hands.claim(1, solo=1)
    await hands.hand_in(crashed(culprit, CrashKind.SIGNALLED))
    assert running.job_id == other
    assert await hands.hand_in(ended(running)) == [Answer.ACCEPTED]


async def test_a_cleared_job_waits_out_its_pause(store: Store, hands: Hands) -> None:
    _, other = await suspects(hands, 2)
    (culprit,) = await hands.claim(1, solo=1)
    (running,) = await hands.claim(1, solo=1)
    await hands.hand_in(crashed(running, CrashKind.LOST_LEASE, delay=FAR))
    assert await shown(store, other) == (1, 1)
    await hands.hand_in(crashed(culprit, CrashKind.SIGNALLED))
    assert await shown(store, other) == (0, None)
    reply = await hands.exchange(limit=1)
    assert reply.claimed == []
    assert reply.next_due is not None


async def test_a_suspect_that_ends_without_a_death_joins_the_line(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await suspects(hands)
    (claimed,) = await hands.claim(1, solo=1)
    await hands.hand_in(crashed(claimed, CrashKind.ERROR, delay=0.0))
    assert await shown(store, job_id) == (0, None)
    assert ids_of(await hands.claim()) == [job_id]


async def test_reconcile_releases_a_suspect_as_a_suspect(store: Store, hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    (claimed,) = await hands.claim(1, solo=1)
    assert await store.reconcile(hands.me, []) == [(job_id, claimed.token)]
    assert await shown(store, job_id) == (1, 1)
    assert ids_of(await hands.claim(solo=1)) == [job_id]


async def test_a_suspect_can_be_cancelled_and_a_requeue_ends_the_suspicion(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await suspects(hands)
    await store.cancel([job_id])
    assert await hands.claim(solo=1) == []
    await store.requeue([job_id])
    assert await shown(store, job_id) == (0, None)
    assert ids_of(await hands.claim()) == [job_id]


async def test_a_reclaim_sees_the_suspicion(store: Store, hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    await hands.claim(solo=1)
    await hands.vanish()
    met = await reclaimed(store)
    (facts,) = [orphan.facts for orphan in met]
    assert (facts.solo, facts.incident) == (1, 1)
    assert await shown(store, job_id) == (2, 1), "its second loss"


async def test_a_job_that_lost_two_workers_is_claimed_only_by_an_empty_worker(
    store: Store,
) -> None:
    job_id = await lost_twice(store)
    third = await Hands.on(store, "third")
    assert (await shown(store, job_id))[0] == 2
    assert await third.claim() == []
    assert await third.claim(solo=1) == []
    (claimed,) = await third.claim(solo=2)
    assert (claimed.job_id, claimed.solo) == (job_id, 2)


async def test_exclusive_jobs_are_claimed_one_at_a_time(store: Store) -> None:
    ids = [await lost_twice(store) for _ in range(2)]
    third = await Hands.on(store, "third")
    assert [ids_of(await third.claim(1, solo=2)) for _ in ids] == [[each] for each in ids]


async def test_nothing_is_claimed_beside_a_job_that_needs_the_whole_worker(store: Store) -> None:
    job_id = await lost_twice(store)
    (other,) = await enqueued(store)
    third = await Hands.on(store, "third")
    requests = [ClaimRequest([TASK], 1, solo=2), ClaimRequest([TASK], 10)]
    replies = [await store.exchange(third.me, [], requests) for _ in range(2)]
    assert [ids_of(reply.claimed) for reply in replies] == [[job_id], [other]]
    assert [reply.cut for reply in replies] == [True, False]


async def test_one_exchange_fills_requests_of_both_kinds(store: Store, hands: Hands) -> None:
    (job_id,) = await suspects(hands)
    made: list[Enqueued] = await store.enqueue([job(), job()])
    requests = [ClaimRequest([TASK], 10), ClaimRequest([TASK], 10, solo=1)]
    reply = await store.exchange(hands.me, [], requests)
    claimed = {one.job_id: one.solo for one in reply.claimed}
    assert claimed == {made[0].job_id: 0, made[1].job_id: 0, job_id: 1}


@pytest.mark.parametrize("solo", [0, 1])
async def test_a_worker_that_may_not_claim_gets_no_suspects(
    store: Store, hands: Hands, solo: int
) -> None:
    await suspects(hands)
    await hands.vanish()
    reply = await hands.exchange(limit=1, solo=solo)
    assert (reply.valid, reply.claimed) == (False, [])


async def test_a_suspect_that_was_cancelled_meanwhile_is_not_revived_by_the_culprit_s_end(
    store: Store, hands: Hands
) -> None:
    _, other = await suspects(hands, 2)
    (culprit,) = await hands.claim(1, solo=1)
    await store.cancel([other])
    await hands.hand_in(crashed(culprit, CrashKind.SIGNALLED))
    row = await row_of(store, other)
    assert row.state is State.CANCELLED


async def test_suspects_at_the_head_of_the_line_hide_no_other_job_and_are_hidden_by_none(
    store: Store, hands: Hands
) -> None:
    before = await suspects(hands, 30)
    ordinary = await enqueued(store, *[job() for _ in range(5)])
    assert ids_of(await hands.claim(3)) == ordinary[:3]
    assert ids_of(await hands.claim(2, solo=1)) == before[:2]
    assert ids_of(await hands.claim(3)) == ordinary[3:]
    assert ids_of(await hands.claim(100, solo=1)) == before[2:]


async def test_suspects_in_streams_hide_no_other_job_and_are_hidden_by_none(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=100)
    tenants = [str(number) for number in range(20)]
    shared: list[NewJob] = [limited(need("a"), fair=each) for each in tenants]
    ids = await enqueued(store, *shared)
    await hands.hand_in(*[suspected(one) for one in await hands.claim(20)])
    ordinary = await enqueued(store, *shared[:5])
    found = [one for _ in range(5) for one in await hands.claim(1)]
    assert ids_of(found) == ordinary
    reply = await hands.exchange(limit=1)
    assert reply.claimed == []
    assert reply.next_due is None, "no worker comes again and again for them"
    assert ids_of(await hands.claim(3, solo=1) + await hands.claim(100, solo=1)) == ids


@pytest.mark.parametrize("solo", [0, ALONE_IN_RUNNER, ALONE_IN_WORKER])
async def test_a_request_behind_a_job_that_fills_the_reply_finds_nothing_and_breaks_nothing(
    store: Store, hands: Hands, solo: int
) -> None:
    """A job that is larger than the whole reply is sent alone."""
    await suspects(hands, queue="other")
    (large,) = await enqueued(store, job(queue="mine", args="[" + "1," * 500 + "1]"))
    requests = [
        ClaimRequest([TASK], 2, ["mine"], bytes_max=100),
        ClaimRequest([TASK], 1, ["mine"], solo=solo, bytes_max=100),
    ]
    reply = await store.exchange(hands.me, [], requests)
    assert [one.job_id for one in reply.claimed] == [large]
    assert not reply.cut
