"""The demo's task: its pace, how it stops when asked, and where it resumes."""

from __future__ import annotations

from typing import Any

import pytest

from examples.census import app as demo
from examples.census.app import Pacer
from outlast.client.attempt import StopReason
from outlast.errors import Stopped


class FakeAttempt:
    """The part of an attempt that a Pacer uses."""

    def __init__(self) -> None:
        self.stop_reason: StopReason | None = None
        self.said: list[tuple[float | None, str | None, str | None]] = []

    def check(self) -> None:
        if self.stop_reason is not None:
            raise Stopped

    def report(
        self, fraction: float | None = None, message: str | None = None, *, stage: str | None = None
    ) -> None:
        self.said.append((fraction, message, stage))


class FakeTime:
    """A clock that moves when a task sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0

    def boot(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(demo, "SYSTEM", fake)
    monkeypatch.setattr("time.sleep", fake.sleep)
    return fake


def pacer(attempt: Any, pace: float) -> Pacer:
    return Pacer(attempt, pace)


def test_a_commit_takes_its_minimum_time_and_reports_progress(clock):
    attempt = FakeAttempt()
    pace = pacer(attempt, 0.5)
    pace.report(0.5, "commit 1 of 2")
    clock.now += 0.2
    pace.pause()
    assert clock.slept == pytest.approx(0.3)
    assert attempt.said == [
        (0.5, "commit 1 of 2", "counting"),
        (0.5, "commit 1 of 2", "slowed to 500 ms a commit"),
    ]


def test_a_commit_that_takes_long_by_itself_is_not_slowed(clock):
    attempt = FakeAttempt()
    pace = pacer(attempt, 0.5)
    pace.report(0.5, "commit 1 of 2")
    clock.now += 0.6
    pace.pause()
    assert clock.slept == 0
    assert [stage for _, _, stage in attempt.said] == ["counting"]


def test_after_the_last_commit_there_is_nothing_to_wait_for(clock):
    pace = pacer(FakeAttempt(), 0.5)
    pace.report(1.0, "commit 2 of 2")
    pace.pause()
    assert clock.slept == 0


def test_an_attempt_that_is_asked_to_stop_stops_at_its_next_report(clock):
    attempt = FakeAttempt()
    attempt.stop_reason = StopReason.DRAIN
    with pytest.raises(Stopped):
        pacer(attempt, 0.5).report(0.5, "commit 1 of 2")


def test_an_attempt_that_is_asked_to_stop_does_not_wait_on(clock, monkeypatch):
    attempt = FakeAttempt()

    def sleep(seconds: float) -> None:
        clock.now += seconds
        attempt.stop_reason = StopReason.CANCEL

    monkeypatch.setattr("time.sleep", sleep)
    pace = pacer(attempt, 60.0)
    with pytest.raises(Stopped):
        pace.pause()
    assert clock.now < 101


def test_the_task_has_a_name_that_no_other_application_has():
    assert list(demo.app.tasks) == ["examples.census.analyze"]
    assert demo.analyze.own_runner
