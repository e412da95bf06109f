"""The documents for people and programs: the names in them are a contract."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from outlast.insight.availability import Served, phase_of
from outlast.insight.documents import error_of, job_document, workers_document
from outlast.model.crash import Crash, CrashKind, MemoryEvidence, Progress
from outlast.model.job import State
from outlast.store.rows import AttemptRow, StoredJob, WorkerStatus
from tests.cases import each_case
from tests.unit.insight.rows_kit import ATTEMPT, WORKER, job, worker

ROW = job(
    task="mail",
    queue="q",
    state=State.RUNNING,
    priority=5,
    attempt_count=2,
    failures=1,
    token=71,
    args='{"to":"a\\u0000"}',
    run_at=0.0,
    enqueued_at=0.5,
    worker_id=3,
    worker="w-2",
    host="h",
    key="k",
    tenant="t",
    started_at=1_893_456_000.25,
    progress=Progress(0.4, "counting", "commit 400"),
    checkpoint='{"commit":400}',
)
CLOSED = AttemptRow(
    job_id=7,
    token=70,
    number=1,
    outcome="signalled",
    charge="failure",
    started_at=1.0,
    ended_at=2.0,
    worker="w-1",
    host="h",
    pid=4711,
    message="SIGKILL",
    crash=Crash(kind=CrashKind.SIGNALLED, message="SIGKILL", signal="SIGKILL"),
)


MAIL = Served([worker(tasks=["mail"])])


def row(**changes: Any) -> StoredJob:
    return msgspec.structs.replace(ROW, **changes)


@each_case(
    ("changes", "phase"),
    [
        ({"state": State.QUEUED, "failures": 0}, "queued"),
        ({"state": State.QUEUED}, "queued"),
        ({"state": State.QUEUED, "waiting": True}, "retrying"),
        ({"state": State.QUEUED, "waiting": True, "failures": 0, "losses": 1}, "retrying"),
        ({"state": State.QUEUED, "waiting": True, "failures": 0}, "scheduled"),
        ({"state": State.QUEUED, "task": "unknown"}, "unservable"),
        ({"state": State.QUEUED, "task": "unknown", "waiting": True}, "retrying"),
        ({"state": State.QUEUED, "solo": 1}, "suspect"),
        ({"state": State.QUEUED, "solo": 2, "waiting": True}, "suspect"),
        ({"state": State.QUEUED, "solo": 1, "task": "unknown"}, "unservable"),
        ({"solo": 1}, "running"),
        ({"task": "unknown"}, "running"),
        ({"state": State.DEAD}, "dead"),
        ({"state": State.COMPLETED}, "completed"),
        ({"state": State.CANCELLED}, "cancelled"),
    ],
)
def test_a_phase_describes_the_state_for_people(changes, phase):
    assert phase_of(row(**changes), MAIL) == phase


def test_a_queue_that_no_worker_serves_makes_its_jobs_unservable():
    served = Served([worker(queues=["other"], tasks=["mail"]), worker(tasks=["letter"])])
    queued = row(state=State.QUEUED, failures=0)
    assert phase_of(queued, served) == "unservable"
    assert phase_of(msgspec.structs.replace(queued, queue="other"), served) == "queued"
    assert phase_of(msgspec.structs.replace(queued, task="letter"), served) == "queued"


def test_without_what_is_served_nothing_is_called_unservable():
    assert phase_of(row(state=State.QUEUED, task="unknown")) == "queued"


def test_the_attempts_are_the_closed_ones_and_the_one_that_runs():
    closed, running = job_document(ROW, [CLOSED])["attempts"]
    assert set(closed) >= ATTEMPT
    assert set(closed) == set(running)
    assert (closed["token"], closed["outcome"], closed["charged"]) == (70, "signalled", "failure")
    assert closed["crash"] == {"kind": "signalled", "message": "SIGKILL", "signal": "SIGKILL"}
    assert (running["token"], running["number"], running["worker"]) == (71, 2, "w-2")
    assert (running["outcome"], running["charged"], running["crash"]) == ("running", None, None)


def test_the_evidence_of_memory_is_shown_unchanged():
    seen = MemoryEvidence(source="cgroup", oom_kills_before=0, oom_kills_after=1)
    crash = Crash(kind=CrashKind.OUT_OF_MEMORY, memory=seen)
    ended = msgspec.structs.replace(CLOSED, crash=crash)
    (shown, _) = job_document(ROW, [ended])["attempts"]
    told = {"source": "cgroup", "oom_kills_before": 0, "oom_kills_after": 1}
    assert shown["crash"] == {"kind": "out_of_memory", "memory": told}


@each_case("state", [State.QUEUED, State.DEAD, State.CANCELLED])
def test_an_attempt_that_was_closed_is_not_shown_twice(state):
    ended = row(state=state, token=70)
    assert len(job_document(ended, [CLOSED])["attempts"]) == 1


def test_a_job_that_never_ran_has_no_attempts_and_no_error():
    fresh = row(state=State.QUEUED, token=None, attempt_count=0)
    document = job_document(fresh, [])
    assert (document["attempts"], document["error"]) == ([], None)


def test_a_damaged_value_is_shown_as_it_is():
    assert job_document(row(result="{broken"), [])["result"] == "{broken"


def test_workers_are_shown_with_all_that_the_contract_names():
    row = worker(3, status=WorkerStatus.DRAINING, lock_path="/run/w-2.lock")
    document = workers_document([row])
    (shown,) = document["workers"]
    assert set(shown) >= WORKER
    assert (shown["status"], shown["presence"]) == ("draining", "lock_file")
    assert shown["presence_off"] is None
    json.dumps(document)


@each_case(("outcome", "said"), [("dead", "no such page"), ("error", "error: no such page")])
def test_the_error_of_a_dead_job_does_not_say_dead_again(outcome: str, said: str):
    last = msgspec.structs.replace(CLOSED, outcome=outcome, message="no such page")
    assert error_of(row(state=State.DEAD), last) == said
