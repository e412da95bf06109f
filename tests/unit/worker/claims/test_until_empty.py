"""A worker that leaves once there is nothing left asks for its stop neither too early nor twice."""

from __future__ import annotations

from typing import Any

from outlast.store.values import ClaimRequest, Exchanged
from outlast.worker.claims.prefetch import BACK_SECONDS
from outlast.worker.claims.until_empty import SOON_SECONDS, UntilEmpty
from tests.cases import each_case
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import claimed

REQUESTS = [ClaimRequest(["a"], 10), ClaimRequest(["b"], 2)]


def reply(**fields) -> Exchanged:
    return Exchanged(valid=True, answers=[], **fields)


def stops(said: Exchanged, *, requests=REQUESTS, is_idle: bool = True, most=None) -> bool:
    asked: list[int] = []
    until = UntilEmpty(lambda: asked.append(1), most)
    until.take_reply(requests, said, is_idle=is_idle)
    return asked != []


def test_a_worker_without_work_stops() -> None:
    assert stops(reply())
    assert stops(reply(next_due=SOON_SECONDS + 0.1)), "what is due later is left"


@each_case(
    "fields",
    [
        {"claimed": [claimed(1)]},
        {"cut": True},
        {"next_look": 0.0},
        {"next_due": SOON_SECONDS - 0.1},
        {"next_due": BACK_SECONDS},
    ],
)
def test_a_worker_stays_where_there_may_be_more(fields) -> None:
    assert not stops(reply(**fields))


def test_a_worker_stays_while_it_runs_something_or_asked_for_nothing() -> None:
    assert not stops(reply(), is_idle=False)
    assert not stops(reply(), requests=[])


def test_the_store_has_to_offer_nothing_for_the_whole_time() -> None:
    clock = ManualClock()
    until = UntilEmpty(seconds=10, clock=clock)

    def is_over_after(seconds: float, said: Exchanged, *, is_idle: bool = True) -> bool:
        clock.advance(seconds)
        until.take_reply(REQUESTS, said, is_idle=is_idle)
        return until.is_over()

    busy: list[dict[str, Any]] = [{"is_idle": False}, {"said": reply(claimed=[claimed(1)])}]
    for each in busy:
        assert not is_over_after(0, reply())
        assert not is_over_after(6, reply())
        assert is_over_after(6, reply())
        assert not is_over_after(6, **{"said": reply(), **each})


def test_a_count_bounds_all_requests_together() -> None:
    asked: list[int] = []
    until = UntilEmpty(lambda: asked.append(1), 11)
    assert [each.limit for each in until.narrow(REQUESTS)] == [10, 1]
    until.take_reply(REQUESTS, reply(claimed=[claimed(n) for n in range(10)]), is_idle=False)
    assert [each.limit for each in until.narrow(REQUESTS)] == [1]
    until.take_reply(REQUESTS, reply(claimed=[claimed(11)]), is_idle=False)
    assert until.narrow(REQUESTS) == []
    assert asked == []
    until.take_reply([], reply(), is_idle=True)
    assert asked == [1]


def test_a_worker_that_leaves_looks_everywhere_at_once_and_not_without_a_pause() -> None:
    until = UntilEmpty(lambda: None)
    assert not until.narrow(REQUESTS)[0].whole
    assert not until.take_reply(REQUESTS, reply(next_look=0.9), is_idle=False)
    assert not until.take_reply(REQUESTS, reply(), is_idle=True)
    assert until.take_reply(REQUESTS, reply(next_look=0.9), is_idle=True)
    assert [each.whole for each in until.narrow(REQUESTS)] == [True, False]
    assert not until.take_reply(REQUESTS, reply(next_look=0.9), is_idle=True), "a look in parts"
    assert not until.narrow(REQUESTS)[0].whole
    sleeper = UntilEmpty(seconds=9)
    assert not sleeper.take_reply(REQUESTS, reply(next_look=0.9), is_idle=True)
