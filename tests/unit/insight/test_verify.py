"""The history checker: what it accepts, and each violation that it must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from outlast.insight.verify import (
    PROMISES,
    RULES,
    STREAMS_KEPT,
    HistoryFinding,
    Memory,
    document,
    findings_in,
    verify,
)
from outlast.model.job import Policy, State
from outlast.model.pause import Pause, PauseKind
from outlast.store.limits import Forgotten, Miscounted
from outlast.store.rows import AttemptPast, HistoryPage, JobPast, Unresolved, WorkerStatus
from tests.cases import each_case


def attempt(token: int, number: int, **more: Any) -> AttemptPast:
    values: dict[str, Any] = {
        "job_id": 1,
        "token": token,
        "number": number,
        "outcome": "error",
        "charge": "failure",
        "started_at": float(token),
        "ended_at": token + 0.5,
        "has_crash": True,
    }
    return AttemptPast(**values | more)


def completed(**more: Any) -> JobPast:
    """Return a job that failed, was lost with its worker, and completed."""
    values: dict[str, Any] = {
        "id": 1,
        "state": State.COMPLETED,
        "attempt_count": 3,
        "failures": 1,
        "losses": 1,
        "policy": Policy(),
        "token": 9,
        "started_at": 9.0,
        "ended_at": 10.0,
        "attempts": [attempt(2, 1), attempt(5, 2, outcome="lost_worker", charge="loss")],
    }
    return JobPast(**values | more)


def running(**more: Any) -> JobPast:
    values: dict[str, Any] = {"state": State.RUNNING, "ended_at": None, "worker_id": 4}
    return completed(**values | {"worker_status": WorkerStatus.ACTIVE} | more)


def dead(**more: Any) -> JobPast:
    policy = Policy(retries=0, max_losses=0)
    values: dict[str, Any] = {"state": State.DEAD, "attempt_count": 2, "token": 5, "policy": policy}
    return completed(**values | more)


def found(*jobs: JobPast, token_last: int = 100) -> list[HistoryFinding]:
    page = HistoryPage(jobs=list(jobs), strays=[], token_last=token_last, next_after=None)
    return list(findings_in(page, Memory()))


def snoozed(token: int, number: int, dropped: int = 0) -> AttemptPast:
    values: dict[str, Any] = {"outcome": "snoozed", "charge": "none", "has_crash": False}
    return attempt(token, number, dropped=dropped, **values)


THINNED = completed(
    attempt_count=9, failures=0, losses=0, token=30,
    started_at=30.0, ended_at=31.0,
    attempts=[snoozed(2, 1), snoozed(3, 2), snoozed(8, 7, 4), snoozed(9, 8, 4)],
)  # fmt: skip


HEALTHY = {
    "the middle of many snoozes was dropped, and counted": THINNED,
    "completed": completed(),
    "running": running(),
    "dead": dead(),
    "dead, as its task said": dead(
        policy=Policy(),
        attempts=[attempt(2, 1), attempt(5, 2, outcome="dead", has_crash=False)],
        failures=2,
        losses=0,
    ),
    "never started": completed(
        state=State.QUEUED, attempt_count=0, failures=0, losses=0, token=None, attempts=[],
        started_at=None, ended_at=None,
    ),
    "requeued, its budgets fresh": completed(
        state=State.QUEUED, attempt_count=2, failures=0, losses=0, token=5, started_at=None,
        ended_at=None, requeued_at=6.0,
    ),
    "alone in a worker that died": completed(
        attempts=[attempt(2, 1), attempt(5, 2, outcome="lost_worker")], failures=2, losses=0
    ),
    "a bystander whose losses are used up": completed(
        attempts=[attempt(2, 1), attempt(5, 2, outcome="bystander", charge="none")],
        failures=1, losses=0,
    ),
}  # fmt: skip


@each_case("name", HEALTHY)
def test_a_healthy_history_passes(name: str) -> None:
    assert found(HEALTHY[name]) == []


def with_attempts(*attempts: AttemptPast, **more: Any) -> JobPast:
    return completed(attempts=list(attempts), **more)


LOST = attempt(5, 2, outcome="lost_worker", charge="loss")

VIOLATIONS: dict[str, tuple[str, Callable[[], JobPast]]] = {
    "completed under a closed token": (
        "one_accepted_end",
        lambda: with_attempts(attempt(2, 1), attempt(9, 2, outcome="lost_worker", charge="loss")),
    ),
    "runs under a closed token": ("one_accepted_end", lambda: running(token=5)),
    "a later attempt, a smaller token": (
        "tokens_rise",
        lambda: with_attempts(attempt(7, 1), LOST),
    ),
    "an attempt after the job's token": (
        "tokens_rise",
        lambda: completed(token=3, attempts=[attempt(2, 1), LOST]),
    ),
    "a token that was never drawn": ("tokens_rise", lambda: completed(token=101)),
    "an attempt without evidence": (
        "whole_evidence",
        lambda: completed(attempts=[LOST], failures=0),
    ),
    "dropped, and not counted": (
        "whole_evidence",
        lambda: msgspec.structs.replace(
            THINNED, attempts=[snoozed(2, 1), snoozed(3, 2), snoozed(9, 8, 4)]
        ),
    ),
    "the first was dropped": (
        "whole_evidence",
        lambda: msgspec.structs.replace(THINNED, attempts=[snoozed(9, 8, 7)]),
    ),
    "the last was dropped": (
        "whole_evidence",
        lambda: msgspec.structs.replace(THINNED, attempts=[snoozed(2, 1), snoozed(8, 7, 6)]),
    ),
    "a charged attempt was dropped": (
        "budgets",
        lambda: msgspec.structs.replace(THINNED, failures=1),
    ),
    "evidence beyond the count": ("whole_evidence", lambda: completed(attempt_count=2)),
    "an invalid reason": (
        "known_reason",
        lambda: with_attempts(attempt(2, 1, outcome="completed"), LOST),
    ),
    "a crash without a report": (
        "known_reason",
        lambda: with_attempts(attempt(2, 1, has_crash=False), LOST),
    ),
    "an innocent who was charged": (
        "known_reason",
        lambda: with_attempts(attempt(2, 1, outcome="released", has_crash=False), LOST),
    ),
    "an error that was not charged": (
        "known_reason",
        lambda: with_attempts(attempt(2, 1, charge="none"), LOST, failures=0),
    ),
    "failures out of nowhere": ("budgets", lambda: completed(failures=2)),
    "failures that are gone": ("budgets", lambda: completed(failures=0)),
    "losses out of nowhere": ("budgets", lambda: completed(losses=2)),
    "alive beyond its budget": ("budgets", lambda: running(policy=Policy(retries=0))),
    "dead within its budgets": ("dead_for_a_reason", lambda: dead(policy=Policy())),
    "held after its end": ("held_by_a_live_worker", lambda: completed(worker_id=4)),
    "ended without an end": ("ended_once", lambda: completed(ended_at=None)),
    "an end though it runs": ("ended_once", lambda: running(ended_at=10.0)),
}


@each_case("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, broken = VIOLATIONS[name]
    assert rule in {finding.rule for finding in found(broken()) if not finding.doubt}


def test_every_rule_has_a_violation_or_a_doubt_here() -> None:
    assert {rule for rule, _ in VIOLATIONS.values()} | {"one_holder"} == set(RULES)


def test_an_order_that_only_clocks_show_is_a_doubt() -> None:
    backwards = with_attempts(attempt(2, 1, ended_at=1.0), LOST)
    overlapping = with_attempts(attempt(2, 1, ended_at=5.2), LOST)
    into_the_last = with_attempts(attempt(2, 1), msgspec.structs.replace(LOST, ended_at=9.5))
    for job in (backwards, overlapping, into_the_last):
        (finding,) = found(job)
        assert (finding.rule, finding.doubt) == ("one_holder", True)


def test_an_orphan_is_a_doubt() -> None:
    for status in (WorkerStatus.LOST, None):
        (finding,) = found(running(worker_status=status))
        assert (finding.rule, finding.doubt) == ("held_by_a_live_worker", True)


def test_evidence_without_its_job_is_a_violation() -> None:
    page = HistoryPage(
        jobs=[completed()], strays=[attempt(3, 1, job_id=2)], token_last=9, next_after=None
    )
    (finding,) = findings_in(page, Memory())
    assert (finding.rule, finding.job_id) == ("evidence_of_a_job", 2)


class Pages:
    """An inspector that has pages only."""

    def __init__(self, *pages: HistoryPage, pauses: Sequence[Pause] = ()) -> None:
        self.paused = list(pauses)
        self.pages: dict[int | None, HistoryPage] = {0: pages[0]}
        self.pages |= {page.next_after: later for page, later in pairwise(pages)}

    async def history(self, after: int) -> HistoryPage:
        return self.pages[after]

    async def pauses(self) -> list[Pause]:
        return self.paused

    async def miscounted(self) -> list[Miscounted]:
        return []

    async def forgotten(self) -> list[Forgotten]:
        return []

    async def unresolved(self) -> list[Unresolved]:
        return []

    async def doubled(self) -> list[tuple[int, int]]:
        return []


async def test_pages_are_read_until_enough_findings_are_collected() -> None:
    broken = completed(token=101)
    first = HistoryPage(jobs=[completed(), broken], strays=[], token_last=100, next_after=1)
    last = HistoryPage(jobs=[broken], strays=[], token_last=100, next_after=None)
    inspector: Any = Pages(first, last)
    seen: list[int] = []
    verified = await verify(inspector, on_page=lambda so_far: seen.append(so_far.jobs))
    assert (verified.jobs, verified.attempts, seen) == (3, 6, [2, 3])
    assert len(verified.violations) == 2
    assert len((await verify(inspector, findings_max=1)).findings) == 1
    assert document(verified)["violations"] == 2


def test_every_rule_says_what_it_promises() -> None:
    assert [rule for rule, promise in PROMISES.items() if not promise.endswith(".")] == []


PAUSE_KINDS = {"queue": "mail", "task": "send", "tenant": "acme", "all": ""}


@each_case("kind", PAUSE_KINDS)
async def test_an_attempt_that_began_long_after_its_pause_is_a_doubt(kind: str) -> None:
    mine: dict[str, Any] = {"queue": "mail", "task": "send", "tenant": "acme"}
    jobs = [
        running(id=1, started_at=1_061.0, **mine),
        running(id=2, started_at=1_059.0, **mine),  # before all had acknowledged it
        running(id=3, started_at=1_061.0, queue="other", task="other"),
        completed(id=4, attempts=[attempt(1, 1, started_at=999.0)], **mine),
    ]
    page = HistoryPage(jobs=jobs, strays=[], token_last=100, next_after=None)
    pause = Pause(id=1, kind=PauseKind(kind), name=PAUSE_KINDS[kind], paused_at=1_000.0)
    inspector: Any = Pages(page, pauses=[pause])
    late = [
        each
        for each in (await verify(inspector)).findings
        if each.rule == "nothing_of_a_pause_starts"
    ]
    assert [each.job_id for each in late] == ([1, 3] if kind == "all" else [1])
    assert all(each.doubt and "began 61 s after" in each.sentence for each in late)


def of_tick(job_id: int, tick: float, name: str = "nightly", **more: Any) -> JobPast:
    return completed(id=job_id, policy=Policy(schedule=name, tick=tick, **more))


async def test_a_second_job_for_a_tick_is_a_violation_also_on_a_later_page() -> None:
    first = [of_tick(1, 60.0), of_tick(2, 60.0, "other"), of_tick(3, 120.0)]
    again = [of_tick(4, 180.0), of_tick(5, 120.0, "other"), of_tick(6, 180.0)]
    pages = (
        HistoryPage(jobs=first, strays=[], token_last=100, next_after=3),
        HistoryPage(jobs=again, strays=[], token_last=100, next_after=None),
    )
    inspector: Any = Pages(*pages)
    (finding,) = (await verify(inspector)).violations
    assert (finding.rule, finding.job_id) == ("one_job_for_a_tick", 6)
    assert "180 of the schedule 'nightly' is that of job 4" in finding.sentence


async def test_attempts_of_two_ordered_jobs_do_not_overlap_also_on_a_later_page() -> None:
    def ran(job_id: int, start: float, end: float, stream: int | None = 7) -> JobPast:
        return completed(
            id=job_id, started_at=start, ended_at=end, ordered=stream, attempts=[], attempt_count=1
        )

    first = [ran(1, 10.0, 20.0), ran(2, 20.0, 30.0), ran(3, 5.0, 50.0, None), ran(4, 5.0, 50.0, 8)]
    pages = (
        HistoryPage(jobs=first, strays=[], token_last=100, next_after=4),
        HistoryPage(jobs=[ran(5, 29.0, 31.0)], strays=[], token_last=100, next_after=None),
    )
    inspector: Any = Pages(*pages)
    found = [
        each
        for each in (await verify(inspector)).findings
        if each.rule == "ordered_jobs_do_not_overlap"
    ]
    assert [(each.job_id, each.doubt) for each in found] == [(5, True)]
    assert "as one of job 2" in found[0].sentence
    memory = Memory()
    many = [ran(n, 1.0, 2.0, n) for n in range(STREAMS_KEPT + 5)]
    page = HistoryPage(jobs=many, strays=[], token_last=100, next_after=None)
    assert [each.rule for each in findings_in(page, memory) if each.doubt] == []
    assert len(memory.streams) == STREAMS_KEPT


async def test_an_earlier_tick_is_a_doubt_and_a_backfill_may_repeat_one() -> None:
    jobs = [of_tick(1, 120.0), of_tick(2, 120.0, backfill=True), of_tick(3, 60.0), completed(id=4)]
    page = HistoryPage(jobs=jobs, strays=[], token_last=100, next_after=None)
    inspector: Any = Pages(page)
    verified = await verify(inspector)
    assert [(each.job_id, each.doubt) for each in verified.findings] == [(3, True)]
    assert document(verified)["rules"] == list(PROMISES)
