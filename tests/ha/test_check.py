"""The checker of the drills finds each violation that the judge of the chaos runs does not know."""

from __future__ import annotations

from typing import Any

from outlast.store.rows import ClosedAttempt
from tests.cases import each_case
from tests.chaos.judge import Run
from tests.chaos.test_judge import entry, job, run
from tests.ha.check import Commit, Facts, Found, judged

START, DONE = entry("start", 10.0, 7, step=0), entry("done", 11.0, 7)
AGAIN = (entry("start", 8.0, 5, step=0), entry("done", 9.0, 5), START, DONE)
ACCEPTED = {"job": 1, "key": None, "asked_at": 7.0, "at": 7.1}


def told(found: Run, **changed: Any) -> Found:
    facts: dict[str, Any] = {
        "fault_at": 8.0,
        "commits": [Commit(1, 7.9, 8.0), Commit(2, 9.8, 9.9)],
        "closed": [],
        "synchronous": True,
        "odd": [],
        "notes": {},
    }
    return judged(Facts(run=found, **{**facts, **changed}), is_timed=True)


def closed(charge: str) -> ClosedAttempt:
    return ClosedAttempt(
        job_id=1,
        token=5,
        number=1,
        outcome="lost_lease",
        charge=charge,
        started_at=8.0,
        ended_at=9.5,
    )


def test_a_drill_in_order_has_no_finding_and_its_times_are_since_the_fault() -> None:
    found = told(run(START, DONE, ledger=[ACCEPTED]))
    assert (found.findings, found.writable, found.first_job) == ([], 1.9, 2.0)
    was_running = told(run(*AGAIN), closed=[closed("none")])
    assert (was_running.findings, was_running.twice) == ([], 1)


@each_case(
    ("found", "word"),
    [
        (told(run(*AGAIN)), "DONE AGAIN job 1"),
        (told(run(*AGAIN), closed=[closed("loss")]), "CHARGED job 1"),
        (told(run(START, DONE, accepted={(1, None), (2, None)})), "LOST job 2"),
        (told(run(START, DONE, ledger=[ACCEPTED, {**ACCEPTED, "key": "b"}])), "REPEATED the id 1"),
        (told(run(START, DONE, jobs=[job(result='{"token": 5}')])), "STALE END"),
        (told(run(entry("start", 14.0, 7, step=0), DONE)), "LATE the first job"),
        (told(run()), "no job began"),
        (told(run(START, DONE), odd=["worker-0 ended"]), "worker-0 ended"),
    ],
)
def test_each_violation_is_found(found: Found, word: str) -> None:
    assert len(found.findings) == 1, found
    assert word in found.findings[0]


def test_without_synchronous_replication_only_what_was_acknowledged_before_may_be_lost() -> None:
    accepted = {(1, None), (2, "b")}
    before = {"job": 2, "key": "b", "asked_at": 7.5, "at": 7.6}
    lost = told(run(START, DONE, accepted=accepted, ledger=[before]), synchronous=False)
    assert (lost.lost, lost.findings) == (1, [])
    after = {**before, "asked_at": 9.95, "at": 10.0}
    (finding,) = told(
        run(START, DONE, accepted=accepted, ledger=[after]), synchronous=False
    ).findings
    assert "LOST job 2" in finding
