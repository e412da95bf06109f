"""Jobs that wait for others run once, and not before the last of these has ended as wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from msgspec.structs import replace

from outlast.errors import JobNotFound, UsageError
from outlast.insight.verify import verify
from outlast.model.job import Policy, State
from outlast.store.protocol import Store
from outlast.store.values import Answer, Cancelled, Claimed, NewJob, Requeued, Upstream, Wants
from tests.app.in_process_kit import transaction
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, of_whole_rounds, on, row_of
from tests.conformance.limits_kit import declare, limited, need

DIES = Policy(retries=0)


def after(*upstream: int, wants: Wants = Wants.COMPLETED, **fields: Any) -> NewJob:
    """A job that waits for these: ids, or places in the same call."""
    return job(after=tuple(Upstream(each, wants) for each in upstream), **fields)


async def states(store: Store, ids: Sequence[int]) -> list[str]:
    rows = [await store.inspector.job(job_id) for job_id in ids]
    return ["gone" if row is None else row.state.value for row in rows]


async def drain(hands: Hands, *, dead: Sequence[int] = ()) -> list[int]:
    """Run what can run, in the order of the claims; the jobs in ``dead`` die."""
    order: list[int] = []
    while got := await hands.claim(100):
        order += [each.job_id for each in got]
        ends = [crashed(each) if each.job_id in dead else ended(each) for each in got]
        assert {*(await hands.hand_in(*ends))} == {Answer.ACCEPTED}
    return order


async def claim_one(hands: Hands, job_id: int) -> Claimed:
    (one,) = await hands.claim(1)
    assert one.job_id == job_id
    return one


@pytest.mark.parametrize("is_limited", [False, True])
async def test_a_chain_runs_link_by_link_in_the_exchange_of_each_end(
    store: Store, hands: Hands, is_limited: bool
) -> None:
    await declare(store, running=3)
    one = limited(need("a")) if is_limited else job()
    ids = await enqueued(store, one, *(replace(one, after=after(-n).after) for n in (1, 2)))
    assert await states(store, ids) == ["queued", "blocked", "blocked"]
    mine = await claim_one(hands, ids[0])
    for job_id in ids[1:]:
        reply = await hands.exchange(ended(mine), limit=10)
        (mine,) = reply.claimed
        assert mine.job_id == job_id
    await hands.hand_in(ended(mine))
    assert await states(store, ids) == ["completed"] * 3


async def test_a_retry_is_no_end(store: Store, hands: Hands) -> None:
    first, then = await enqueued(
        store, job(policy=Policy(retries=1, backoff_first=0, backoff_max=0)), after(-1)
    )
    for _ in range(2):
        mine = await claim_one(hands, first)
        await hands.hand_in(crashed(mine))
    assert await drain(hands) == []
    assert await states(store, [first, then]) == ["dead", "cancelled"]


async def test_a_death_cancels_all_that_can_no_longer_run(store: Store, hands: Hands) -> None:
    ids = await enqueued(
        store,
        job(policy=DIES),
        job(),
        after(-1, -2),
        after(-3),
        after(-1, wants=Wants.ENDED),
        after(-1, wants=Wants.DEAD),
        after(-2, wants=Wants.DEAD),
        after(-4, wants=Wants.ENDED),
    )
    dead, good, _, _, anyhow, alarm, _, last = ids
    assert sorted(await drain(hands, dead=[dead])) == sorted([dead, good, anyhow, alarm, last])
    assert await states(store, ids) == [
        "dead",
        "completed",
        "cancelled",
        "cancelled",
        "completed",
        "completed",
        "cancelled",
        "completed",
    ]


async def test_a_fan_of_any_size_opens_once_after_the_last_end(store: Store, hands: Hands) -> None:
    count = 1_200
    fan = [job()] * count
    ids = await enqueued(store, *fan, after(*range(-count, 0)))
    done = 0
    while got := await hands.claim(500):
        assert ids[-1] not in {each.job_id for each in got} or done == count
        await hands.hand_in(*map(ended, got))
        done += len(got)
    assert done == count + 1
    wide = await enqueued(store, job(), *[after(-1)] * count)
    assert sorted(await drain(hands)) == sorted(wide)


async def test_a_death_that_many_wait_for_is_done_with_once(store: Store, hands: Hands) -> None:
    """More than a round takes: those that have failed must not fill all later rounds."""
    first, *others = await enqueued(store, job(policy=DIES), *[after(-1)] * 1_200)
    assert await drain(hands, dead=[first]) == [first]
    while (reply := await hands.exchange(limit=1)).next_due == 0.0:
        assert reply.claimed == []
    assert reply.next_due is None
    assert await states(store, [others[0], others[-1]]) == ["cancelled", "cancelled"]


async def test_jobs_wait_for_those_that_are_there_already(store: Store, hands: Hands) -> None:
    dead, done, runs, waits = await enqueued(store, job(policy=DIES), job(), job(), job())
    got = {each.job_id: each for each in await hands.claim(3)}
    await hands.hand_in(crashed(got[dead]), ended(got[done]))
    ids = await enqueued(
        store,
        after(dead),
        after(done),
        after(runs),
        after(waits),
        after(done, runs, waits),
        after(dead, wants=Wants.DEAD),
    )
    await hands.settle()
    assert sorted(each.job_id for each in await hands.claim(3)) == sorted([waits, ids[1], ids[5]])
    assert await states(store, ids) == [
        "cancelled",
        "running",
        "blocked",
        "blocked",
        "blocked",
        "running",
    ]
    reply = await hands.exchange(ended(got[runs]), limit=10)
    assert [each.job_id for each in reply.claimed] == [ids[2]]


async def test_what_cannot_be_waited_for_is_refused_and_nothing_is_stored(
    store: Store, hands: Hands
) -> None:
    (fleeting,) = await enqueued(store, job(policy=Policy(keep=0.0)))
    with pytest.raises(JobNotFound, match="no job 4711 to wait for"):
        await store.enqueue([job(), after(4711)])
    with pytest.raises(UsageError, match=f"job {fleeting}, which is deleted as it ends"):
        await store.enqueue([job(), after(fleeting)])
    assert await drain(hands) == [fleeting]


async def test_a_job_that_others_wait_for_is_kept_until_they_have_ended(
    store: Store, hands: Hands
) -> None:
    first, then = await enqueued(store, job(policy=Policy(keep=0.0)), after(-1))
    await hands.hand_in(ended(await claim_one(hands, first)))
    mine = await claim_one(hands, then)
    await store.prune(jobs_older_than=0.0, workers_older_than=1e6)
    assert await states(store, [first, then]) == ["completed", "running"]
    await hands.hand_in(ended(mine))
    await store.prune(jobs_older_than=0.0, workers_older_than=1e6)
    assert await states(store, [first, then]) == ["gone", "gone"]


async def test_a_requeue_upstream_takes_the_cancels_back(store: Store, hands: Hands) -> None:
    first, then, last, stopped, _ = ids = await enqueued(
        store, job(policy=DIES), after(-1), after(-2), after(-1), after(-1, key="k")
    )
    assert await store.cancel([stopped]) == {stopped: Cancelled.CANCELLED}
    await drain(hands, dead=[first])
    assert await states(store, ids) == ["dead"] + ["cancelled"] * 4
    assert await store.requeue([first], from_scratch=False) == {first: Requeued.REQUEUED}
    mine = await claim_one(hands, first)
    assert await states(store, ids) == ["running", "blocked", "blocked", "cancelled", "cancelled"]
    await hands.hand_in(ended(mine))
    assert await drain(hands) == [then, last]


async def test_two_failures_upstream_are_both_to_be_taken_back(store: Store, hands: Hands) -> None:
    one, two, then = ids = await enqueued(store, job(policy=DIES), job(policy=DIES), after(-1, -2))
    got = {each.job_id: each for each in await hands.claim(2)}
    await hands.hand_in(crashed(got[one]))
    assert await hands.claim(1) == []
    await hands.hand_in(crashed(got[two]))
    assert await hands.claim(1) == []
    for job_id in (one, two):
        await store.requeue([job_id], from_scratch=False)
        mine = await claim_one(hands, job_id)
        await hands.hand_in(ended(mine))
    assert await drain(hands) == [then]
    assert await states(store, ids) == ["completed"] * 3


async def test_a_person_may_cancel_or_run_a_job_that_waits(store: Store, hands: Hands) -> None:
    first, then = await enqueued(store, job(), after(-1))
    mine = await claim_one(hands, first)
    assert await store.cancel([then]) == {then: Cancelled.CANCELLED}
    assert await store.requeue([then], from_scratch=False) == {then: Requeued.REQUEUED}
    again = await claim_one(hands, then)
    await hands.hand_in(ended(mine), ended(again))
    assert await drain(hands) == []
    assert await states(store, [first, then]) == ["completed", "completed"]


async def test_a_blocked_job_expires_and_its_key_is_free_then(store: Store, hands: Hands) -> None:
    first, then, last = await enqueued(store, job(), after(-1, expires=0.0, key="k"), after(-2))
    mine = await claim_one(hands, first)
    (new,) = await enqueued(store, job(key="k", delay=1e6))
    assert new != then
    assert await hands.claim(1) == []
    assert await states(store, [first, then, last]) == ["running", "cancelled", "cancelled"]
    await hands.hand_in(ended(mine))
    assert await drain(hands) == []


async def test_a_delay_counts_from_the_enqueue_and_a_limit_from_the_opening(
    store: Store, hands: Hands
) -> None:
    first, later, under = await enqueued(
        store,
        job(),
        after(-1, delay=1e6),
        limited(need("a"), after=(Upstream(-1),)),
    )
    assert await drain(hands) == [first]
    assert await states(store, [later, under]) == ["queued", "queued"]


async def test_a_job_with_a_key_is_waited_for_wherever_it_came_from(
    store: Store, hands: Hands
) -> None:
    (known,) = await enqueued(store, job(key="k"))
    stored = await store.enqueue([job(key="k"), after(-1), after(-1, key="k2")])
    assert [each.created for each in stored] == [False, True, True]
    assert (await drain(hands))[0] == known
    assert await states(store, [each.job_id for each in stored]) == ["completed"] * 3


@of_whole_rounds
@pytest.mark.parametrize("times", [30, pytest.param(1_000, marks=pytest.mark.long)])
async def test_ends_at_once_in_two_sessions_open_the_job_once(
    store: Store, other_store: Store, hands: Hands, times: int
) -> None:
    other = Hands(other_store, hands.me)
    for _ in range(times):
        one, two, then = await enqueued(store, job(), job(), after(-1, -2))
        got = {each.job_id: each for each in await hands.claim(2)}
        taken = await asyncio.gather(hands.follow(ended(got[one])), other.follow(ended(got[two])))
        claimed = [*chain(*taken), *await hands.claim(1)]
        assert [each.job_id for each in claimed] == [then]
        await hands.hand_in(ended(claimed[0]))


@pytest.mark.parametrize("is_dead", [True, False])
async def test_what_waits_for_a_skipped_job_runs_without_its_result(
    store: Store, hands: Hands, is_dead: bool
) -> None:
    """On both sides of the look at its death: what was cancelled because of it waits again."""
    first, then, last, alarm, kept, other = ids = await enqueued(
        store,
        job(policy=DIES),
        after(-1, policy=Policy(inputs=(("x", False),))),
        after(-2),
        after(-1, wants=Wants.DEAD),
        after(-1, key="another's"),
        job(),
    )
    mine = await claim_one(hands, first)
    await hands.hand_in(crashed(mine))
    if is_dead:
        await claim_one(hands, other)
        await hands.settle()
        assert await states(store, ids[1:4]) == ["cancelled", "cancelled", "queued"]
    assert await store.skip([first, other], tokens={first: mine.token}) == {first}
    row = await row_of(store, first)
    assert (row.state, row.result, row.attempt_count) == (State.COMPLETED, None, 2)
    assert await hands.hand_in(ended(mine)) == [Answer.REFUSED]
    found = await hands.claim(10)
    assert {each.job_id for each in found} >= {then, *([alarm] if is_dead else [])}
    assert [each.results for each in found if each.job_id == then] == [(None,)]
    await hands.hand_in(*map(ended, found))
    assert last in await drain(hands)
    assert await states(store, [kept]) == ["cancelled" if is_dead else "completed"]
    assert await store.skip([first], tokens={first: mine.token}) == set()
    assert (await verify(store.inspector)).findings == []


async def test_a_blocked_job_that_is_skipped_waits_for_nothing_and_does_not_run(
    store: Store, hands: Hands
) -> None:
    first, middle, last = await enqueued(store, job(), after(-1), after(-2))
    gone, *_ = await enqueued(store, after(first, policy=Policy(keep=0)))
    assert await store.skip([middle, gone]) == {middle, gone}
    assert (await verify(store.inspector)).findings == []
    assert await drain(hands) == [first, last]
    assert await states(store, [middle, gone]) == ["completed", "gone"]
    assert (await verify(store.inspector)).findings == []


async def test_many_that_wait_in_vain_for_a_death_hold_up_no_look_at_others(
    store: Store, hands: Hands
) -> None:
    """A look changes 500 dependencies at most: those that stay as they are do not count."""
    first, *_ = await enqueued(store, job(), *[after(-1, wants=Wants.DEAD)] * 510)
    assert await drain(hands) == [first]
    late, other, then = await enqueued(
        store, after(first), job(delay=3600), after(-2, wants=Wants.ENDED)
    )
    await store.cancel([other])
    assert {*(await drain(hands))} == {late, then}


@pytest.mark.parametrize("order", [1, -1])
async def test_a_job_that_comes_back_does_not_run_without_a_deleted_result(
    store: Store, hands: Hands, order: int
) -> None:
    """Its end was a cancel, which the requeue of a dead job takes back: it says what it needs."""
    pair = [job(policy=DIES), job(policy=Policy(keep=0.0))][::order]
    needs_both = after(-1, -2, policy=Policy(inputs=(("parts", True),)))
    ids = await enqueued(store, *pair, needs_both)
    dead, good = ids[:2][::order]
    await drain(hands, dead=[dead])
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    assert await states(store, [dead, good, ids[2]]) == ["dead", "gone", "cancelled"]
    await store.requeue([dead])
    await hands.hand_in(ended(await claim_one(hands, dead), result="8"))
    (again,) = await hands.claim()
    assert f"the result of job {good}, for which it waited, was deleted" in (again.malformed or "")


async def test_a_job_that_is_named_twice_gives_its_result_twice(store: Store, hands: Hands) -> None:
    """As two calls of a group with one key, which are one job."""
    inputs = Policy(inputs=(("parts", True),))
    calls = [job(key="k"), job(), job(key="k"), job(), after(-1, -2, -3, -4, policy=inputs)]
    stored = await store.enqueue(calls)
    k, one, _, two, then = [each.job_id for each in stored]
    await hands.hand_in(*[ended(each, result=f"[{each.job_id}]") for each in await hands.claim(3)])
    (last,) = await hands.claim()
    assert (last.job_id, last.results) == (then, tuple(f"[{each}]" for each in (k, one, k, two)))
    await hands.hand_in(ended(last))
    assert await states(store, [then]) == ["completed"]


async def test_a_job_that_is_named_twice_fails_and_comes_back_once(
    store: Store, hands: Hands
) -> None:
    calls = [job(key="k", policy=DIES), job(), job(key="k", policy=DIES), after(-1, -2, -3)]
    k, one, _, then = [each.job_id for each in await store.enqueue(calls)]
    links = [link for link in await store.inspector.flow_links([then], 9) if link.job_id == then]
    assert sorted(link.upstream_id for link in links) == [k, k, one]
    await drain(hands, dead=[k])
    assert await states(store, [k, one, then]) == ["dead", "completed", "cancelled"]
    await store.requeue([k])
    assert await drain(hands) == [k, then]


async def test_two_calls_of_a_key_of_which_one_waits_for_more_are_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="two calls have the key 'k'"):
        await store.enqueue([job(key="k"), after(-1, key="k")])
    stored = await store.enqueue([job(), after(-1, key="k"), after(-1, key="k")])
    assert stored[1].job_id == stored[2].job_id


async def test_results_that_a_trip_has_no_room_for_come_with_a_later_one(
    store: Store, hands: Hands
) -> None:
    """A trip brings the results of one job at least, and what gets none in any case; what is given
    back is not charged."""
    large = Policy(inputs=(("x", False),), retries=0)
    waiting = (await enqueued(store, job(), *[after(-1, policy=large)] * 3))[1:]
    await hands.hand_in(ended(await hands.claim_one(), result=f'"{"x" * 1_000}"'))
    small = await enqueued(store, *[job()] * 3)
    claimed = await hands.claim(bytes_max=1_500)
    got = [each for each in claimed if each.job_id in waiting]
    assert len(got) == 1
    assert {each.job_id for each in claimed} > {*small}
    while len(got) < len(waiting):
        reply = await hands.exchange(*map(ended, claimed), limit=100, bytes_max=1_500)
        claimed = reply.claimed
        assert len(claimed) == 1
        got += claimed
    assert {each.job_id for each in got} == {*waiting}
    assert {each.results for each in got} == {(f'"{"x" * 1_000}"',)}
    assert {(each.failures, each.losses) for each in got} == {(0, 0)}
    await hands.hand_in(*map(ended, claimed))
    assert (await verify(store.inspector)).findings == []


@pytest.mark.parametrize("how", ["plain", "dead", "limited", "in a transaction"])
async def test_the_reply_that_opens_a_delayed_job_tells_when_it_is_due(
    store: Store, store_url: str, hands: Hands, how: str
) -> None:
    await declare(store, running=1)
    first = limited(need("a")) if how == "limited" else job(policy=DIES)
    wants = Wants.DEAD if how == "dead" else Wants.COMPLETED
    await enqueued(store, first, job(after=(Upstream(-1, wants),), delay=30.0))
    one = await hands.claim_one()
    ends = [crashed(one) if how == "dead" else ended(one)]
    if how == "in a transaction":
        async with transaction(store_url) as connection:
            assert await on(connection).complete(one.job_id, one.token, "1")
        ends = []
    reply = await hands.exchange(*ends, limit=1)
    assert reply.claimed == []
    assert reply.next_due is not None
    assert 0 < reply.next_due <= 30
