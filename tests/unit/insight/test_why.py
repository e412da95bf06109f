"""Why a job is where it is: every position once, and never an error for any row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from outlast.insight.availability import ASLEEP
from outlast.insight.documents import why_document
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.why import why
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.pause import Pause, PauseKind
from outlast.store.limits import LimitRow, PermitRow, StreamPlace
from outlast.store.rows import DependencyRow, Held, StepRow, StoredJob, WorkerRow, WorkerStatus
from outlast.store.statistics import PLACE_MAX, Place
from outlast.store.values import Wants
from tests.cases import each_case
from tests.unit.insight.rows_kit import FAILED, KILLED, NOW, RELEASED, job, running, worker


def asked(row: StoredJob, *workers: WorkerRow, **more: Any) -> Explanation:
    lists = ("attempts", "held", "pauses", "steps", "upstream")
    known = {name: more.pop(name, []) for name in lists}
    known["stream"] = more.pop("stream", None)
    return why(JobDetails(row=row, workers=workers, place=Place(**more), now=NOW, **known))


def pause(kind: str, name: str = "", **fields: Any) -> Pause:
    return Pause(id=1, kind=PauseKind(kind), name=name, paused_at=NOW - 90, **fields)


def upstream(job_id: int, **fields: Any) -> DependencyRow:
    values: dict[str, Any] = {
        "wants": Wants.COMPLETED,
        "is_met": False,
        "has_failed": False,
        "number_left": 1,
    }
    return DependencyRow(job_id=job_id, **(values | fields))


def stream(*, blocked: bool = True, **fields: Any) -> StreamPlace:
    permit = PermitRow(id=1, name="openai", key="", running=20, **({"used": 0} | fields))
    limit = LimitRow(name="openai", running=20, spacing=0.2)
    return StreamPlace(ahead=3, blocked_by=permit if blocked else None, limit=limit)


def test_what_a_job_waits_for_comes_before_how_it_waits() -> None:
    snoozed = msgspec.structs.replace(RELEASED, outcome="snoozed", repeats=3)
    waiting = job(waiting=True, run_at=NOW + 90, event="approve:17", attempt_count=3)
    answer = asked(waiting, attempts=[snoozed])
    assert answer.sentences[0].startswith("It waits for the event 'approve:17'.")
    assert any("outlast event approve:17" in move for move in answer.moves)
    first = [upstream(job_id, number_left=62_310) for job_id in range(1, 21)]
    assert "and 62,307 others." in said(asked(job(state=State.BLOCKED), upstream=first))


def test_who_may_not_know_whether_an_event_was_sent_is_not_told_to_send_it_again() -> None:
    row = job(waiting=True, run_at=NOW + 90, event="approve:17", attempt_count=3)
    answer = why(JobDetails(row=row, attempts=[], workers=[worker()], now=NOW, is_sent=None))
    assert answer.moves == ["`outlast event approve:17 JSON` sends it, unless that was done."]


def test_who_may_not_be_told_of_others_is_not_told_who_has_the_key() -> None:
    row = job(state=State.DEAD, losses=11, key="k", attempt_count=11)
    place = Place(key_holder=90)
    about = JobDetails(row=row, attempts=[], workers=[], now=NOW, place=place)
    assert "90" in said(why(about))
    assert "90" not in said(why(msgspec.structs.replace(about, may_tell_others=False)))


def test_a_job_does_not_wait_for_ends_that_no_worker_has_noticed_yet() -> None:
    ended = [
        upstream(3, task="fetch", state=State.COMPLETED, number_left=2),
        upstream(4, task="fetch", state=State.DEAD, wants=Wants.ENDED, number_left=2),
    ]
    blocked = job(state=State.BLOCKED)
    assert "All jobs that it waited for have ended." in said(asked(blocked, upstream=ended))
    one_more = [msgspec.structs.replace(each, number_left=3) for each in ended]
    assert "and 1 other." in said(asked(blocked, upstream=one_more))


def said(answer: Explanation) -> str:
    return " ".join([*answer.sentences, "->", *answer.moves])


UNDECODABLE = msgspec.structs.replace(
    RELEASED, outcome="undecodable", message="no task render", repeats=37,
    crash=Crash(kind=CrashKind.UNDECODABLE, release="2026.1"),
)  # fmt: skip


DEAD_ONE = worker(lock_free=True)
ASLEEP_ONE = worker(status=WorkerStatus.STOPPED, cause=ASLEEP, lease_expires_at=NOW + 90)
REFUSED = worker(failing="exchange: NotPermitted: no UPDATE", failing_since=NOW - 90)
CASES: list[tuple[str, Explanation, list[str]]] = [
    (
        "orphaned",
        asked(running(), DEAD_ONE),
        ["that worker is dead (its lock file on this machine is free)", "alive: start one"],
    ),
    ("orphaned", asked(running(), DEAD_ONE, worker(2)), ["Worker W-2 returns it"]),
    (
        "waiting",
        asked(job(waiting=True, run_at=NOW + 90, event="approve:17"), worker()),
        ["It waits for the event 'approve:17'. It stops waiting in 1 min 30 s", "event 'app"],
    ),
    ("no_workers", asked(job(), DEAD_ONE), ["worker W-1 died: its lock file is free"]),
    (
        "silent",
        asked(running(), worker(unheard=61.0)),
        ["that worker has not been heard from for 1 min 1 s", "start one"],
    ),
    (
        "running",
        asked(running(), worker(unheard=3.0)),
        ["sent its last heartbeat 3 s ago; its lease lasts 57 s more"],
    ),
    (
        "slots_held",
        asked(job(), worker(running=2), held=[Held(12, 1, 14), Held(13, 1, 15)]),
        [
            "Every job running there waits for another job and holds its slot meanwhile: job 12",
            " for job 14, job 13 for job 15.",
            "enqueue the next step and return",
        ],
    ),
    (
        "limited",
        asked(job(), worker(), stream=stream(used=20)),
        ["It waits for 'openai': 20 of 20 are running.", "outlast limits set openai --running N"],
    ),
    (
        "throttled",
        asked(job(), worker(), stream=stream(used=1, tat=NOW + 2)),
        ["It waits for the rate of 'openai', 5/s.", "The next starts in 2 s."],
    ),
    ("in_line", asked(job(), worker(), stream=stream(blocked=False)), ["3 jobs before it of its"]),
    (
        "blocked",
        asked(
            job(state=State.BLOCKED, expires_at=NOW + 60),
            upstream=[
                upstream(3, task="fetch", state=State.RUNNING, number_left=4),
                *map(upstream, (4, 5, 6)),
                upstream(2, is_met=True),
            ],
        ),
        [
            "It waits for job 3 ('fetch', running) to complete, job 4, which no longer exists,",
            "and 1 other.",
            "It expires in 1 min",
            "`outlast why 3` explains the first of them.",
        ],
    ),
    (
        "upstream",
        asked(
            job(state=State.CANCELLED, ended_at=NOW - 5),
            upstream=[upstream(3, task="fetch", state=State.DEAD, has_failed=True)],
        ),
        [
            "It was cancelled 5 s ago",
            "since it waited for a job to complete: job 3 ('fetch', dead).",
            "`outlast requeue 3` runs that job again, and this one waits for it again.",
        ],
    ),
    ("in_line", asked(job(), worker(running=2), held=[Held(12, 1, 14), Held(13, 1)]), ["It"]),
    ("in_line", asked(job(), worker(running=2), held=[Held(12, 1, 14)]), ["It"]),
    ("in_line", asked(job(), worker(running=1), worker(2), held=[Held(12, 1, 14)]), ["It"]),
    (
        "running",
        asked(running(progress=Progress(waits_for=9)), worker()),
        ["It waits for the result of job 9, and holds its slot."],
    ),
    (
        "running",
        asked(running(), worker(), steps=[StepRow("cover", 7, NOW - 3, 9)]),
        ["Its step 'cover' was kept 3 s ago (", "): it is not called again."],
    ),
    (
        "dead",
        asked(
            job(state=State.DEAD, ended_at=NOW - 1),
            steps=[StepRow("cover", 7, NOW - 3, 9), StepRow("back", 7, NOW - 2, 9)],
        ),
        ["Its 2 kept steps are not called again; the last, 'back'", "keeping its steps"],
    ),
    (
        "failing",
        asked(job(), REFUSED, worker(2, tasks=[])),
        [
            "All workers that could take it fail to claim jobs: worker W-1.",
            "Worker W-1 could neither report ends nor claim jobs for 1 min 30 s: NotPermitted",
            "`outlast doctor`",
        ],
    ),
    ("in_line", asked(job(), REFUSED, worker(2)), ["Worker W-2 can take it"]),
    (
        "failing",
        asked(job(), REFUSED, worker(2, drain_requested=True)),
        ["No worker that could take it claims jobs: workers W-1, W-2 fail or are draining."],
    ),
    (
        "running",
        asked(running(), worker(failing="checkpoints: StoreUnavailable: x", failing_since=NOW - 9)),
        ["Worker W-1 could not do all its duties for 9 s: StoreUnavailable: x."],
    ),
    (
        "completed",
        asked(job(state=State.COMPLETED, worker="W-1", started_at=NOW - 9, ended_at=NOW - 5)),
        ["completed 5 s ago (2029-12-31 23:59:55 UTC) on worker W-1, 4 s after its claim", "done"],
    ),
    (
        "cancelled",
        asked(job(state=State.CANCELLED, attempt_count=1, checkpoint="1"), attempts=[KILLED]),
        ["after 1 attempt", "as cancelled: it did not stop.", "`outlast requeue 7`", "checkpoint"],
    ),
    ("expired", asked(job(state=State.CANCELLED, ended_at=NOW - 5, expires_at=NOW - 6)),
     ["It expired 5 s ago", "it had not begun by 2029-12-31 23:59:54 UTC", "`outlast requeue 7`"]),
    (
        "dead",
        asked(
            job(state=State.DEAD, ended_at=NOW, attempt_count=5, failures=4),
            attempts=[FAILED, RELEASED],
        ),
        ["failures is used up (4, retries=3)", "Attempt 1 ended as signalled: the runner",
         "`outlast requeue 7`", "from the start"],
    ),
    (
        "dead",
        asked(job(state=State.DEAD, losses=11, key="k", attempt_count=11), key_holder=9),
        ["budget of losses", "at an unknown time", "its key 'k' belongs to job 9"],
    ),
    (
        "dead",
        asked(job(state=State.DEAD, attempt_count=1)),
        ["a retry could not help (Dead, dead_on, retry_on)"],
    ),
    (
        "scheduled",
        asked(
            job(attempt_count=37, waiting=True, run_at=NOW + 600), worker(), attempts=[UNDECODABLE]
        ),
        ["could not be decoded 37 times in a row, last by release 2026.1: no task render."],
    ),
    (
        "scheduled",
        asked(
            job(attempt_count=1, waiting=True, run_at=NOW + 600), worker(),
            attempts=[msgspec.structs.replace(UNDECODABLE, repeats=1)],
        ),
        ["It could not be decoded, last by release 2026.1: no task render."],
    ),
    (
        "in_line",
        asked(
            job(attempt_count=1998), worker(),
            attempts=[msgspec.structs.replace(RELEASED, outcome="snoozed", repeats=1998)],
        ),
        ["It was snoozed 1998 times in a row."],
    ),
    (
        "running",
        asked(
            running(
                policy=Policy(timeout=60.0, stall_timeout=30.0),
                hard_deadline=NOW + 48,
                progress=Progress(0.4, "counting", "commit 400"),
            ),
            worker(),
        ),
        ["Attempt 2 (token 72) has been running for 12 s on worker W-1 (h1)",
         "sent its last heartbeat 1 s ago",
         "its lease lasts 59 s more", "It last reported 40%, counting: commit 400.",
         "48 s of its timeout of 1 min are left.", "neither reports nor saves for 30 s"],
    ),
    ("running", asked(running(), worker(drain_requested=True)), ["no timeout", "is draining"]),
    (
        "stopping",
        asked(running(cancel_requested=True), worker()),
        ["asked to stop, and has not stopped yet", "cancelled once it stops"],
    ),
    (
        "overdue",
        asked(running(policy=Policy(timeout=5.0), hard_deadline=NOW - 7), worker()),
        ["Its timeout of 5 s ran out 7 s ago", "any other worker does"],
    ),
    (
        "silent",
        asked(running(), worker(unheard=70.0)),
        ["that worker has not been heard from for 1 min 10 s", "1 min", "Any live worker"],
    ),
    (
        "orphaned",
        asked(running(), worker(status=WorkerStatus.LOST, stopped_at=NOW - 9, cause="lock free")),
        ["worker is lost, as of 9 s ago (lock free)", "an orphan", "No worker is alive: start one"],
    ),
    (
        "orphaned",
        asked(running(), worker(2)),
        ["no longer known to the store", "Worker W-2 returns it"],
    ),
    (
        "scheduled",
        asked(job(waiting=True, run_at=NOW + 90), worker()),
        ["It is due in 1 min 30 s, at 2030-01-01 00:01:30 UTC.", "A worker takes it when"],
    ),
    (
        "scheduled",
        asked(job(waiting=True, run_at=NOW + 90)),
        ["No worker is alive", "Start a worker"],
    ),
    (
        "retrying",
        asked(
            job(waiting=True, run_at=NOW + 4, failures=1, attempt_count=1),
            worker(),
            attempts=[FAILED],
        ),
        ["Attempt 1 ended as signalled", "failed 1 time (3 allowed)", "Attempt 2 is due in 4 s"],
    ),
    (
        "retrying",
        asked(job(waiting=True, run_at=NOW + 4, failures=3, attempt_count=3), worker()),
        ["failed 3 times (3 allowed)", "Its next failure is its last.", "Attempt 4 is due in 4 s"],
    ),
    (
        "suspect",
        asked(job(solo=1, losses=1), worker(), attempts=[FAILED], incident=[3, 5]),
        ["shared a process that died with jobs 3, 5, so it runs alone in a runner",
         "it has a spare runner"],
    ),
    (
        "suspect",
        asked(job(solo=2, waiting=True, run_at=NOW + 4), worker()),
        ["alone in a whole worker", "is due in 4 s"],
    ),
    ("no_workers", asked(job(), worker(unheard=61.0)), ["was not heard from for a whole lease"]),
    (
        "no_workers",
        asked(job(), ASLEEP_ONE),
        ["is awake: worker W-1 wakes within 1 min 30 s.", "Nothing needs to be"],
    ),
    (
        "no_workers",
        asked(job(), worker(status=WorkerStatus.STOPPED)),
        ["No worker is alive.", "whose application has the task 'render'"],
    ),
    (
        "unservable",
        asked(job(), worker(tasks=["mail"]), worker(2, tasks=[])),
        ["No live worker knows the task 'render'; alive: workers W-1, W-2.", "an alias"],
    ),
    (
        "lacks_tags",
        asked(job(), worker(tasks=["mail"], lacks={"render": ["gpu"]})),
        ["No worker that knows the task 'render' has the tag 'gpu'", "Start a worker"],
    ),
    (
        "lacks_tags",
        asked(job(), worker(lacks={"render": [*"gfedcba"]})),
        ["all of the tags 'a', 'b', 'c', 'd', 'e', 'f', 'g'.", "has all of the tags 'a', 'b'"],
    ),
    (
        "queue_not_served",
        asked(job(), worker(queues=["fast"]), worker(2, tasks=[], queues=["slow"])),
        ["No worker that knows the task 'render' serves the queue 'slow'", "W-1 knows the task.",
         "--queues slow"],
    ),
    (
        "draining",
        asked(job(), worker(status=WorkerStatus.DRAINING), worker(2, drain_requested=True)),
        ["All workers that could take it are draining: workers W-1, W-2.", "Start a worker"],
    ),
    (
        "in_line",
        asked(job(), worker(), worker(2, running=1), before=41),
        ["due for 30 s, with 41 jobs before it", "Workers W-1, W-2 can take it and run 4 attempts",
         "after the jobs before it"],
    ),
    (
        "in_line",
        asked(job(), worker(queues=["slow"], running=1), before=PLACE_MAX),
        ["800 or more jobs before it", "Worker W-1 can take it and runs 1 attempt"],
    ),
    ("in_line", asked(job(), worker()), ["nothing before it in its queue"]),
    (
        "paused",
        asked(
            job(queue="a b"), pauses=[pause("queue", "a b", paused_by="ada", reason="it burns.")]
        ),
        ["The queue 'a b' has been paused for 1 min 30 s (since ", ") by ada: it burns.",
         "-> `outlast resume queue 'a b'` lets it start again."],
    ),
    ("paused", asked(job(), worker(), pauses=[pause("task", "render")]),
     ["The task 'render' has been paused", "`outlast resume task render`"]),
    ("paused", asked(job(solo=1, tenant="acme"), worker(), pauses=[pause("tenant", "acme")]),
     ["The tenant 'acme' has been paused"]),
    ("paused", asked(job(), worker(), pauses=[pause("all")]),
     ["Everything has been paused", "-> `outlast resume all`"]),
    ("scheduled", asked(job(waiting=True, run_at=NOW + 60), worker(), pauses=[pause("all")]),
     ["It is due in 1 min", "Everything has been paused", "-> `outlast resume all`"]),
    ("in_line", asked(job(), worker(), pauses=[pause("queue", "other")]), ["It has been due"]),
]  # fmt: skip


POSITIONS = {case[0] for case in CASES}


@each_case(("position", "answer", "words"), CASES)
def test_a_job_is_explained(position: str, answer: Explanation, words: list[str]) -> None:
    assert answer.position == position
    for each in words:
        assert each in said(answer), said(answer)
    assert answer.sentences
    assert answer.moves


def test_every_position_has_an_example_here_and_a_row_in_the_docs() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "diagnose.md").read_text()
    (table,) = re.findall(r"^\| position \|.*\n((?:\|.*\n)+)", docs, re.MULTILINE)
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == POSITIONS


@pytest.mark.parametrize(
    ("outcome", "fields", "first"),
    [
        ("snoozed", {}, "It has been due"),  # a poller, or a parent whose children have ended
        ("released", {}, "It has been due"),
    ],
)
def test_the_first_sentence_says_why_a_job_waits_that_came_back_uncharged(
    outcome: str, fields: dict[str, Any], first: str
) -> None:
    times = msgspec.structs.replace(RELEASED, outcome=outcome, repeats=3, message="snooze for 9 s")
    answer = asked(job(attempt_count=3, **fields), worker(), attempts=[times])
    assert answer.sentences[0].startswith(first), answer.sentences


def test_a_job_of_a_schedule_says_first_for_which_tick_it_is() -> None:
    policy = Policy(schedule="nightly", tick=NOW - 60)
    answer = asked(job(policy=policy), worker())
    assert answer.sentences[0] == (
        "The schedule 'nightly' has enqueued it for its tick of 2029-12-31 23:59:00 UTC."
    )
    document = why_document(job(policy=policy), answer)
    assert (document["schedule"], document["tick"]) == ("nightly", "2029-12-31T23:59:00Z")


def test_the_document_has_stable_names() -> None:
    answer = asked(job(), worker())
    document = why_document(job(), answer)
    assert set(document) == {
        "schema", "id", "task", "queue", "state",
        "position", "sentences", "moves", "schedule", "tick",
    }  # fmt: skip
    assert document["position"] == "in_line"
    json.dumps(document)


TEXTS = st.text(max_size=30)
TIMES = st.none() | st.floats(allow_nan=False)
SOME = st.floats(allow_nan=False)
NUMBERS = st.integers(min_value=0, max_value=PLACE_MAX)
ROWS = st.builds(
    job,
    task=TEXTS,
    queue=st.sampled_from(["slow", "fast"]),
    state=st.sampled_from(State),
    attempt_count=NUMBERS,
    failures=NUMBERS,
    losses=NUMBERS,
    token=st.none() | NUMBERS,
    waiting=st.booleans(),
    run_at=SOME,
    worker_id=st.none() | st.just(1),
    worker=st.none() | TEXTS,
    key=st.none() | TEXTS,
    started_at=TIMES,
    ended_at=TIMES,
    hard_deadline=TIMES,
    cancel_requested=st.booleans(),
    progress=st.none() | st.builds(Progress, st.none() | st.floats(), st.none() | TEXTS, TEXTS),
    solo=st.integers(0, 2),
    policy=st.builds(Policy, timeout=TIMES, stall_timeout=TIMES),
)
WORKERS = st.builds(
    worker,
    status=st.sampled_from(WorkerStatus),
    name=TEXTS,
    queues=st.lists(st.sampled_from(["slow", "fast"]), max_size=2),
    tasks=st.lists(TEXTS, max_size=2),
    lacks=st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2), max_size=2),
    heartbeat_at=SOME,
    unheard=SOME,
    lease=st.floats(min_value=0.1, max_value=1e9),
    lease_expires_at=SOME,
    stopped_at=TIMES,
    cause=st.none() | TEXTS,
    drain_requested=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, phases=set(Phase) - {Phase.explain})
@given(ROWS, st.lists(WORKERS, max_size=3), NUMBERS, st.sampled_from([[], [FAILED, RELEASED]]))
def test_every_row_gets_an_explanation(row, workers, number, attempts) -> None:
    place = Place(before=number)
    about = JobDetails(row=row, attempts=attempts, workers=workers, place=place, now=NOW)
    answer = why(about)
    assert answer.position in POSITIONS
    assert answer.sentences
    assert answer.moves
    assert not set("\x00\x1b\n\u202e") & set(said(answer))
    json.dumps(why_document(row, answer))
