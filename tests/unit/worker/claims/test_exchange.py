"""The exchange, step by step, with a store that answers from a script."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from outlast.errors import BadData, StoreUnavailable
from outlast.events import subscribe
from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.model.lease import LOOK_SECONDS
from outlast.model.lifecycle import Transition
from outlast.runner.protocol import Reported
from outlast.store.protocol import OUTCOMES_MAX
from outlast.store.values import Answer, ClaimRequest, Exchanged, Snapshot, WorkerRef
from outlast.wakeup.inbox import Inbox
from outlast.worker.claims.exchange import (
    BUSY_PAUSE_SECONDS,
    LEFT_OPEN_SECONDS,
    POLL_FACTOR_WITH_REAPER,
)
from tests.unit.worker.claims.exchange_kit import LOOK, POLL, RECONCILE, Bench
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed, heard


@pytest.fixture
def bench():
    return Bench()


# ------------------------------------------------------------------------------- one trip


async def test_ends_and_claims_go_in_one_trip(bench):
    bench.ends(1, 2)
    bench.store.script = [accepted(2, claimed=[claimed(3), claimed(4)])]
    await bench.exchange.run_once()
    assert bench.store.calls == [("exchange", ([1, 2], [ClaimRequest(["t"], 10)]))]
    assert bench.pool.placed == [3, 4]
    assert bench.ledger.held() == {3, 4}


async def test_claimed_attempts_begin_before_events_are_emitted(bench):
    bench.store.script = [accepted(0, claimed=[claimed(3)])]
    placed_by_then = []
    end = subscribe(lambda name, fields: placed_by_then.append((name, [*bench.pool.placed])))
    await bench.exchange.run_once()
    end()
    assert placed_by_then == [("attempt_started", [3])]


async def test_ends_left_for_the_next_trip_keep_their_slots(bench):
    bench.pool.slots = OUTCOMES_MAX + 10
    bench.ends(*range(OUTCOMES_MAX + 3))
    assert await bench.exchange.run_once() == 0.0, "more ends wait: again at once"
    assert len(bench.handed_in()[0]) == OUTCOMES_MAX
    assert bench.requests()[0][0].limit == OUTCOMES_MAX + 10 - 3


async def test_without_ends_and_free_slots_there_is_no_trip(bench):
    bench.pool.slots = 0
    assert await bench.exchange.run_once() == POLL
    assert bench.store.calls == []


async def test_a_cancel_request_reaches_the_attempt(bench):
    bench.ledger.claim([claimed(5)])
    bench.store.script = [accepted(0, cancels=[(5, 5), (9, 9)])]
    await bench.exchange.run_once()
    assert bench.pool.stopped == [(5, "cancel")]


# --------------------------------------------------------------------------------- pauses


@pytest.mark.parametrize(
    ("reply", "pause"),
    [
        (accepted(0), POLL),
        (accepted(0, next_due=0.3), 0.3),
        (accepted(0, next_due=0.0), 0.001),
        (accepted(0, next_due=500.0), POLL),
        (accepted(0, claimed=[claimed(n) for n in range(1, 11)]), 0.0),
        (accepted(0, claimed=[claimed(1)]), POLL),
    ],
    ids=["nothing", "due soon", "due now", "due late", "as many as asked", "fewer than asked"],
)
async def test_it_looks_again_when_there_may_be_more(bench, reply, pause):
    bench.store.script = [reply]
    assert await bench.exchange.run_once() == pause


async def test_a_hint_during_a_trip_is_not_forgotten(bench):
    def hinted() -> Exchanged:
        bench.exchange.hint()
        return accepted(0)

    bench.store.script = [hinted]
    assert await bench.exchange.run_once() == 0.0
    assert await bench.exchange.run_once() == POLL


async def test_a_busy_end_is_handed_in_again_after_a_short_pause(bench):
    bench.ends(1, 2)
    bench.store.script = [Exchanged(valid=True, answers=[Answer.BUSY, Answer.ACCEPTED])]
    assert await bench.exchange.run_once() == BUSY_PAUSE_SECONDS
    assert bench.ledger.held() == {1}
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1, 2], [1]]
    assert bench.ledger.is_empty()


# -------------------------------------------------------------------- a trip that broke off


async def test_after_a_trip_broke_off_its_ends_are_handed_in_again_once(bench):
    bench.ends(1, 2)
    bench.ledger.claim([claimed(3)])
    bench.store.script = [StoreUnavailable("the connection broke")]
    with pytest.raises(StoreUnavailable):
        await bench.exchange.run_once()
    assert bench.ledger.held() == {1, 2, 3}
    await bench.exchange.run_once()
    assert bench.store.verbs() == [
        "exchange",
        "drop_connections",
        "reconnect",
        "reconcile",
        "exchange",
    ]
    assert dict(bench.store.calls)["reconcile"] == {1, 2, 3}, "also ends that are not answered"
    assert bench.handed_in() == [[1, 2], [1, 2]]
    assert bench.ledger.held() == {3}


async def test_a_claim_with_a_lost_reply_is_released_and_looked_for_at_once(bench):
    bench.store.script = [StoreUnavailable("the reply was cut")]
    bench.store.unknown = [(8, 80)]
    with pytest.raises(StoreUnavailable):
        await bench.exchange.run_once()
    with heard() as names:
        await bench.exchange.run_once()
    assert names == ["claim_reconciled"]


async def test_a_store_that_does_not_answer_in_time_counts_as_broken_off():
    bench = Bench()
    bench.exchange._patience = 0.0
    bench.ends(1)
    never = asyncio.get_running_loop().create_future()

    async def hangs(me, ended, requests):
        await never

    bench.store.exchange = hangs  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="no answer within"):
        await bench.exchange.run_once()
    assert [end.token for end in bench.ledger.ended] == [1]
    del bench.store.exchange
    bench.exchange._patience = 20.0
    await bench.exchange.run_once()
    assert bench.store.verbs()[:2] == ["drop_connections", "reconnect"]


async def test_a_trip_that_is_cancelled_gives_its_ends_back(bench):
    bench.ends(1)
    bench.store.script = [asyncio.CancelledError()]
    with pytest.raises(asyncio.CancelledError):
        await bench.exchange.run_once()
    assert [end.token for end in bench.ledger.ended] == [1]


async def test_a_reconnect_that_breaks_off_is_tried_again_before_any_trip(bench):
    bench.ends(1)
    bench.store.script = [StoreUnavailable("broke")]
    with pytest.raises(StoreUnavailable):
        await bench.exchange.run_once()
    working, outage = bench.holder.reconnect, StoreUnavailable("still away")

    async def breaks() -> bool:
        raise outage

    bench.holder.reconnect = breaks
    with pytest.raises(StoreUnavailable, match="still away"):
        await bench.exchange.run_once()
    bench.holder.reconnect = working
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1], [1]]


async def test_ends_are_handed_in_though_the_lease_is_lost_and_nothing_is_claimed(bench):
    """They are judged by their own tokens: a claim that was faster is kept."""
    bench.ends(1)
    bench.store.script = [StoreUnavailable("broke")]
    with pytest.raises(StoreUnavailable):
        await bench.exchange.run_once()
    bench.holder.lost, bench.holder.claims = True, False
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["exchange", "drop_connections", "reconnect", "exchange"]
    assert bench.requests()[-1] == []
    assert bench.ledger.is_empty()


async def test_a_refused_epoch_is_raised_again(bench):
    bench.store.script = [Exchanged(valid=False, answers=[])]
    assert await bench.exchange.run_once() == 0.0
    await bench.exchange.run_once()
    assert bench.store.verbs()[1:4] == ["drop_connections", "reconnect", "reconcile"]


# ------------------------------------------------------------------------- no claims


async def test_nothing_is_claimed_while_draining_or_fenced_but_ends_go_in(bench):
    bench.holder.claims = False
    await bench.exchange.run_once()
    assert bench.store.calls == []
    bench.ends(1)
    await bench.exchange.run_once()
    assert bench.store.calls == [("exchange", ([1], []))]


async def test_claims_received_after_the_lease_was_lost_are_not_started(bench):
    """The reply came late: other workers may run these jobs by now."""

    def lost_meanwhile() -> Exchanged:
        bench.holder.claims = False
        return accepted(0, claimed=[claimed(5)])

    bench.store.script = [lost_meanwhile]
    await bench.exchange.run_once()
    assert bench.pool.placed == []
    assert bench.ledger.held() == {5}, "until the store has taken it back"
    (end,) = bench.ledger.ended
    assert (end.outcome, end.failures, end.losses) == ("released", 0, 0)
    await bench.exchange.run_once()
    assert bench.ledger.is_empty()


@pytest.mark.parametrize(
    ("took", "begun"),
    [(20.0, [1, 2]), (20.1, [2])],
    ids=["as long as its patience", "longer, as in a process that was stopped"],
)
async def test_an_attempt_with_a_timeout_begins_in_time_or_is_released(bench, took, begun):
    """Its deadline on the row counts from the claim, the worker's own limit from its start."""

    def late() -> Exchanged:
        bench.clock.advance(took)
        return accepted(0, claimed=[claimed(1, policy=Policy(timeout=3.0)), claimed(2)])

    bench.store.script = [late]
    await bench.exchange.run_once()
    assert bench.pool.placed == begun
    given_back = [(end.token, end.outcome, end.charge) for end in bench.ledger.ended]
    assert given_back == ([] if 1 in begun else [(1, "released", "none")])


async def test_claims_of_an_earlier_registration_are_not_started(bench):
    def registered_anew() -> Exchanged:
        bench.holder.me = WorkerRef(2, 1)
        return accepted(0, claimed=[claimed(5)])

    bench.store.script = [registered_anew]
    await bench.exchange.run_once()
    assert bench.pool.placed == []
    assert [end.outcome for end in bench.ledger.ended] == ["released"]


# ---------------------------------------------------------------------------- how often


def look(**fields):
    return Snapshot(workers=[], orphans=False, overdue=False, now=0.0, **fields)


async def test_an_idle_worker_makes_few_trips_where_looks_show_new_jobs(bench):
    assert await bench.exchange.run_once() == POLL
    bench.exchange.take_look(look())
    assert await bench.exchange.run_once() == POLL, "this store does not say"
    bench.exchange.take_look(look(drawn=7))
    assert await bench.exchange.run_once() == POLL * POLL_FACTOR_WITH_REAPER
    bench.store.script = [accepted(0, next_due=0.3)]
    assert await bench.exchange.run_once() == 0.3


async def test_a_busy_worker_checks_in_time_whether_attempts_were_superseded(bench):
    bench.exchange.take_look(look(drawn=7))
    bench.ledger.claim([claimed(3)])
    assert await bench.exchange.run_once() == LOOK


async def test_new_jobs_are_looked_for_without_a_notification(bench):
    told = []
    for drawn in (7, 7, 8, 8):
        told.append(bench.exchange.take_look(look(drawn=drawn)))
        await bench.exchange.run_once()
    assert told == [True, False, True, False]


@pytest.mark.parametrize(
    ("next_due", "told"),
    [(None, False), (LOOK_SECONDS + 0.1, False), (LOOK_SECONDS, True), (-3.0, True)],
)
async def test_a_job_due_before_the_next_look_shortens_the_pause(bench, next_due, told):
    bench.exchange.take_look(look(drawn=7))
    await bench.exchange.run_once()
    assert bench.exchange.take_look(look(drawn=7, next_due=next_due)) == told


async def test_after_a_full_worker_frees_a_slot_it_looks_despite_messengers():
    """They were offered no free slots, so they cannot wake the worker."""
    inbox = Inbox()
    inbox.healthy = True
    bench = Bench(slots=0, inbox=inbox)
    bench.ends(1)
    await bench.exchange.run_once()
    assert bench.requests() == [[]]
    assert not inbox.has_free_slots()
    bench.pool.slots = 10
    await bench.exchange.run_once()
    assert bench.requests()[1:] == [[ClaimRequest(["t"], 10)]]
    assert inbox.has_free_slots()
    await bench.exchange.run_once()
    assert len(bench.requests()) == 2, "from now on messengers wake it"


# ---------------------------------------------------------------------------- reconciling


async def test_a_reply_that_was_processed_only_in_part_is_reconciled(bench, monkeypatch):
    bench.store.script = [Exchanged(valid=True, answers=[], claimed=[claimed(3)])]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(bench.ledger, "claim", mock.Mock(side_effect=RuntimeError("a fault")))
        await bench.exchange.run_once()
    await bench.exchange.run_once()
    assert bench.store.verbs()[1:4] == ["drop_connections", "reconnect", "reconcile"]


async def test_claims_are_reconciled_from_time_to_time_and_when_nothing_else_is_under_way(bench):
    bench.ledger.claim([claimed(3)])
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["exchange"]
    bench.clock.advance(RECONCILE)
    await bench.exchange.run_once()
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["exchange", "exchange", "reconcile", "exchange"]
    assert dict(bench.store.calls)["reconcile"] == {3}


async def test_a_full_worker_reconciles_as_well(bench):
    bench.pool.slots = 0
    bench.clock.advance(RECONCILE)
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["reconcile"]


# ------------------------------------------------------------- a transaction left open


def left_open(bench, token, *, completed_in):
    bench.ledger.claim([claimed(token)])[0].pid = 100 + token
    bench.ledger.end(token, COMPLETED, completed_in=completed_in)


async def test_a_runner_that_leaves_its_transaction_open_is_ended(bench):
    left_open(bench, 1, completed_in=True)
    left_open(bench, 2, completed_in=False)  # another session has locked its row
    busy = Exchanged(valid=True, answers=[Answer.BUSY, Answer.BUSY])
    bench.store.script = [busy] * 5
    with heard() as names:
        await bench.exchange.run_once()
        bench.clock.advance(LEFT_OPEN_SECONDS - 0.1)
        await bench.exchange.run_once()
        assert bench.pool.killed_processes == []
        bench.clock.advance(0.1)
        await bench.exchange.run_once()
        await bench.exchange.run_once()
        assert bench.pool.killed_processes == [(101, "transaction_left_open")]
        bench.clock.advance(LEFT_OPEN_SECONDS)
        await bench.exchange.run_once()
    assert bench.pool.killed_processes == [(101, "transaction_left_open")] * 2
    assert names == ["transaction_left_open"] * 2
    await bench.exchange.run_once()
    assert bench.ledger.is_empty()
    assert bench.ledger.find_left_open(0.0) == []


# ------------------------------------------------------------------------------ bad data


async def test_one_refused_end_is_found_and_replaced_and_the_others_are_written(bench):
    bench.ends(*range(1, 8))
    bench.store.poison = {5}
    accepted_ends: list[Transition] = []
    working = bench.store.exchange

    async def noting(me, ended, requests):
        reply = await working(me, ended, requests)
        accepted_ends.extend(ended)
        return reply

    bench.store.exchange = noting
    with heard() as names:
        await bench.exchange.run_once()
    assert names == ["result_rejected"]
    assert sorted(end.token for end in accepted_ends) == [1, 2, 3, 4, 5, 6, 7]
    assert [end.token for end in accepted_ends if end.outcome == "rejected_result"] == [5]
    assert bench.ledger.is_empty()
    assert bench.requests()[-1] == [ClaimRequest(["t"], 10)], "and the next jobs are claimed"


async def test_every_end_may_be_refused(bench):
    bench.ends(1, 2, 3)
    bench.store.poison = {1, 2, 3}
    await bench.exchange.run_once()
    assert bench.ledger.is_empty()


async def test_requests_that_the_store_refuses_end_the_trip_and_keep_the_ends(bench):
    bench.store.script = [BadData("odd requests")]
    with pytest.raises(BadData):
        await bench.exchange.run_once()
    bench.ends(1)
    await bench.exchange.run_once()
    assert bench.ledger.is_empty()


async def test_a_full_worker_looks_for_suspects_at_each_poll_and_not_at_each_hint():
    bench = Bench()
    bench.pool.make_requests = lambda unanswered: [ClaimRequest(["t"], 3, solo=1)]  # type: ignore[method-assign]
    await bench.exchange.run_once()
    assert len(bench.requests()) == 1
    bench.exchange.hint()
    await bench.exchange.run_once()
    assert len(bench.requests()) == 1
    bench.clock.advance(POLL)
    await bench.exchange.run_once()
    assert len(bench.requests()) == 2


async def test_an_empty_worker_claims_an_exclusive_job_at_once():
    bench = Bench()
    bench.store.script = [accepted(0, solo_waiting=2)]
    assert await bench.exchange.run_once() == 0.0
    await bench.exchange.run_once()
    assert bench.requests()[-1] == [ClaimRequest(["t"], 1, solo=2)]


# ---------------------------------------------------------------------------- the loser stops


async def test_an_attempt_closed_by_another_worker_is_asked_to_stop_and_then_killed(bench):
    bench.ledger.claim([claimed(3)])
    bench.ledger.claim([claimed(4)])
    bench.store.lost = {4}
    with heard() as names:
        for _ in range(3):
            bench.clock.advance(RECONCILE)
            await bench.exchange.run_once()
            assert (4, "lease_lost") in bench.pool.stopped
    assert bench.store.asked_about == [[3, 4]] * 3
    assert bench.pool.stopped == [(4, "lease_lost")]
    assert bench.pool.killed == [4, 4]
    assert names.count("attempt_superseded") == 1


async def test_ends_are_collected_while_enough_attempts_are_prefetched():
    bench = Bench(slots=1)
    bench.pool.lingers = 0.004
    bench.store.script = [accepted(0, claimed=[claimed(1)])]
    assert await bench.exchange.run_once() == 0.004, "the request was filled: go on, later"
    bench.ledger.end(1, COMPLETED)
    assert not bench.nudge.is_given
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1]]
    bench.ends(2)
    assert bench.nudge.is_given


# ---------------------------------------------------------------------------- last reports


async def test_the_last_report_of_an_attempt_goes_before_its_end(bench):
    (running,) = bench.ledger.claim([claimed(1)])
    bench.checkpoints.report(running, Reported(1, Progress(1.0)))
    bench.ledger.end(1, COMPLETED)
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["progress", "exchange"]


async def test_an_end_without_a_report_takes_one_trip(bench):
    bench.ends(1, 2)
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["exchange"]
