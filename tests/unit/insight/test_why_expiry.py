"""What is said of a queued job that can expire."""

from __future__ import annotations

from outlast.insight.explanation import JobDetails
from outlast.insight.why import why
from outlast.store.rows import StoredJob
from outlast.store.statistics import Place
from tests.cases import each_case
from tests.unit.insight.rows_kit import NOW, job, worker


@each_case(
    ("row", "position", "said"),
    [
        (
            job(waiting=True, run_at=NOW + 30, expires_at=NOW + 60),
            "scheduled",
            "It expires in 1 min, at 2030-01-01 00:01:00 UTC, unless it has begun by then.",
        ),
        (
            job(expires_at=NOW - 1),
            "in_line",
            "It expired at 2029-12-31 23:59:59 UTC: the next worker to check will cancel it.",
        ),
    ],
)
def test_a_queued_job_says_when_it_expires(row: StoredJob, position: str, said: str) -> None:
    answer = why(JobDetails(row=row, attempts=[], workers=[worker()], place=Place(), now=NOW))
    assert answer.position == position
    assert answer.sentences[-1] == said
