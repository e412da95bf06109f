"""Jobs under limits: how many run at once, how many start in a span, whose turn it is.

Laws (docs/limits.md): a permit's count is that of running attempts (L1), never above its cap unless
that was lowered (L2), and each job that may start is started (L3).
"""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from harness.rounds import MOST
from outlast.base.clock import SYSTEM
from outlast.errors import BadData
from outlast.insight.limits import explain
from outlast.insight.queries import list_jobs, read_details
from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import Need, Per, permit_id
from outlast.store.limits import Hold, SetLimit
from outlast.store.protocol import EXPIRE_MAX, Store
from outlast.store.rows import JobFilter
from outlast.store.values import TRIP_BYTES, Answer
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued, eventually, job, of_whole_rounds
from tests.conformance.limits_kit import declare, held, limited, need, permit, prune_in_turn
from tests.conformance.schedules_kit import due_one, fire_one, firing, put_one


async def test_no_more_run_at_once_than_the_limit_allows(store: Store, hands: Hands) -> None:
    await declare(store, running=2)
    ids = await enqueued(store, *[limited(need("a"))] * 5)
    first = await hands.claim()
    assert [each.job_id for each in first] == ids[:2]
    assert await held(store) == 2
    assert await hands.claim() == []
    reply = await hands.exchange(ended(first[0]), limit=10)
    assert [each.job_id for each in reply.claimed] == ids[2:3]
    assert await held(store) == 2


async def test_jobs_without_limits_pass_those_that_wait(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"))] * 3)
    free = await enqueued(store, job(), job())
    await hands.settle()
    claimed = {each.job_id for each in await hands.claim()}
    if MOST:  # one of both may come first
        claimed |= {each.job_id for each in await hands.claim()}
    assert len(claimed) == 3
    assert claimed > set(free)


@pytest.mark.parametrize("turned", [False, True])
async def test_jobs_with_and_without_limits_are_stored_together(
    store: Store, hands: Hands, turned: bool
) -> None:
    await declare(store, running=1)
    ids = await enqueued(store, *[limited(need("a")), job()][:: -1 if turned else 1])
    claimed = await hands.claim() + await hands.claim()
    assert sorted(each.job_id for each in claimed) == sorted(ids)


@of_whole_rounds
async def test_streams_and_the_line_get_half_of_the_places_each(store: Store, hands: Hands) -> None:
    await declare(store, running=50)
    in_line = await enqueued(store, *[job()] * 10)
    await enqueued(store, *[limited(need("a"))] * 13)
    counts = [sum(one.job_id in in_line for one in await hands.claim(10)) for _ in range(3)]
    assert counts == [5, 5, 0]  # what one does not need is for the other


@of_whole_rounds
async def test_a_job_needs_all_its_permits(store: Store, hands: Hands) -> None:
    await declare(store, "a", running=3)
    await declare(store, "b", running=1, per="tenant")
    acme = [need("a"), need("b", "acme")]
    ids = await enqueued(
        store,
        *[limited(*acme)] * 2,
        *[limited(need("a"), need("b", "zeta"))] * 2,
        limited(need("a")),
    )
    claimed = {each.job_id for each in await hands.claim()}
    assert claimed == {ids[0], ids[2], ids[4]}
    assert [await held(store, "b", key) for key in ("acme", "zeta")] == [1, 1]


async def test_jobs_that_name_their_limits_in_opposite_order_all_start(
    store: Store, hands: Hands
) -> None:
    await declare(store, "a", running=1)
    await declare(store, "b", running=1)
    both = [need("a"), need("b")]
    waiting = {*await enqueued(store, *[limited(*both), limited(*both[::-1])] * 2)}
    while waiting:
        (one,) = await eventually(hands.claim)
        waiting.remove(one.job_id)
        await hands.hand_in(ended(one))


@pytest.mark.parametrize("kind", list(OutcomeKind))
async def test_each_end_gives_the_permit_back_once(
    store: Store, hands: Hands, kind: OutcomeKind
) -> None:
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"), policy=Policy(retries=0))] * 2)
    (one,) = await hands.claim()
    end = crashed(one) if kind is OutcomeKind.CRASHED else ended(one, kind)
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    assert await hands.hand_in(end) != [Answer.ACCEPTED]  # solid_queue#761: settled once
    assert await held(store) == 0
    assert len(await hands.claim()) == 1


@pytest.mark.parametrize("keep", [None, 60.0, 0.0])
async def test_the_place_of_an_end_is_given_on_by_the_same_exchange(
    store: Store, hands: Hands, keep: float | None
) -> None:
    """Also if the row of the job that has ended is deleted with its end."""
    await declare(store, running=1)
    ids = await enqueued(store, *[limited(need("a"), policy=Policy(keep=keep))] * 3)
    (one,) = await hands.claim()
    for job_id in ids[1:]:
        reply = await hands.exchange(ended(one), limit=10)
        assert [each.job_id for each in reply.claimed] == [job_id]
        (one,) = reply.claimed


async def test_a_refused_end_gives_nothing_back(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    stale = await hands.claim_one()
    await store.reconcile(hands.me, [])
    current = await hands.claim_one()
    assert await hands.hand_in(ended(stale)) == [Answer.REFUSED]
    assert await held(store) == 1
    assert await hands.hand_in(ended(current)) == [Answer.ACCEPTED]
    assert await held(store) == 0


async def test_a_cancelled_or_deleted_job_leaves_no_permit_behind(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=1)
    ids = await enqueued(store, *[limited(need("a"), policy=Policy(keep=0.0))] * 3)
    one = await hands.claim_one()
    await store.cancel(ids[1:2])
    await hands.hand_in(ended(one))  # keep=0: the row goes
    assert await store.inspector.job(ids[0]) is None
    assert await held(store) == 0
    assert [each.job_id for each in await hands.claim()] == ids[2:]


async def test_a_rate_lets_a_burst_begin_and_the_reply_says_when_to_come_back(
    store: Store, hands: Hands
) -> None:
    await declare(store, spacing=100.0, burst=2.0)
    await enqueued(store, *[limited(need("a"))] * 4)
    first = await hands.exchange(limit=10)
    assert len(first.claimed) == 2
    again = await hands.exchange(*map(ended, first.claimed), limit=10)
    assert again.claimed == []  # an end gives back no rate
    assert again.next_due is not None
    assert 0 < again.next_due <= 100


async def test_a_rate_lets_jobs_begin_as_time_goes_on(store: Store, hands: Hands) -> None:
    await declare(store, spacing=0.05)
    ids = await enqueued(store, *[limited(need("a"))] * 3)
    got: list[int] = []

    async def take() -> bool:
        got.extend(each.job_id for each in await hands.claim())
        return len(got) == len(ids)

    await eventually(take)
    assert got == ids


async def test_what_is_given_back_unstarted_gives_back_its_rate(store: Store, hands: Hands) -> None:
    await declare(store, spacing=1_000.0)
    await enqueued(store, *[limited(need("a"))] * 2)
    one = await hands.claim_one()
    await hands.hand_in(ended(one, OutcomeKind.RELEASED, began=False))
    assert len(await hands.claim()) == 1
    assert await hands.claim() == []


async def test_what_is_given_back_late_gives_back_no_more_than_is_still_missing(
    store: Store, hands: Hands
) -> None:
    await declare(store, spacing=2.0)
    await enqueued(store, *[limited(need("a"))] * 3)
    one = await hands.claim_one()
    claimed: list[int] = []

    async def claim_another() -> bool:
        claimed.extend(each.job_id for each in await hands.claim())
        return bool(claimed)

    await eventually(claim_another)
    await hands.hand_in(ended(one, OutcomeKind.RELEASED, began=False))
    assert await hands.claim() == [], "the other one has just begun"


async def test_a_cost_takes_more_of_the_rate_and_is_not_counted_as_running(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=5, spacing=1_000.0, burst=5.0)
    await enqueued(store, *[limited(need("a", cost=2.0))] * 4)
    assert len(await hands.claim()) == 2
    assert await held(store) == 2


async def test_what_is_spent_afterwards_holds_up_later_starts(store: Store, hands: Hands) -> None:
    await declare(store, spacing=100.0, burst=3.0)
    await enqueued(store, *[limited(need("a"))] * 3)
    one = await hands.claim_one()
    assert await store.spend(one.job_id, one.token, "a", 2.0) is Answer.ACCEPTED
    assert await hands.claim() == []
    assert await store.spend(one.job_id, one.token + 1, "a", 2.0) is Answer.REFUSED
    with pytest.raises(BadData, match=r"was enqueued without limits=\[b\]"):
        await store.spend(one.job_id, one.token, "b", 2.0)


async def test_a_held_limit_lets_nothing_begin_until_it_is_let_go(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=5)
    await enqueued(store, limited(need("a")))
    await hands.settle()
    assert await store.hold_limit(Hold("a", "", 1_000.0))
    reply = await hands.exchange(limit=5)
    assert reply.claimed == []
    assert await store.hold_limit(Hold("a", "", 0.0))
    assert len(await hands.claim()) == 1
    assert not await store.hold_limit(Hold("unknown", "", 1.0))


async def test_an_end_may_hold_its_limit_for_all(store: Store, hands: Hands) -> None:
    await declare(store, running=5, per="tenant")
    ids = await enqueued(store, *[limited(need("a", "acme"))] * 2, limited(need("a", "zeta")))
    await hands.settle()
    (acme,) = [one for one in await hands.claim(2) if one.job_id in ids[:2]]
    end = ended(acme, OutcomeKind.SNOOZED, delay=1_000.0, throttles="a")
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    await enqueued(store, limited(need("a", "acme")), limited(need("a", "zeta")))
    await hands.claim()
    row = await permit(store, "a", "acme")
    assert row.held_until is not None
    again = await enqueued(store, limited(need("a", "acme")), limited(need("a", "zeta")))
    assert [each.job_id for each in await hands.claim()] == again[1:]
    place = await store.inspector.stream_place(again[0])
    assert place is not None
    assert place.throttled_by == acme.job_id
    await store.cancel([acme.job_id])
    place = await store.inspector.stream_place(again[0])
    assert place is not None
    assert place.throttled_by is None


async def test_of_holds_by_ends_the_longest_counts_and_a_person_ends_it(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=5)
    await enqueued(store, *[limited(need("a"))] * 3)
    ends = [
        ended(one, OutcomeKind.SNOOZED, delay=delay, throttles="a")
        for one, delay in zip(await hands.claim(), (1_000.0, 10.0, 10.0), strict=True)
    ]
    await hands.hand_in(*ends[:2])
    await hands.claim()
    first = (await permit(store)).held_until
    assert first is not None
    assert await store.hold_limit(Hold("a", "", 5_000.0))
    await hands.hand_in(ends[2])
    await hands.claim()
    second = (await permit(store)).held_until
    assert second is not None
    assert 900 < first - SYSTEM.wall() < 4_000 < second - SYSTEM.wall()
    assert await store.hold_limit(Hold("a", "", 0.0))
    await hands.claim()
    assert (await permit(store)).held_until is None


async def test_a_hold_that_a_person_has_ended_does_not_come_back(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=5)
    await enqueued(store, limited(need("a")))
    one = await hands.claim_one()
    assert await store.hold_limit(Hold("a", "", 5_000.0))
    await hands.claim()
    assert await store.hold_limit(Hold("a", "", 0.0))
    await hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=10.0, throttles="a"))
    await hands.claim()
    until = (await permit(store)).held_until
    assert until is not None
    assert until - SYSTEM.wall() < 100


async def test_the_burst_of_the_code_counts_until_a_person_sets_one(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=5, spacing=1.0, burst=2.0)
    await store.set_limit(SetLimit(name="a", running=3))
    await declare(store, running=5, spacing=1.0, burst=20.0)
    (row,) = await store.inspector.limits()
    assert (row.running, row.burst) == (3, 20.0)
    await store.set_limit(SetLimit(name="a", burst=4.0))
    await declare(store, running=5, spacing=1.0, burst=30.0)
    (row,) = await store.inspector.limits()
    assert (row.running, row.burst) == (3, 4.0)


@pytest.mark.parametrize("many", [20, 300])
async def test_costs_above_a_lowered_burst_hold_up_no_other(
    store: Store, hands: Hands, many: int
) -> None:
    await declare(store, spacing=0.001, burst=10.0)
    await declare(store, "b", running=5, per="tenant")
    await store.hold_limit(Hold("a", "", 1_000.0))
    await enqueued(store, *[limited(need("a", cost=5.0), need("b", f"t{n}")) for n in range(many)])
    (cheap,) = await enqueued(store, limited(need("a")))
    for _ in range(many // 50 + 1):
        assert await hands.claim() == []
    await store.set_limit(SetLimit(name="a", burst=3.0))
    await store.hold_limit(Hold("a", "", 0.0))
    assert [each.job_id for each in await eventually(hands.claim)] == [cheap]


async def test_a_raised_limit_lets_more_begin_and_a_lowered_one_stops_none(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"))] * 6)
    assert len(await hands.claim()) == 1
    assert await store.set_limit(SetLimit(name="a", running=3))
    assert len(await hands.claim()) == 2
    assert await store.set_limit(SetLimit(name="a", running=1))
    assert await held(store) == 3
    assert await hands.claim() == []
    await declare(store, running=2)  # the code's word does not win over a person's
    (row,) = await store.inspector.limits()
    assert (row.running, row.used) == (1, 3)
    assert await store.set_limit(SetLimit(name="a", reset=True))
    (row,) = await store.inspector.limits()
    assert (row.running, row.own) == (2, None)
    assert not await store.set_limit(SetLimit(name="b", running=3))


@of_whole_rounds
async def test_one_key_may_have_a_count_of_its_own(store: Store, hands: Hands) -> None:
    await declare(store, running=1, per="tenant")
    assert await store.set_limit(SetLimit(name="a", key="acme", running=2))
    await enqueued(store, *[limited(need("a", "acme"))] * 3, *[limited(need("a", "zeta"))] * 3)
    assert len(await hands.claim()) == 3
    assert [(await permit(store, "a", key)).running for key in ("acme", "zeta")] == [2, 1]


async def test_a_limit_that_no_code_declares_lets_nothing_begin(store: Store, hands: Hands) -> None:
    await enqueued(store, limited(need("a")))
    assert await hands.claim() == []
    await declare(store, running=1)
    assert len(await hands.claim()) == 1


async def test_tenants_take_turns_however_many_jobs_one_of_them_has(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, *[limited(fair="big", tenant="big")] * 200)
    await hands.claim(10)
    small = await enqueued(
        store, *[limited(fair=f"t{i}", tenant=f"t{i}") for i in range(5) for _ in range(2)]
    )
    await hands.settle()
    got = [each.job_id for _ in range(3) for each in await hands.claim(6)]
    assert set(small) <= set(got)


async def test_the_order_within_a_stream_is_that_of_the_line(store: Store, hands: Hands) -> None:
    await declare(store, running=10)
    later = await enqueued(store, limited(need("a"), priority=0))
    sooner = await enqueued(store, limited(need("a"), priority=5), limited(need("a"), priority=5))
    await hands.settle()
    assert [each.job_id for each in await hands.claim(2)] == sooner
    assert [each.job_id for each in await hands.claim(2)] == later


async def test_paused_jobs_of_a_high_priority_hold_up_none_of_a_lower(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=10)
    await enqueued(store, *[limited(need("a"), tenant="acme", priority=5)] * 3)
    (later,) = await enqueued(store, limited(need("a")))
    got = await hands.claim(2, not_tenants=["acme"])
    assert [each.job_id for each in got] == [later]
    assert len(await hands.claim()) == 3


async def test_a_retry_waits_without_its_permit_and_takes_it_again(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=1)
    ids = await enqueued(store, *[limited(need("a"))] * 2)
    one = await hands.claim_one()
    await hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=0.0))
    assert await held(store) == 0
    assert [each.job_id for each in await hands.claim()] == ids[1:]
    await store.inspector.job(ids[0])
    row = await store.inspector.job(ids[0])
    assert row is not None
    assert row.state is State.QUEUED


async def test_paused_queues_and_tenants_hold_no_permit(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a"), queue="slow"), limited(need("a"), tenant="acme"))
    free = await enqueued(store, limited(need("a"), tenant="zeta"))
    got = await hands.claim(5, not_queues=["slow"], not_tenants=["acme"])
    assert [each.job_id for each in got] == free
    await hands.hand_in(ended(got[0]))
    assert len(await hands.claim(5)) == 1


@pytest.mark.parametrize("paused", ["acme", "zeta"])
@pytest.mark.parametrize("when", ["at once", "queued", "running", "delayed", "between"])
async def test_a_paused_tenant_hides_no_other_in_the_stream_that_they_share(
    store: Store, hands: Hands, when: str, paused: str
) -> None:
    """Whenever the job of the second comes: with that of the first, later, or while it is away."""
    await declare(store, running=9)
    one, other = (limited(need("a"), tenant=tenant) for tenant in ("acme", "zeta"))
    if when == "at once":
        await enqueued(store, one, other)
    elif when == "delayed":
        await enqueued(store, msgspec.structs.replace(one, delay=0.05), other)
    else:
        await enqueued(store, one)
        first = await hands.claim_one() if when != "queued" else None
        assert when != "between" or await hands.claim() == []  # finds the stream idle
        await enqueued(store, other)
        if first is not None:
            await hands.hand_in(ended(first, OutcomeKind.SNOOZED, delay=0.0))
    (left,) = {"acme", "zeta"} - {paused}
    got = await eventually(lambda: hands.claim(5, not_tenants=[paused]))
    assert [each.tenant for each in got] == [left]
    assert [each.tenant for each in await eventually(lambda: hands.claim(5))] == [paused]


@pytest.mark.parametrize("before", [Per.TENANT, Per.LIMIT_KEY])
async def test_a_key_that_was_a_tenant_before_hides_no_other_tenant(
    store: Store, hands: Hands, before: Per
) -> None:
    """The code of the next release counts by another kind of key; one of them is alike."""
    (after,) = {Per.TENANT, Per.LIMIT_KEY} - {before}
    await declare(store, running=9, per=before)
    await enqueued(store, *[limited(need("a", "acme"), tenant="acme")] * 2)
    await hands.claim_one()
    await declare(store, running=9, per=after)
    await enqueued(store, limited(need("a", "acme"), tenant="zeta"))
    got = await eventually(lambda: hands.claim(5, not_tenants=["acme"]))
    assert [each.tenant for each in got] == ["zeta"]


@pytest.mark.parametrize("priority", [0, 9])
async def test_a_paused_tenant_with_many_keys_holds_up_no_other(
    store: Store, hands: Hands, priority: int
) -> None:
    await declare(store, running=4, per="limit_key")
    await enqueued(
        store,
        *[limited(need("a", f"k{n}"), tenant="acme", priority=priority) for n in range(60)],
    )
    (other,) = await enqueued(store, limited(need("a"), tenant="zeta"))
    (one,) = await hands.claim(1, not_tenants=["acme"])
    assert one.job_id == other
    assert len(await hands.claim(100)) == 60


async def test_other_tasks_and_queues_are_left_to_those_that_serve_them(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=5)
    (other,) = await enqueued(store, limited(need("a"), task="app.other"))
    (here,) = await enqueued(store, limited(need("a"), queue="here"))
    assert [each.job_id for each in await hands.claim(5, queues=["there"])] == []
    assert [each.job_id for each in await hands.claim(5, queues=["here"])] == [here]
    assert [each.job_id for each in await hands.claim(5, tasks=["app.other"])] == [other]


async def test_where_a_job_waits_is_told_with_its_holders(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    holder, waiting, behind = await enqueued(store, *[limited(need("a"))] * 3)
    await hands.claim()
    await hands.claim()
    await hands.vanish()  # frozen or dead, the holder is named until its job is reclaimed
    place = await store.inspector.stream_place(behind)
    assert place is not None
    assert place.ahead == 1
    assert place.blocked_by is not None
    assert (place.blocked_by.name, place.blocked_by.used) == ("a", 1)
    assert place.limit is not None
    assert place.limit.running == 1
    assert [(job_id, worker) for job_id, worker, _ in place.holders] == [(holder, "w1")]
    assert await store.inspector.stream_place(holder) is None
    assert waiting != behind


async def test_limits_are_listed_with_what_runs_and_what_waits(store: Store, hands: Hands) -> None:
    await declare(store, "api", running=1)
    await declare(store, "host", running=1, per=Per.LIMIT_KEY)
    await declare(store, "turn", running=1, per=Per.LIMIT_KEY, ordered=True)
    in_turn = Need(permit_id("turn", "k"), "turn", "k", ordered=True)
    await enqueued(
        store,
        *[limited(need("api"))] * 4,
        *[limited(need("host", key)) for key in "xyzzz"],
        *[limited(in_turn)] * 3,
        limited(need("gone")),
        job(),
    )
    while await hands.claim():
        pass
    seen = {
        row.name: (row.permits, row.used, row.waiting) for row in await store.inspector.limits()
    }
    assert seen == {"api": (1, 1, 3), "host": (3, 3, 2), "turn": (1, 1, 2), "gone": (0, 0, 1)}
    gone = await store.inspector.limit("gone")
    assert gone is not None
    assert (gone.declared, gone.running) == (None, 0)
    assert await store.inspector.limit("none") is None
    assert {row.key: row.waiting for row in await store.inspector.permits("host")} == {
        "x": 0,
        "y": 0,
        "z": 2,
    }


async def test_a_place_that_is_kept_for_another_stream_is_shown_as_taken(
    store: Store, hands: Hands
) -> None:
    await declare(store, "api", running=1)
    _, waiting = await enqueued(store, limited(need("api")), limited(need("api")))
    await hands.claim(2)
    until = SYSTEM.wall() + 600.0
    async with raw(store.url) as file:  # as for a stream that needs another permit, too
        keep = f"own_running = 2, kept_for = 1, kept_until = {until}, opens_at = {until}"
        assert await file.run(f"UPDATE outlast_permits SET {keep} WHERE name = 'api'")
    (row,) = await store.inspector.jobs_of([waiting])
    assert row.held_back == "limited"
    place = await store.inspector.stream_place(waiting)
    assert place is not None
    assert place.blocked_by is not None
    assert place.blocked_by.opens_at is None
    (permit,) = await store.inspector.permits("api")
    assert permit.opens_at is None


async def test_jobs_that_wait_for_a_limit_are_listed_by_their_phase(
    store: Store, hands: Hands
) -> None:
    in_turn = Need(permit_id("turn", "k"), "turn", "k", ordered=True)
    await declare(store, "turn", running=1, per=Per.LIMIT_KEY, ordered=True)
    await declare(store, "full", running=1)
    await declare(store, "both", running=1)
    await declare(store, "rate", running=9, spacing=1_000.0)
    await declare(store, "held", running=9)
    await declare(store, "every", running=9, per=Per.LIMIT_KEY)
    await store.hold_limit(Hold("held", "", 600.0))
    await store.hold_limit(Hold("every", "", 600.0))
    jobs = {"turn": in_turn, "every": need("every", "x")}
    jobs |= {name: need(name) for name in ("full", "both", "rate", "held", "gone")}
    first = dict(zip(jobs, await enqueued(store, *map(limited, jobs.values())), strict=True))
    then = dict(zip(jobs, await enqueued(store, *map(limited, jobs.values())), strict=True))
    others = await enqueued(store, job(), limited(need("full"), delay=60.0))
    while await hands.claim(3):
        pass
    await store.hold_limit(Hold("both", "", 600.0))
    await hands.claim()
    wanted = {
        "limited": [then["turn"], then["full"], first["gone"], then["gone"]],
        "throttled": [
            *(first[name] for name in ("held", "every")),
            *(then[name] for name in ("both", "rate", "held", "every")),
        ],
    }
    assert not {*others} & {*wanted["limited"], *wanted["throttled"]}
    for phase, waiting in wanted.items():
        which = JobFilter(state=State.QUEUED, limit=100)
        found = await list_jobs(store, which, phase)
        assert [row.id for row in found.rows] == sorted(waiting, reverse=True)
        assert {found.phase_of(row) for row in found.rows} == {phase}
        for job_id in waiting:
            details = await read_details(store, job_id, SYSTEM.wall())
            assert details is not None
            assert details.stream is not None
            said = explain(details.stream, details.now, tells=True)  # as `outlast why`
            assert said is not None
            assert (said[0], details.phase) == (phase, phase)


@pytest.mark.parametrize("wrong", [0, 5])
async def test_a_permit_that_is_miscounted_is_counted_again_and_no_other(
    store: Store, hands: Hands, wrong: int
) -> None:
    await declare(store, running=2)
    await enqueued(store, *[limited(need("a"))] * 4)
    one, _ = await hands.claim()
    assert await hands.claim() == []
    assert await store.recount_limits(-1.0) == []
    async with raw(store.url) as file:
        await file.run(f"UPDATE outlast_permits SET used = {wrong}")
    assert await store.recount_limits() == []  # it has changed just now
    assert [each.recounted_at for each in await store.inspector.limits()] == [None]
    (found,) = await store.recount_limits(-1.0)
    assert (found.name, found.key, found.counted, found.holders) == ("a", "", wrong, 2)
    assert [each.recounted_at for each in await store.inspector.limits()] != [None]
    assert await store.recount_limits(-1.0) == []
    assert await hands.claim() == []
    await hands.hand_in(ended(one))
    assert await store.recount_limits(-1.0) == []  # the end is noted, and not folded
    assert len(await hands.claim()) == 1
    assert (await verify(store.inspector)).findings == []


async def test_a_recount_starts_what_a_leaked_permit_held_up(store: Store, hands: Hands) -> None:
    await declare(store, running=2)
    ids = await enqueued(store, *[limited(need("a"))] * 3)
    claimed = await hands.claim()
    await hands.claim()
    await hands.hand_in(*map(ended, claimed))
    async with raw(store.url) as file:
        await file.run("UPDATE outlast_permits SET used = used + 2")
    await hands.claim()
    assert [each.counted for each in await store.recount_limits(-1.0)] == [2]
    assert [each.job_id for each in await hands.claim()] == ids[2:]


# -- beside other mechanisms


async def test_a_job_that_expires_in_its_stream_takes_no_permit(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    late, good = await enqueued(
        store, limited(need("a"), expires_at=1_000_000_000.0), limited(need("a"))
    )
    assert [each.job_id for each in await hands.claim()] == [good]
    row = await store.inspector.job(late)
    assert row is not None
    assert row.state is State.CANCELLED
    assert await held(store) == 1


async def test_a_dead_job_that_is_requeued_waits_for_its_permit_again(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=1)
    dead, other = await enqueued(store, *[limited(need("a"), policy=Policy(retries=0))] * 2)
    one = await hands.claim_one()
    await hands.hand_in(crashed(one))
    assert [each.job_id for each in await hands.claim()] == [other]
    await store.requeue([dead])
    assert await hands.claim() == []
    row = await store.inspector.job(other)
    assert row is not None
    await store.cancel([other])  # asked to stop: it holds its permit until it has
    assert await hands.claim() == []
    assert await held(store) == 1


async def test_keys_that_rest_leave_nothing_beside_a_limit_that_is_always_in_use(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=2, per="limit_key")
    await declare(store, "all", running=9)
    await enqueued(store, limited(need("a", "k"), need("all")))
    one = await hands.claim_one()
    await enqueued(store, limited(need("all")))
    await hands.claim_one()
    await hands.hand_in(ended(one))
    await hands.claim()
    async with raw(store.url) as file:
        await file.run("UPDATE outlast_streams SET touched_at = touched_at - 90000")
        await file.run("UPDATE outlast_permits SET tat = tat + 90000")  # a slow rate
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    async with raw(store.url) as file:
        await file.run("UPDATE outlast_permits SET touched_at = touched_at - 90000, tat = 0")
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    assert await store.inspector.permits("a") == []
    assert await held(store, "all") == 1
    await enqueued(store, limited(need("a", "k"), need("all")))
    assert await eventually(hands.claim)


async def test_a_hold_of_a_key_that_rests_outlives_its_row(store: Store, hands: Hands) -> None:
    await declare(store, running=2, per="limit_key")
    await enqueued(store, limited(need("a", "k")))
    await hands.hand_in(ended(await hands.claim_one()))
    await hands.claim()
    async with raw(store.url) as file:  # a day goes by
        await file.run("UPDATE outlast_streams SET touched_at = touched_at - 90000")
        await file.run("UPDATE outlast_permits SET touched_at = touched_at - 90000, tat = 0")
    await store.hold_limit(Hold("a", "k", 60.0))
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    assert await hands.claim() == []
    await enqueued(store, limited(need("a", "k")))
    assert await hands.claim() == []


@pytest.mark.parametrize("when", ["runs", "waits"])
async def test_a_suspect_starts_after_its_stream_was_deleted(
    store: Store, hands: Hands, when: str
) -> None:
    async def rest() -> None:
        async with raw(store.url) as file:  # a day goes by
            await file.run("UPDATE outlast_streams SET touched_at = touched_at - 90000")
            await file.run("UPDATE outlast_permits SET touched_at = touched_at - 90000, tat = 0")
        await store.prune(jobs_older_than=9e9, workers_older_than=9e9)

    await declare(store, running=2)
    is_limited = when == "waits"  # a permit in use keeps its stream
    await enqueued(store, limited(*([need("a")] if is_limited else []), fair="acme", tenant="acme"))
    one = await hands.claim_one()
    await hands.claim()
    if when == "runs":
        await rest()
    await hands.hand_in(crashed(one, CrashKind.BYSTANDER, incident=1))
    await hands.claim()
    if when == "waits":
        await rest()
    (again,) = await eventually(lambda: hands.claim(9, solo=1))
    assert again.job_id == one.job_id


@pytest.mark.parametrize("why", ["too large", "expired"])
async def test_a_suspect_that_does_not_start_takes_no_permit(
    store: Store, hands: Hands, why: str
) -> None:
    await declare(store, running=2)
    large = limited(need("a"), args=f'["{"x" * 10_000}"]', expires=3_600.0)
    _, second = await enqueued(store, large, large)
    for one in await hands.claim(2):
        await hands.hand_in(crashed(one, CrashKind.BYSTANDER, incident=1))
    await hands.claim()
    if why == "expired":  # later than all that one exchange ends
        await enqueued(store, *[job(expires_at=1e9)] * EXPIRE_MAX)
        async with raw(store.url) as file:
            await file.run(f"UPDATE outlast_jobs SET expires_at = enqueued_at WHERE id = {second}")
    claimed = await hands.claim(9, solo=1, bytes_max=15_000 if why == "too large" else TRIP_BYTES)
    assert (len(claimed), await held(store)) == (1, 1)


async def test_a_key_is_held_in_a_stream_as_in_the_line(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    first, again = await store.enqueue([limited(need("a"), key="k"), limited(need("a"), key="k")])
    assert (again.job_id, again.created) == (first.job_id, False)
    one = await hands.claim_one()
    await hands.hand_in(ended(one))
    (fresh,) = await store.enqueue([limited(need("a"), key="k")])
    assert fresh.created
    assert [each.job_id for each in await hands.claim()] == [fresh.job_id]


async def test_a_delayed_job_joins_its_stream_when_it_is_due(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    (job_id,) = await enqueued(store, limited(need("a"), delay=0.05))
    assert (await eventually(hands.claim))[0].job_id == job_id


async def test_a_due_job_opens_a_stream_in_whichever_order_it_comes(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=3)
    later = limited(need("a"), delay=3_600.0)
    _, due, _ = await enqueued(store, later, limited(need("a")), later)
    assert (await eventually(hands.claim))[0].job_id == due


async def test_the_job_of_a_tick_is_under_the_limits_of_its_call(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    one = await hands.claim_one()
    await put_one(store, call=limited(need("a")))
    due = await due_one(store)
    await fire_one(store, firing(due, due.since))
    assert await hands.claim() == []
    await hands.hand_in(ended(one))
    (tick,) = await hands.claim()
    assert tick.policy.schedule == "nightly"
    assert await held(store) == 1


@of_whole_rounds
async def test_each_of_more_queues_than_one_look_reads_gets_its_turn(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=1_000)
    queues = {f"q{n:03}" for n in range(300)}
    await enqueued(store, *[limited(need("a"), queue=queue) for queue in sorted(queues) * 10])
    served = set[str]()
    for _ in range(20):  # many more jobs wait in each
        served |= {one.queue for one in await hands.claim(60)}
    assert served == queues


async def test_a_raised_rate_counts_for_what_has_started_before(store: Store, hands: Hands) -> None:
    await declare(store, spacing=60.0, burst=10.0, per="limit_key")
    await enqueued(store, *[limited(need("a", "k"))] * 30)
    assert len(await hands.claim(100)) == 10
    assert await hands.claim() == []
    await store.set_limit(SetLimit(name="a", spacing=1.0, burst=10.0))
    assert await eventually(hands.claim, 30.0)
    await store.set_limit(SetLimit(name="a", spacing=60.0))
    assert (await hands.exchange(limit=1)).claimed == []


async def test_a_rate_that_comes_back_knows_nothing_of_the_one_before(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=9, spacing=1e5)
    await enqueued(store, *[limited(need("a"))] * 3)
    await hands.claim_one()
    await declare(store, running=9)
    await declare(store, running=9, spacing=0.1)
    assert await eventually(hands.claim)


async def test_spending_without_end_stops_no_exchange(store: Store, hands: Hands) -> None:
    await declare(store, spacing=1e8)
    await enqueued(store, limited(need("a")))
    one = await hands.claim_one()
    for _ in range(12):
        assert await store.spend(one.job_id, one.token, "a", 1e6) is Answer.ACCEPTED
    await enqueued(store, job())
    assert len(await hands.claim()) == 1
    for spacing in (1e-6, 1e8):
        assert await store.set_limit(SetLimit(name="a", spacing=spacing))


NUMBERS = (
    5e-324,
    1e-310,
    1e-300,
    1e-9,
    1e-6,
    0.0,
    1.0,
    1e6,
    1e9,
    1e12,
    1e300,
    1.7e308,
    -1.0,
    -1e300,
)


async def test_no_number_of_a_job_or_a_task_stops_a_claim(store: Store, hands: Hands) -> None:
    """As SQL may write it on a row, and as a task may spend it."""
    await declare(store, "a", spacing=1e-6, burst=1e6)
    await declare(store, "b", spacing=1e8, burst=1e6)
    odd = [limited(need(name, cost=cost)) for cost in NUMBERS for name in ("a", "b")]
    stored = [one.job_id for each in odd for one in await store.enqueue([each])]
    (free,) = await enqueued(store, job(priority=-1))
    got = [each for _ in odd for each in await hands.claim(5)]
    assert free in {each.job_id for each in got}
    for each in got:
        for name in ("a", "b"):
            for cost in NUMBERS:
                with contextlib.suppress(BadData):
                    await store.spend(each.job_id, each.token, name, cost)
        await hands.exchange(ended(each))
    (last,) = await enqueued(store, job())
    assert [each.job_id for each in await hands.claim(1)] == [last]
    await store.cancel([*stored])


async def test_a_prune_shows_that_more_keys_are_idle_than_it_has_deleted(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.pruning", "postgres.store"):
        monkeypatch.setattr(f"outlast.store.{module}.IDLE_SECONDS", -60.0)
    await declare(store, running=1, per=Per.LIMIT_KEY)
    await enqueued(store, *[limited(need("a", key), policy=Policy(keep=0.0)) for key in "bcdef"])
    await hands.hand_in(*map(ended, await hands.claim()))
    assert await hands.claim() == []
    first, *others = await prune_in_turn(store)
    assert first >= 3
    assert others[-1] == 0
    assert await store.inspector.permits("a") == []


@pytest.mark.parametrize("ends", ["cancelled", "expired"])
async def test_a_worker_comes_back_at_once_while_only_streams_of_ended_jobs_come_first(
    store: Store, hands: Hands, ends: str
) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    holder = await hands.claim_one()
    fields = {"expires": 0.2} if ends == "expired" else {}
    gone = await enqueued(store, *(limited(need("a"), fair=f"t{n}", **fields) for n in range(5)))
    (last,) = await enqueued(store, limited(need("a"), fair="u"))
    assert await hands.claim() == []
    if ends == "cancelled":
        await store.cancel(gone)
    else:
        await eventually(lambda: store.expire(100))
    reply = await hands.exchange(ended(holder), limit=10)
    while not reply.claimed:
        assert reply.next_due is not None
        assert reply.next_due < 0.1
        reply = await hands.exchange(limit=10)
    assert [each.job_id for each in reply.claimed] == [last]


async def test_the_keys_of_cancelled_jobs_go_though_no_worker_serves_their_task_any_more(
    store: Store, hands: Hands, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.pruning", "postgres.store"):
        monkeypatch.setattr(f"outlast.store.{module}.IDLE_SECONDS", -60.0)
    await declare(store, running=1)
    (waits,) = await enqueued(store, limited(need("a"), task="renamed"))
    for key in "bcdef":
        (gone,) = await enqueued(store, limited(need("a"), task="renamed", priority=ord(key) - 95))
        await store.cancel([gone])
    assert await hands.claim() == []
    await prune_in_turn(store)
    async with raw(store_url) as file:
        assert len(await file.rows("SELECT id FROM outlast_streams")) == 1
    await store.cancel([waits])
    assert await hands.claim() == []
    await prune_in_turn(store)
    async with raw(store_url) as file:
        assert await file.rows("SELECT id FROM outlast_streams") == []
    assert await store.inspector.permits("a") == []
