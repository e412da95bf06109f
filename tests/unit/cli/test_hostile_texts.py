"""Texts that a stranger has put into the store, or into an error, never reach a terminal raw."""

from __future__ import annotations

import io
import re
import shlex
from typing import Any

import msgspec
from rich.console import Console

from outlast.cli.dead import _table as groups_table
from outlast.cli.doctor import _show as show_findings
from outlast.cli.job_page import Page
from outlast.cli.limits import _state
from outlast.cli.logs import text_renderer
from outlast.cli.pauses import _unheard
from outlast.cli.run import _end
from outlast.cli.show import dead_table, gone_table, jobs_table, workers_table
from outlast.cli.workers import _called
from outlast.insight.acting import declared_by_code
from outlast.insight.availability import Served
from outlast.insight.deaths import DeathGroup
from outlast.insight.doctor.facts import Facts, Locks
from outlast.insight.doctor.findings import examine
from outlast.insight.explanation import JobDetails
from outlast.insight.limits import explain, next_start, spec_text
from outlast.insight.queries import JobList
from outlast.insight.why import why
from outlast.model.crash import Crash, CrashKind, MemoryEvidence, Progress
from outlast.model.job import SHELL_TASK, State
from outlast.model.pause import NO_PAUSES, Pause, PauseKind
from outlast.store.limits import LimitRow, PermitRow, StreamPlace
from outlast.store.rows import AttemptRow, RefusalRow, StoredJob, WorkerRow, WorkerStatus
from outlast.store.statistics import Place
from tests.cases import each_case
from tests.unit.insight.rows_kit import NOW, RELEASED, job, worker

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\x00\x08bad"
SERVED = Served([worker(tasks=[EVIL])])
RAW = set("\x1b\x07\x9b\u202e\x00\x08\r")


def hostile(row: Any, **more: Any) -> Any:
    """Return a row with EVIL in each field that may hold a text."""
    names = {
        field.name: EVIL
        for field in msgspec.structs.fields(row)
        if field.type in (str, str | None) and field.name not in more
    }
    return msgspec.structs.replace(row, **names | more)


CRASH = hostile(
    Crash(
        kind=CrashKind.ERROR,
        output=[EVIL],
        exit_code=1,
        progress=Progress(0.5, EVIL, EVIL),
        memory=hostile(MemoryEvidence(source="cgroup"), source="cgroup"),
        release="x",
    )
)
ATTEMPTS: list[AttemptRow] = [
    hostile(RELEASED, crash=CRASH, number=number, charge=charge, repeats=3, dropped=0)
    for number, charge in ((1, "failure"), (2, "none"), (3, EVIL))
]
REFUSALS: list[RefusalRow] = [hostile(RefusalRow(job_id=7, token=1, verb="x", at=NOW, late_by=1.0))]
WORKER: WorkerRow = hostile(
    worker(), queues=[EVIL], tasks=[EVIL], tags=[EVIL], lacks={EVIL: [EVIL]}
)


def job_in(state: State) -> StoredJob:
    ended = NOW if state in {State.COMPLETED, State.DEAD, State.CANCELLED} else None
    row: StoredJob = hostile(
        job(attempt_count=3, token=9, state=state, worker_id=1, started_at=NOW, ended_at=ended),
        args=f'{{"{EVIL}": 1',
        progress=Progress(0.5, EVIL, EVIL),
        held_back="limited",  # a word of the store's own statement
    )
    return row


def shown(draw: Any) -> str:
    out = Console(file=io.StringIO(), highlight=False, markup=False, width=240)
    draw(out)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text


@each_case("state", State)
def test_the_page_of_a_job_and_the_lists_show_escapes_and_send_none(state: State) -> None:
    row = job_in(state)
    for attempts in (ATTEMPTS, ATTEMPTS[:2], ATTEMPTS[:1]):
        details = JobDetails(
            row=row, attempts=attempts, refusals=REFUSALS, workers=[WORKER], now=NOW
        )
        text = shown(page_of(details))
        assert "\\x1b" in text
        assert not RAW & set(text)
    refused = {EVIL: 3}
    gone = msgspec.structs.replace(WORKER, status=WorkerStatus.LOST, stopped_at=NOW)
    for draw in (
        lambda out: out.print(jobs_table(out, JobList([row], SERVED, {}, NO_PAUSES), NOW)),
        lambda out: out.print(dead_table(out, [(row, EVIL)], NOW)),
        lambda out: out.print(workers_table(out, [WORKER], refused, NOW)),
        lambda out: out.print(gone_table(out, [gone], refused, NOW)),
    ):
        assert not RAW & set(shown(draw))


def test_a_job_names_the_columns_that_cannot_be_read() -> None:
    row = job(malformed="policy, stack")
    details = JobDetails(row=row, attempts=[], workers=[worker()], now=NOW)
    assert "unreadable  policy, stack\n" in shown(page_of(details))


@each_case("duty", ["exchange", EVIL])
def test_the_doctor_and_groups_of_dead_jobs_show_escapes_and_send_none(duty: str) -> None:
    failing = msgspec.structs.replace(WORKER, failing=f"{duty}: {EVIL}", wakeup=f"{EVIL}: {EVIL}")
    findings = examine(Facts(place=EVIL, now=NOW, workers=[failing], locks=Locks(path=EVIL)))
    assert {"failing_duty", "wakeup"} <= {one.name for one in findings}
    assert not RAW & set(shown(lambda out: show_findings(out, findings)))
    group = hostile(
        DeathGroup(
            group=None, number=1, first_at=NOW, last_at=NOW, job_id=1, task="", queue="",
            kind=None, exception=None, place=None, message="",
        )
    )  # fmt: skip
    assert not RAW & set(shown(lambda out: out.print(groups_table(out, [group], NOW))))


def test_what_a_limit_allows_shows_escapes_and_sends_none() -> None:
    row = hostile(LimitRow(name="", running=1, held_until=NOW + 9))
    permit = hostile(PermitRow(id=1, name="", key="", running=1, used=1))
    place = StreamPlace(ahead=1, blocked_by=permit, limit=row)
    said = [spec_text(row), _state(row), next_start(permit, row, NOW)]
    said += [text for part in explain(place, NOW, tells=True) or () for text in part]
    assert not RAW & set("".join(said))


def test_a_command_to_copy_holds_a_name_as_one_word() -> None:
    name = "$(touch pwned)'; touch pwned; '"
    limit = LimitRow(name=name, running=1, spacing=1.0, held_until=NOW + 9)
    permit = PermitRow(id=1, name=name, key="", running=1, used=1)
    place = StreamPlace(ahead=1, blocked_by=permit, limit=limit)
    free = msgspec.structs.replace(limit, held_until=None)
    full = msgspec.structs.replace(place, limit=free)
    dear = msgspec.structs.replace(
        full, cost=9.0, blocked_by=msgspec.structs.replace(permit, used=0)
    )
    rows: list[JobDetails] = [
        JobDetails(row=job(event=name, waiting=True), attempts=[], workers=[worker()], now=NOW),
        JobDetails(row=job(queue=name), attempts=[], workers=[worker(queues=["a"])], now=NOW),
        *(
            JobDetails(row=job(), attempts=[], workers=[worker()], stream=each, now=NOW)
            for each in (place, full, dear)
        ),
        JobDetails(
            row=job(), attempts=[], workers=[worker()], now=NOW,
            pauses=[Pause(id=1, kind=PauseKind.QUEUE, name=name, paused_at=NOW)],
        ),
    ]  # fmt: skip
    rows[-1] = msgspec.structs.replace(rows[-1], row=job(queue=name))
    said = [" ".join(why(each).moves) for each in rows]
    for text in [*said, str(declared_by_code(name, "change"))]:
        commands = [one for one in re.findall(r"`([^`]*)`", text) if "touch" in one]
        assert commands, text
        assert all(name in shlex.split(one) for one in commands), text


def test_the_name_of_a_worker_is_one_line() -> None:
    forged = msgspec.structs.replace(WORKER, name="w\nworker b (2) has left")
    assert "\n" not in _called(forged) + _unheard([forged])


def page_of(details: JobDetails) -> Any:
    return lambda out: Page(out, details, why(details)).write()


@each_case("state", State)
@each_case("count", [1, 2, 3])
def test_why_shows_escapes_and_sends_none(state: State, count: int) -> None:
    for row in (job_in(state), msgspec.structs.replace(job_in(state), solo=1, waiting=True)):
        for workers in ([], [WORKER], [msgspec.structs.replace(WORKER, tasks=[row.task])]):
            about = JobDetails(
                row=row, attempts=ATTEMPTS[:count], workers=workers, place=Place(), now=NOW
            )
            answer = why(about)
            assert not RAW & set(" ".join([*answer.sentences, *answer.moves]))


DEEP = "[" * 5_000


@each_case("text", [DEEP, '{"argv": ' + DEEP, '{"output": 7}', '{"output": [7]}', "[]"])
def test_an_unreadable_row_is_shown_raw_and_hides_no_other(text: str) -> None:
    """Otherwise one such row would break the list of jobs."""
    row = msgspec.structs.replace(job_in(State.COMPLETED), args=text, result=text)
    command = msgspec.structs.replace(row, task=SHELL_TASK)
    rows = [row, command, job_in(State.QUEUED)]
    found = JobList(rows, Served([]), {}, NO_PAUSES)
    listed = shown(lambda out: out.print(jobs_table(out, found, NOW)))
    assert listed.count("completed") == 2
    assert text[:8] in shown(page_of(JobDetails(row=row, attempts=[], workers=[], now=NOW)))
    assert _end(command, []).output == []


@each_case("colors", [False, True])
def test_a_text_log_escapes_control_characters(colors: bool) -> None:
    told = {
        "event": f"warning: {EVIL}",
        "level": "warning",
        "message": EVIL,
        EVIL: 1,
        "names": [EVIL],
    }
    text = text_renderer(colors=colors)(dict(told))
    own = {"\x1b"} if colors else set()
    assert not (RAW - own) & set(text)
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "a\n  traceback" in text_renderer(colors=colors)(
        {"event": "x", "stack": "a\n  traceback"}
    )
