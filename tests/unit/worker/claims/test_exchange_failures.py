"""A trip that breaks off or that the store refuses: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from outlast.errors import BadData, StoreUnavailable
from outlast.model.lifecycle import Transition
from outlast.store.values import ClaimRequest, Exchanged
from outlast.worker.claims.until_empty import UntilEmpty
from tests.unit.worker.claims import exchange_kit
from tests.unit.worker.claims.exchange_kit import RECONCILE, Bench
from tests.unit.worker.worker_kit import claimed, heard

bench = exchange_kit.bench


# -------------------------------------------------------------------- a trip that broke off


async def test_after_a_trip_broke_off_its_ends_are_handed_in_again_once(bench):
    bench.ends(1, 2)
    bench.in_flight.claim([claimed(3)])
    bench.store.script = [StoreUnavailable("the connection broke")]
    with pytest.raises(StoreUnavailable):
        await bench.exchange.run_once()
    assert bench.in_flight.held() == {1, 2, 3}
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
    assert bench.in_flight.held() == {3}


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
    assert [end.token for end in bench.in_flight.ended] == [1]
    del bench.store.exchange
    bench.exchange._patience = 20.0
    await bench.exchange.run_once()
    assert bench.store.verbs()[:2] == ["drop_connections", "reconnect"]


async def test_a_trip_that_is_cancelled_gives_its_ends_back(bench):
    bench.ends(1)
    bench.store.script = [asyncio.CancelledError()]
    with pytest.raises(asyncio.CancelledError):
        await bench.exchange.run_once()
    assert [end.token for end in bench.in_flight.ended] == [1]


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


async def test_a_refused_epoch_is_raised_again(bench):
    bench.store.script = [Exchanged(valid=False, answers=[])]
    assert await bench.exchange.run_once() == 0.0
    await bench.exchange.run_once()
    assert bench.store.verbs()[1:4] == ["drop_connections", "reconnect", "reconcile"]


async def test_a_lease_that_is_lost_in_a_trip_lets_no_worker_leave_as_if_nothing_were_left(bench):
    """The store has offered nothing because the row is lost; the worker registers again."""
    stops: list[int] = []
    bench.pool.asks_alone = True
    bench.exchange.stop_when_empty(UntilEmpty(lambda: stops.append(1), clock=bench.clock))

    def is_lost() -> Exchanged:
        bench.holder.claims = False  # a beat has said so meanwhile
        return Exchanged(valid=False, answers=[])

    bench.store.script = [is_lost]
    await bench.exchange.run_once()
    assert stops == []
    bench.holder.claims = True
    bench.plan.hint()
    await bench.exchange.run_once()
    assert stops == [1]


# ---------------------------------------------------------------------------- reconciling


async def test_a_reply_that_was_processed_only_in_part_is_reconciled(bench, monkeypatch):
    bench.store.script = [Exchanged(valid=True, answers=[], claimed=[claimed(3)])]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(bench.in_flight, "claim", mock.Mock(side_effect=RuntimeError("a fault")))
        await bench.exchange.run_once()
    await bench.exchange.run_once()
    assert bench.store.verbs()[1:4] == ["drop_connections", "reconnect", "reconcile"]


async def test_claims_are_reconciled_from_time_to_time_and_when_nothing_else_is_under_way(bench):
    bench.in_flight.claim([claimed(3)])
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
    assert bench.in_flight.is_empty()
    assert bench.requests()[-1] == [ClaimRequest(["t"], 10)], "and the next jobs are claimed"


async def test_every_end_may_be_refused(bench):
    bench.ends(1, 2, 3)
    bench.store.poison = {1, 2, 3}
    await bench.exchange.run_once()
    assert bench.in_flight.is_empty()


async def test_requests_that_the_store_refuses_end_the_trip_and_keep_the_ends(bench):
    bench.store.script = [BadData("odd requests")] * 3  # for all tasks, and for the one
    with pytest.raises(BadData):
        await bench.exchange.run_once()
    bench.ends(1)
    await bench.exchange.run_once()
    assert bench.in_flight.is_empty()
