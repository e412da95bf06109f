"""The exchange, step by step: what goes into a trip, and what is done with its answer."""

from __future__ import annotations

import asyncio

import pytest

from outlast.errors import StoreUnavailable
from outlast.events import subscribe
from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.runner.protocol import Reported
from outlast.store.protocol import OUTCOMES_MAX
from outlast.store.values import Answer, ClaimRequest, Exchanged, WorkerRef
from outlast.worker.claims.exchange import LEFT_OPEN_SECONDS
from tests.cases import each_case
from tests.unit.worker.claims import exchange_kit
from tests.unit.worker.claims.exchange_kit import POLL, RECONCILE, Bench
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed, heard

bench = exchange_kit.bench


# ------------------------------------------------------------------------------- one trip


async def test_ends_and_claims_go_in_one_trip(bench):
    bench.ends(1, 2)
    bench.store.script = [accepted(2, claimed=[claimed(3), claimed(4)])]
    await bench.exchange.run_once()
    assert bench.store.calls == [("exchange", ([1, 2], [ClaimRequest(["t"], 10)]))]
    assert bench.pool.placed == [3, 4]
    assert bench.in_flight.held() == {3, 4}


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
    bench.in_flight.claim([claimed(5)])
    bench.store.script = [accepted(0, cancels=[(5, 5), (9, 9)])]
    await bench.exchange.run_once()
    assert bench.pool.stopped == [(5, "cancel")]


# ------------------------------------------------------------------------- no claims


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
    assert bench.in_flight.is_empty()


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
    assert bench.in_flight.held() == {5}, "until the store has taken it back"
    (end,) = bench.in_flight.ended
    assert (end.outcome, end.failures, end.losses) == ("released", 0, 0)
    await bench.exchange.run_once()
    assert bench.in_flight.is_empty()


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
    given_back = [(end.token, end.outcome, end.charge) for end in bench.in_flight.ended]
    assert given_back == ([] if 1 in begun else [(1, "released", "none")])


async def test_a_job_begins_by_the_time_that_was_left_when_it_was_asked_for(bench):
    """No clock of the store's is compared with one of the host's."""
    asked_at = bench.clock.boot()

    def late() -> Exchanged:
        bench.clock.advance(2.0)
        return accepted(0, claimed=[claimed(1, expires_in=5.0), claimed(2)])

    bench.store.script = [late]
    await bench.exchange.run_once()
    by_token = {token: one.claimed.begin_by for token, one in bench.in_flight.running.items()}
    assert by_token == {1: asked_at + 5.0, 2: None}


async def test_claims_of_an_earlier_registration_are_not_started(bench):
    def registered_again() -> Exchanged:
        bench.holder.me = WorkerRef(2, 1)
        return accepted(0, claimed=[claimed(5)])

    bench.store.script = [registered_again]
    await bench.exchange.run_once()
    assert bench.pool.placed == []
    assert [end.outcome for end in bench.in_flight.ended] == ["released"]


# ------------------------------------------------------------- a transaction left open


def left_open(bench, token, *, completed_in):
    bench.in_flight.claim([claimed(token)])[0].pid = 100 + token
    bench.in_flight.end(token, COMPLETED, completed_in=completed_in)


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
    assert bench.in_flight.is_empty()
    assert bench.in_flight.find_left_open(0.0) == []


@each_case("ended", [True, False])
async def test_a_runner_that_keeps_the_file_locked_is_ended(ended):
    """With attempts only after a while; also while only reconnecting fails, as after a break."""
    bench = Bench()
    if ended:
        left_open(bench, 1, completed_in=False)
    else:
        bench.in_flight.claim([claimed(1)])[0].pid = 101
        bench.in_flight.note_saving(1, 1)
    bench.in_flight.claim([claimed(2)])[0].pid = 102  # calculates
    bench.store.script = [StoreUnavailable("locked")]
    asked = []
    for writer, later in [(999, 0.0), (102, 0.0), (101, 0.0), (101, LEFT_OPEN_SECONDS)]:
        bench.clock.advance(later)
        bench.store.writer = writer
        with pytest.raises(StoreUnavailable):
            await bench.exchange.run_once()
        bench.holder.fails = True
        asked.append(bench.pool.locking[-1:])
    assert asked == [[], [], [(101, None)], [(101, 1)]]
    bench.holder.fails = False
    bench.in_flight.note_answer(1, 1)
    await bench.exchange.run_once()
    assert bench.in_flight.find_first_waiting(101) is None, "it has been answered"


# ---------------------------------------------------------------------------- the loser stops


async def test_an_attempt_closed_by_another_worker_is_asked_to_stop_and_then_killed(bench):
    bench.in_flight.claim([claimed(3)])
    bench.in_flight.claim([claimed(4)])
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


# ---------------------------------------------------------------------------- last reports


async def test_the_last_report_of_an_attempt_goes_before_its_end(bench):
    (running,) = bench.in_flight.claim([claimed(1)])
    bench.checkpoints.report(running, Reported(1, Progress(1.0)))
    bench.in_flight.end(1, COMPLETED)
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["progress", "exchange"]


async def test_the_last_lines_of_an_attempt_go_before_its_end(bench):
    bench.checkpoints.logs.keep_all()
    bench.in_flight.claim([claimed(1)])
    await bench.checkpoints.run_once()
    bench.checkpoints.logs.add(1, b"done\n")
    bench.in_flight.end(1, COMPLETED)
    written: list[tuple[str, list[str]]] = []

    async def keep_logs(logs):
        written.extend((line.text, bench.store.verbs()) for log in logs for line in log.lines)
        return {log.token for log in logs}

    bench.store.keep_logs = keep_logs
    await bench.exchange.run_once()
    assert written == [("done", [])]


async def test_a_last_report_that_broke_off_goes_again_before_its_end(bench):
    """Also if the duty that writes reports looks while the report is under way."""
    (running,) = bench.in_flight.claim([claimed(1)])
    bench.checkpoints.report(running, Reported(1, Progress(1.0)))
    bench.in_flight.end(1, COMPLETED)
    working, asked, gate = bench.store.progress, asyncio.Event(), asyncio.Event()

    async def breaks(reports):
        asked.set()
        await gate.wait()
        raise StoreUnavailable("broke off")

    bench.store.progress = breaks
    bench.store.script = [StoreUnavailable("broke off")]
    await bench.checkpoints.logs.run_once()
    trip = asyncio.create_task(bench.exchange.run_once())
    await asked.wait()
    look = asyncio.create_task(bench.checkpoints.run_once())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(trip, look, return_exceptions=True)
    bench.store.progress = working
    bench.store.calls.clear()
    await bench.exchange.run_once()
    assert bench.store.verbs()[-2:] == ["progress", "exchange"]


async def test_an_end_without_a_report_takes_one_trip(bench):
    bench.ends(1, 2)
    await bench.exchange.run_once()
    assert bench.store.verbs() == ["exchange"]
