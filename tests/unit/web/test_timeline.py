"""Where attempts are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.insight.explanation import JobDetails
from outlast.model.job import Policy, State
from outlast.store.rows import AttemptRow, RefusalRow, StoredJob
from outlast.web.job import BARS_MAX, WIDTH, draw_timeline
from tests.cases import each_case


def attempt(number: int, began: float, ended: float, **more: Any) -> AttemptRow:
    return AttemptRow(
        job_id=1, token=100 + number, number=number, outcome="error", charge="failure",
        started_at=began, ended_at=ended, **more,
    )  # fmt: skip


def details(
    *attempts: AttemptRow, refusals: tuple[RefusalRow, ...] = (), now: float = 0.0, **fields: Any
) -> JobDetails:
    values: dict[str, Any] = {"state": State.QUEUED, "token": None, "started_at": None} | fields
    row = StoredJob(
        id=1, task="t", queue="q", priority=0, attempt_count=len(attempts), failures=0, losses=0,
        waiting=False, args="{}", policy=Policy(), run_at=0.0, enqueued_at=0.0, **values,
    )  # fmt: skip
    return JobDetails(row=row, attempts=attempts, refusals=refusals, workers=[], now=now)


def test_nothing_is_drawn_of_a_job_that_was_never_tried() -> None:
    assert draw_timeline(details()) is None


def test_bars_stand_where_their_time_is() -> None:
    drawn = draw_timeline(details(attempt(1, 0, 10), attempt(2, 10, 20)))
    assert drawn is not None
    assert [(bar.x, bar.width) for bar in drawn.bars] == [(0.0, 500.0), (500.0, 500.0)]
    assert drawn.breaks == []


def test_a_long_gap_is_drawn_short_and_as_a_break() -> None:
    drawn = draw_timeline(details(attempt(1, 0, 10), attempt(2, 100_000, 100_010)))
    assert drawn is not None
    first, second = drawn.bars
    assert first.width == pytest.approx(second.width, abs=0.2)
    assert first.width > 300
    (cut,) = drawn.breaks
    assert first.x + first.width < cut < second.x


def test_a_running_attempt_ends_now_and_shows_its_checkpoint() -> None:
    drawn = draw_timeline(
        details(
            state=State.RUNNING, token=7, started_at=100.0, checkpoint_at=150.0, now=200.0
        )
    )  # fmt: skip
    assert drawn is not None
    (bar,) = drawn.bars
    assert (bar.outcome, bar.width, bar.saved) == ("running", WIDTH, WIDTH / 2)


def test_a_refused_write_stands_behind_its_attempt() -> None:
    late = RefusalRow(job_id=1, token=101, verb="checkpoint", at=15.0, late_by=5.0)
    drawn = draw_timeline(details(attempt(1, 0, 10), refusals=(late,)))
    assert drawn is not None
    (bar,) = drawn.bars
    assert bar.x + bar.width < bar.refused[0] <= WIDTH


@each_case("times", [(0.0, 0.0), (5.0, 5.0), (1e15, 1e15), (10.0, 5.0), (-1e15, 1e15)])
def test_odd_times_are_drawn_within_the_width(times: tuple[float, float]) -> None:
    drawn = draw_timeline(details(attempt(1, *times), attempt(2, *times), attempt(3, 0.0, 1.0)))
    assert drawn is not None
    for bar in drawn.bars:
        assert 0 <= bar.x <= WIDTH
        assert 0 < bar.width <= WIDTH


def test_of_many_attempts_the_last_are_drawn() -> None:
    drawn = draw_timeline(details(*[attempt(n, n, n + 1) for n in range(100)]))
    assert drawn is not None
    assert [bar.number for bar in drawn.bars] == list(range(100 - BARS_MAX, 100))
