"""The stock: attempts that wait in a full runner, in which others end quickly."""

from __future__ import annotations

from typing import Any

from outlast.model.crash import Crash, CrashKind
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.execute import RECALLED
from outlast.runner.protocol import AttemptsEnded, End, Recall, Recalled
from outlast.worker.claims.prefetch import RATE_SECONDS, WAIT_SECONDS_MAX
from outlast.worker.runners.assignment import QUICK_SECONDS, STOCK_MAX
from outlast.worker.runners.pool import SIGNAL_SECONDS
from tests.cases import each_case
from tests.unit.worker.runners.pool_kit import CONCURRENCY, SIZE, Bench, FakeRunner, shared
from tests.unit.worker.worker_kit import COMPLETED

FAST = int(100_000 * RATE_SECONDS)  # ends in the time over which they are counted
STOCKS = SIZE * STOCK_MAX
FULL = SIZE * CONCURRENCY


def end(runner: FakeRunner, *tokens: int, outcome: Outcome = COMPLETED) -> None:
    runner.says(AttemptsEnded([End(token, outcome) for token in tokens]))


async def busy(**limits: Any) -> tuple[Bench, FakeRunner, FakeRunner]:
    """A pool whose attempts end quickly, each runner of which has just reported an end."""
    bench = await Bench(**limits).ready(shared=False)
    bench.end_many(FAST)
    one, two, _ = bench.runners
    bench.place(*(shared(n) for n in range(1, FULL + 1)))
    for runner in (one, two):
        end(runner, runner.runs()[0])
    bench.ends()
    return bench, one, two


async def with_stocks() -> tuple[Bench, FakeRunner, FakeRunner]:
    bench, one, two = await busy()
    bench.place(*(shared(n) for n in range(100, 100 + STOCKS + SIZE)))
    assert [len(each.tokens) for each in (one, two)] == [CONCURRENCY + STOCK_MAX] * 2
    return bench, one, two


async def test_full_runners_get_a_stock_where_attempts_end_quickly() -> None:
    bench, one, two = await with_stocks()
    assert [each.find_stock(CONCURRENCY) for each in (one, two)] == [
        each.runs()[-STOCK_MAX:] for each in (one, two)
    ]
    assert bench.ends() == []
    assert bench.pool.starter.count_waiting() == STOCKS


async def test_slots_are_filled_before_any_stock() -> None:
    bench, one, two = await busy()
    end(two, *two.tokens)
    bench.place(*(shared(n) for n in range(100, 100 + CONCURRENCY + 2)))
    assert len(one.tokens) >= CONCURRENCY <= len(two.tokens)
    assert not one.find_stock(CONCURRENCY) or not two.find_stock(CONCURRENCY + 1)


async def test_a_stock_is_filled_again_once_half_of_it_is_empty() -> None:
    bench, one, _ = await with_stocks()
    bench.place(*(shared(n) for n in range(500, 500 + STOCK_MAX)))
    sent = len(one.sent)
    end(one, *one.runs()[1 : STOCK_MAX // 2])
    assert len(one.sent) == sent, "half of the stock is left, and no frame carries a few"
    end(one, *one.runs()[STOCK_MAX // 2 : STOCK_MAX // 2 + 2])
    assert len(one.sent) > sent
    assert len(one.tokens) == CONCURRENCY + STOCK_MAX


async def test_a_runner_in_which_none_has_just_ended_gets_no_stock() -> None:
    """Its loop may be blocked, or its attempts be slow."""
    bench, one, two = await busy()
    bench.clock.advance(2 * QUICK_SECONDS)
    end(two, two.runs()[1])
    bench.place(*(shared(n) for n in range(100, 100 + STOCKS)))
    assert not one.find_stock(CONCURRENCY)
    assert len(two.find_stock(CONCURRENCY)) == STOCK_MAX


async def test_slow_attempts_and_runners_that_are_recycled_get_no_stock() -> None:
    bench = await Bench().ready(shared=False)
    bench.place(*(shared(n) for n in range(1, FULL + 1)))
    end(bench.runners[0], 1)
    bench.place(shared(100), shared(101))
    assert not any(each.find_stock(CONCURRENCY) for each in bench.runners)
    bench, one, two = await busy(max_jobs=1000)
    bench.place(*(shared(n) for n in range(100, 104)))
    assert not any(each.find_stock(CONCURRENCY) for each in (one, two))


async def test_what_waits_in_a_runner_that_dies_goes_back_uncharged() -> None:
    bench, one, _ = await with_stocks()
    waited, begun = one.find_stock(CONCURRENCY), one.runs()[1 : CONCURRENCY + 1]
    one.dies(signal="SIGSEGV")
    ends = {each.token: each for each in bench.ends()}
    assert ends.keys() == set(waited) | set(begun)
    for token in waited:
        assert (ends[token].outcome, ends[token].began) == ("released", False)
        assert ends[token].incident is None
    for token in begun:
        assert ends[token].outcome == "bystander"
        assert ends[token].incident is not None


async def test_behind_a_frame_that_cannot_be_read_any_may_have_begun() -> None:
    """Ends that came after it were not read, and others have begun in their places."""
    bench, one, _ = await with_stocks()
    held = set(one.tokens)
    one.dies(signal="SIGKILL", complaint="a malformed frame")
    assert {each.token for each in bench.ends() if each.began} == held


async def test_an_end_that_waits_for_its_workers_own_signal_leaves_its_slot_to_the_stock() -> None:
    bench, one, _ = await with_stocks()
    first, *_ = stock = one.find_stock(CONCURRENCY)
    crash = Crash(kind=CrashKind.BYSTANDER, message="it was interrupted")
    interrupted = Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=crash.message)
    end(one, one.runs()[1], outcome=interrupted)
    assert one.runs()[1] in one.tokens, f"for {SIGNAL_SECONDS} s"
    assert one.find_stock(CONCURRENCY) == stock[1:], "the runner has let the next one begin"
    one.dies(signal="SIGSEGV")
    assert {each.token for each in bench.ends() if each.outcome == "bystander"} >= {first}


async def test_what_waits_for_too_long_is_recalled_once() -> None:
    bench, one, _ = await with_stocks()
    stock = one.find_stock(CONCURRENCY)
    bench.pool.starter.give_back_late()
    assert not any(isinstance(frame, Recall) for frame in one.sent)
    bench.clock.advance(2 * WAIT_SECONDS_MAX)
    bench.pool.starter.give_back_late()
    bench.pool.starter.give_back_late()
    assert [frame.tokens for frame in one.sent if isinstance(frame, Recall)] == [sorted(stock)]
    end(one, *stock[5:], outcome=RECALLED)
    one.says(Recalled(sorted(stock)))
    assert {each.token for each in bench.ends()} == set(stock[5:])
    bench.pool.starter.give_back_late()
    assert [frame.tokens for frame in one.sent if isinstance(frame, Recall)] == [sorted(stock)]


async def test_a_recall_is_answered_once_each_runner_has_said_what_has_begun() -> None:
    bench, one, _ = await with_stocks()
    first, *_ = one.find_stock(CONCURRENCY)
    recall = bench.pool.control.recall
    assert recall("it is paused", lambda claimed: claimed.token == first) is False
    assert [frame.tokens for frame in one.sent if isinstance(frame, Recall)] == [[first]]
    one.says(Recalled([first]))
    assert recall("it is paused", lambda claimed: claimed.token == first) is True
    assert one.note_recalling([first]) == [], "it has been asked about"
    end(one, first)
    one.says(Recalled([first]))  # late
    assert (one.begun, one.recalling) == (set(), set()), "nothing is kept of what has ended"


async def test_attempts_that_were_taken_back_count_as_no_ends() -> None:
    """A blocked runner would seem to be quick."""
    bench, one, two = await with_stocks()
    bench.clock.advance(RATE_SECONDS)
    for runner in (one, two):
        end(runner, *runner.find_stock(CONCURRENCY), outcome=RECALLED)
    bench.clock.advance(1.5 * RATE_SECONDS)
    assert bench.requests(0) == []


@each_case("slots", [STOCK_MAX, 500])
async def test_many_slots_need_no_stock(slots: int) -> None:
    bench = await Bench(concurrency=slots).ready(shared=False)
    bench.end_many(FAST)
    bench.place(*(shared(n) for n in range(SIZE * slots)))
    end(bench.runners[0], 0)
    bench.place(shared(5000), shared(5001))
    assert not any(each.find_stock(slots) for each in bench.runners)
