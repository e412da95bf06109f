"""When an exchange makes its next trip: pauses, hints, looks and polls."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.lease import LOOK_SECONDS
from outlast.store.values import Answer, ClaimRequest, Exchanged, Peek
from outlast.store.wakeup import Health
from outlast.wakeup.inbox import Inbox
from outlast.worker.claims.pacing import (
    BUSY_PAUSE_SECONDS,
    GATHER_SECONDS,
    LATE_SECONDS,
    POLL_FACTOR_WHERE_SHOWN,
)
from tests.cases import each_case
from tests.unit.worker.claims import exchange_kit
from tests.unit.worker.claims.exchange_kit import LOOK, POLL, RECONCILE, Bench
from tests.unit.worker.worker_kit import COMPLETED, RELEASED, accepted, claimed

bench = exchange_kit.bench


# --------------------------------------------------------------------------------- pauses


@pytest.mark.parametrize(
    ("reply", "pause", "reason"),
    [
        (accepted(0), POLL, "poll"),
        (accepted(0, next_due=0.3), 0.3, "due"),
        (accepted(0, next_due=0.0), 0.001, "due"),
        (accepted(0, next_due=500.0), POLL, "poll"),
        (accepted(0, next_due=500.0, next_look=0.2), 0.2, "search"),
        (accepted(0, claimed=[claimed(n) for n in range(1, 11)]), 0.0, "more"),
        (accepted(0, claimed=[claimed(1)]), POLL, "poll"),
    ],
    ids=[
        "nothing",
        "due soon",
        "due now",
        "due late",
        "search soon",
        "as many as asked",
        "fewer than asked",
    ],
)
async def test_it_looks_again_when_there_may_be_more(bench, reply, pause, reason):
    bench.store.script = [reply]
    assert await bench.exchange.run_once() == pause
    assert bench.plan.reason == reason


async def test_the_log_gives_the_reason_of_each_trip(bench, caplog):
    caplog.set_level("DEBUG", "outlast.trips")
    bench.store.script = [Exchanged(valid=True, answers=[Answer.BUSY])]
    bench.ends(1)
    await bench.exchange.run_once()
    await bench.exchange.run_once()
    bench.plan.hint()
    await bench.exchange.run_once()
    bench.plan.take_peek(Peek(drawn=7))
    await bench.exchange.run_once()
    bench.plan.take_peek(Peek(drawn=7, next_due=0.1))
    await bench.exchange.run_once()
    await bench.exchange.run_once()
    bench.in_flight.claim([claimed(2)])
    await bench.exchange.run_once()
    await bench.exchange.run_once()
    told = [record.args[0] for record in caplog.records]
    assert told == ["ends", "ends", "hint", "position", "due", "poll", "poll", "check"]


async def test_a_hint_during_a_trip_is_not_forgotten(bench):
    def hinted() -> Exchanged:
        bench.plan.hint()
        return accepted(0)

    bench.store.script = [hinted]
    assert await bench.exchange.run_once() == 0.0
    assert await bench.exchange.run_once() == POLL


async def test_a_busy_end_is_handed_in_again_after_a_short_pause(bench):
    bench.ends(1, 2)
    bench.store.script = [Exchanged(valid=True, answers=[Answer.BUSY, Answer.ACCEPTED])]
    assert await bench.exchange.run_once() == BUSY_PAUSE_SECONDS
    assert bench.in_flight.held() == {1}
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1, 2], [1]]
    assert bench.in_flight.is_empty()


async def test_a_worker_that_others_keep_out_of_the_limits_comes_ever_later(bench):
    async def pauses(count: int, reply: Exchanged) -> list[float]:
        bench.store.script = [reply] * count
        return [await bench.exchange.run_once() for _ in range(count)]

    kept_out = accepted(0, contended=True, next_due=0.002)
    assert await pauses(9, kept_out) == [0.002 * 2**n for n in (1, 2, 3, 4, 5, 6, 6, 6, 6)]
    assert await pauses(1, accepted(0, next_due=0.002)) == [0.002], "what falls due is not late"
    assert await pauses(1, kept_out) == [0.128]
    await pauses(3, accepted(0, contended=True, claimed=[claimed(1)]))
    assert await pauses(1, kept_out) == [0.032], "each trip that claims brings the next one nearer"


# ---------------------------------------------------------------------------- how often


async def test_an_idle_worker_makes_few_trips_where_peeks_show_new_jobs(bench):
    assert await bench.exchange.run_once() == POLL
    bench.plan.take_peek(Peek())
    assert await bench.exchange.run_once() == POLL, "this store does not say"
    bench.plan.take_peek(Peek(drawn=7))
    assert await bench.exchange.run_once() == POLL * POLL_FACTOR_WHERE_SHOWN
    bench.store.script = [accepted(0, next_due=0.3)]
    assert await bench.exchange.run_once() == 0.3


async def test_an_idle_worker_makes_few_trips_where_its_wake_up_looks_for_writes():
    health = Health("file", sees_all=True)
    bench = Bench(health=health)
    assert await bench.exchange.run_once() == POLL, "it does not work yet"
    health.note_ready()
    assert await bench.exchange.run_once() == POLL * POLL_FACTOR_WHERE_SHOWN
    health.note_trouble("the file is gone")
    assert await bench.exchange.run_once() == POLL
    notified = Health("notify")
    notified.note_ready()
    bench = Bench(health=notified)
    assert await bench.exchange.run_once() == POLL, "each notification may be lost"


async def test_a_busy_worker_checks_in_time_whether_attempts_were_superseded(bench):
    bench.plan.take_peek(Peek(drawn=7))
    bench.in_flight.claim([claimed(3)])
    assert await bench.exchange.run_once() == LOOK


async def test_new_jobs_are_looked_for_without_a_notification(bench):
    told = []
    for drawn in (7, 7, 8, 8):
        told.append(bench.plan.take_peek(Peek(drawn=drawn)))
        await bench.exchange.run_once()
    assert told == [True, False, True, False]


@pytest.mark.parametrize(
    ("next_due", "told"),
    [(None, False), (LOOK_SECONDS + 0.1, False), (LOOK_SECONDS, True), (-3.0, True)],
)
async def test_a_job_due_before_the_next_look_shortens_the_pause(bench, next_due, told):
    bench.plan.take_peek(Peek(drawn=7))
    await bench.exchange.run_once()
    assert bench.plan.take_peek(Peek(drawn=7, next_due=next_due)) == told


async def test_a_job_due_before_the_next_peek_counts_as_due_where_peeks_are_rare(bench):
    told = []
    for _ in range(3):
        bench.clock.advance(2.0)
        told.append(bench.plan.take_peek(Peek(drawn=7, next_due=1.9)))
        await bench.exchange.run_once()
    assert told == [True, True, True]


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


async def test_a_full_worker_looks_for_suspects_at_each_poll_and_not_at_each_hint():
    bench = Bench()
    bench.pool.make_requests = lambda unanswered: [ClaimRequest(["t"], 3, solo=1)]  # type: ignore[method-assign]
    await bench.exchange.run_once()
    assert len(bench.requests()) == 1
    bench.plan.hint()
    await bench.exchange.run_once()
    assert len(bench.requests()) == 1
    bench.clock.advance(POLL)
    await bench.exchange.run_once()
    assert len(bench.requests()) == 2


async def test_ends_are_collected_while_enough_attempts_are_prefetched():
    bench = Bench(slots=1)
    bench.pool.ahead = 6
    bench.store.script = [accepted(0, claimed=[claimed(1)])]
    assert await bench.exchange.run_once() == GATHER_SECONDS, "the request was filled: go on, later"
    rest = bench.nudge.wait(None)
    bench.in_flight.end(1, COMPLETED)
    assert not rest.done()
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1]]
    rest = bench.nudge.wait(None)
    bench.ends(2)
    assert rest.done()


async def test_ends_that_come_while_a_trip_is_under_way_gather_with_those_after_it():
    bench = Bench(slots=2)
    bench.pool.ahead = 6
    bench.store.script = [accepted(0, claimed=[claimed(1), claimed(2)])]
    await bench.exchange.run_once()
    bench.in_flight.end(1, COMPLETED)

    def reply() -> Exchanged:
        bench.in_flight.end(2, COMPLETED)
        return accepted(1)

    bench.store.script = [reply]
    assert await bench.exchange.run_once() == GATHER_SECONDS
    assert not bench.nudge.wait(None).done()
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1], [2]]


@each_case("ahead, during, after", [(1, 0, 0), (6, 0, 3), (6, 2, 2), (6, 3, 0), (2, 3, 0)])
async def test_ends_gather_while_what_waits_for_a_slot_outlasts_the_next_trip(ahead, during, after):
    """``during``: how many end in this trip. ``after``: with how many more the next one is made."""
    bench = Bench(slots=9)
    bench.pool.ahead = ahead

    bench.in_flight.claim([claimed(10 + n) for n in range(during)])

    def reply() -> Exchanged:
        for n in range(during):
            bench.in_flight.end(10 + n, COMPLETED)
        return accepted(0, claimed=[claimed(n) for n in range(9 - during)])

    bench.store.script = [reply]
    pause = await bench.exchange.run_once()
    rest, ended = bench.nudge.wait(pause), 0
    while pause and not rest.done():
        bench.in_flight.end(ended, COMPLETED)
        ended += 1
    assert ended == after


async def test_an_end_for_which_others_wait_gathers_with_those_that_fill_the_next_trip():
    """It is a moment late, and its trip then looks for the jobs that it frees."""
    bench = Bench(slots=2)
    bench.pool.ahead = 6
    waited_for, plain = claimed(1, awaited=True), claimed(2)
    bench.store.script = [accepted(0, claimed=[waited_for, plain])]
    assert await bench.exchange.run_once() == GATHER_SECONDS
    rest = bench.nudge.wait(None)
    for token in (1, 2):
        bench.in_flight.end(token, COMPLETED)
        assert not rest.done()
    bench.clock.advance(GATHER_SECONDS)
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1, 2]]
    assert [bool(each) for each in bench.requests()] == [True, True]


async def test_an_end_that_comes_while_a_full_worker_reconciles_is_handed_in_next(monkeypatch):
    bench = Bench(slots=1)
    bench.store.script = [accepted(0, claimed=[claimed(1)])]
    await bench.exchange.run_once()

    async def reconcile(*_: object) -> list[tuple[int, int]]:
        bench.in_flight.end(1, COMPLETED)
        return []

    monkeypatch.setattr(bench.store, "reconcile", reconcile)
    bench.clock.advance(RECONCILE)
    assert await bench.exchange.run_once() == 0
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1]]


# --------------------------------------------------------------------- ends that come alone


@pytest.fixture
def awake():
    """A worker that has looked, found a job and no more, and would hear of new ones."""
    health = Health("NOTIFY")
    health.note_ready()
    return Bench(slots=10, health=health)


async def begin(bench: Bench, **fields: Any) -> float:
    """Let the next trip bring one job, of 10 that were asked for; return the pause after it."""
    bench.store.script = [accepted(0, claimed=[claimed(1, **fields)])]
    pause = await bench.exchange.run_once()
    bench.store.calls.clear()
    bench.rest = bench.nudge.wait(None)
    return pause


def is_called(bench: Bench) -> bool:
    return bench.rest.done()


async def test_the_end_of_a_plain_job_waits_for_company_and_is_then_handed_in_alone(awake):
    assert await begin(awake) > LATE_SECONDS
    awake.in_flight.end(1, COMPLETED)
    assert not is_called(awake)
    awake.clock.advance(LATE_SECONDS)
    before = awake.plan.rests_until
    pause = await awake.exchange.run_once()
    assert awake.handed_in() == [[1]]
    assert awake.requests() == [[]]
    assert pause == pytest.approx(before - awake.clock.boot()), "the next look is not put off"


async def test_a_claim_takes_the_waiting_ends_along(awake):
    await begin(awake)
    awake.in_flight.end(1, COMPLETED)
    awake.plan.hint()
    await awake.exchange.run_once()
    assert awake.handed_in() == [[1]]
    assert [len(each) for each in awake.requests()] == [1]


async def test_an_end_for_which_others_wait_is_handed_in_at_once_by_a_claim(awake):
    await begin(awake, awaited=True)
    awake.in_flight.end(1, COMPLETED)
    assert is_called(awake)
    await awake.exchange.run_once()
    assert [len(each) for each in awake.requests()] == [1]


async def test_another_end_than_a_completion_is_handed_in_at_once_by_a_claim(awake):
    await begin(awake)
    awake.in_flight.end(1, RELEASED)
    assert is_called(awake)
    await awake.exchange.run_once()
    assert [len(each) for each in awake.requests()] == [1]


async def test_a_full_worker_lets_no_end_wait():
    bench = Bench(slots=1, health=Health("NOTIFY"))
    await begin(bench)
    bench.in_flight.end(1, COMPLETED)
    assert is_called(bench)
    await bench.exchange.run_once()
    assert [len(each) for each in bench.requests()] == [1]


async def test_only_half_of_the_free_places_may_wait_with_their_ends(awake):
    running = [claimed(n) for n in range(1, 7)]
    awake.store.script = [accepted(0, claimed=running)]
    await awake.exchange.run_once()
    awake.rest = awake.nudge.wait(None)
    called = []
    for each in running[:3]:
        awake.in_flight.end(each.token, COMPLETED)
        called.append(is_called(awake))
    assert called == [False, False, True]


@pytest.mark.parametrize("why", ["no wake-up", "a bad wake-up", "a poll is due", "a hint"])
async def test_ends_are_handed_in_with_a_claim_if_there_may_be_new_work(awake, why):
    awake = Bench() if why == "no wake-up" else awake
    await begin(awake)
    awake.in_flight.end(1, COMPLETED)
    if why == "a bad wake-up":
        awake.health.note_trouble("lost")
    elif why == "a poll is due":
        awake.clock.advance(POLL)
    elif why == "a hint":
        awake.plan.hint()
    await awake.exchange.run_once()
    assert [len(each) for each in awake.requests()] == [1]


@pytest.mark.parametrize(
    "requests",
    [
        [ClaimRequest(["shared"], 9)],
        [ClaimRequest(["own", "shared"], 1), ClaimRequest(["shared"], 9)],
    ],
    ids=["not asked for", "as many as asked"],
)
async def test_an_end_is_handed_in_at_once_by_a_claim_if_a_task_may_have_more_jobs(
    awake, monkeypatch, requests
):
    """A runner that async tasks share takes no plain function, and another one takes one."""
    monkeypatch.setattr(awake.pool, "tasks", lambda: ["own", "shared"])
    monkeypatch.setattr(awake.pool, "make_requests", lambda _: requests)
    await begin(awake, task="own")
    awake.in_flight.end(1, COMPLETED)
    assert is_called(awake)
    await awake.exchange.run_once()
    assert awake.requests() == [requests]


async def test_ends_that_come_all_the_time_keep_no_poll_away(awake):
    await begin(awake)
    awake.in_flight.claim([claimed(n) for n in range(2, 40)])
    for token in range(1, 40):
        awake.in_flight.end(token, COMPLETED)
        awake.clock.advance(POLL / 30)
        await awake.exchange.run_once()
    looked = [bool(each) for each in awake.requests()]
    assert looked.index(True) <= 30
    assert sum(looked) <= 2
