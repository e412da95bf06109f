"""Which failing duty is reported, and when its failure ends the worker."""

from __future__ import annotations

from outlast.errors import NotPermitted, StoreUnavailable
from outlast.model.crash import hiding
from outlast.worker.service import FAILING_SECONDS, GIVE_UP_SECONDS, Condition, Failure
from tests.manual_clock import ManualClock

REFUSED = NotPermitted("permission denied for sequence outlast_token_seq")
GAP = 30.0


class Duty:
    def __init__(self, name: str, error: Exception | None = None, since: float = 0.0) -> None:
        self.name = name
        self.failure = None if error is None else Failure(error, since)


def of(*duties: Duty) -> dict[str, Failure | None]:
    return {each.name: each.failure for each in duties}


def judged(*, hide: str = "never matches") -> tuple[ManualClock, Condition]:
    clock = ManualClock(boot=0.0)
    return clock, Condition(clock, GAP, hiding([hide]))


def beating(clock: ManualClock, condition: Condition, seconds: float) -> None:
    for _ in range(int(seconds / 2)):
        clock.advance(2.0)
        condition.note_beat()


def test_a_brief_failure_of_a_duty_is_not_reported():
    clock, condition = judged()
    duty = Duty("reaper", REFUSED)
    clock.advance(FAILING_SECONDS - 0.1)
    assert condition.find_trouble(of(duty)) is None
    clock.advance(0.2)
    told = condition.find_trouble(of(duty))
    assert told is not None
    assert (told.duty, told.since) == ("reaper", 0.0)
    assert told.error == f"NotPermitted: {REFUSED}"


def test_a_failure_that_makes_a_worker_useless_comes_first():
    clock, condition = judged()
    clock.advance(100.0)
    all_three = Duty("reaper", REFUSED), Duty("pool"), Duty("exchange", StoreUnavailable("x"), 50.0)
    told = condition.find_trouble(of(*all_three))
    assert told is not None
    assert told.duty == "exchange"
    told = condition.find_trouble(of(Duty("pruner", REFUSED, 60.0), Duty("reaper", REFUSED, 50.0)))
    assert told is not None
    assert told.duty == "reaper"


def test_an_error_is_one_bounded_line_without_secrets():
    clock, condition = judged(hide="hush")
    clock.advance(FAILING_SECONDS)
    told = condition.find_trouble(of(Duty("reaper", RuntimeError("a hush\nb" + "x" * 1_000))))
    assert told is not None
    assert told.error.startswith("RuntimeError: a [redacted] b")
    assert len(told.error) == 300


def test_a_worker_leaves_when_the_store_refuses_it_for_minutes():
    clock, condition = judged()
    duty = Duty("exchange", REFUSED, 10.0)
    beating(clock, condition, 10.0)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, GIVE_UP_SECONDS - 2.0)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, 4.0)
    assert condition.find_end(of(duty)) == Failure(REFUSED, 10.0)
    assert condition.find_end(of(Duty("exchange"))) is None
    assert condition.find_end(of(Duty("reaper", REFUSED))) is None


def test_a_temporary_failure_is_no_reason_to_leave():
    clock, condition = judged()
    beating(clock, condition, 10 * GIVE_UP_SECONDS)
    assert condition.find_end(of(Duty("exchange", StoreUnavailable("it waits for a lock")))) is None


def test_the_time_in_which_the_store_was_away_does_not_count():
    clock, condition = judged()
    duty = Duty("exchange", REFUSED)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, 10.0)
    clock.advance(2 * GIVE_UP_SECONDS)  # no beat
    beating(clock, condition, GIVE_UP_SECONDS - 10.0)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, 20.0)
    assert condition.find_end(of(duty)) is not None


def test_one_odd_answer_after_a_long_wait_for_a_lock_is_no_reason_to_leave():
    clock, condition = judged()
    duty = Duty("exchange", StoreUnavailable("it waits for a lock"))
    for _ in range(10):
        beating(clock, condition, GIVE_UP_SECONDS)
        assert condition.find_end(of(duty)) is None
    duty.failure = Failure(REFUSED, 0.0)  # the duty has failed all that time
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, GIVE_UP_SECONDS - 2.0)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, 2.0)
    assert condition.find_end(of(duty)) == duty.failure, "a lasting failure still counts"


def test_refusals_with_broken_calls_between_count_from_the_first():
    clock, condition = judged()
    duty = Duty("exchange", REFUSED)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, GIVE_UP_SECONDS / 2)
    duty.failure = Failure(StoreUnavailable("x"), 0.0)
    assert condition.find_end(of(duty)) is None
    beating(clock, condition, GIVE_UP_SECONDS / 2)
    duty.failure = Failure(REFUSED, 0.0)
    assert condition.find_end(of(duty)) is not None


def test_a_refusal_that_passed_does_not_count_for_the_next_one():
    clock, condition = judged()
    assert condition.find_end(of(Duty("exchange", REFUSED))) is None
    beating(clock, condition, GIVE_UP_SECONDS)
    assert condition.find_end(of(Duty("exchange"))) is None
    assert condition.find_end(of(Duty("exchange", REFUSED, GIVE_UP_SECONDS))) is None
