"""Rows of jobs, attempts and workers, for what is told about them."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.model.crash import Charge, Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.store.rows import AttemptRow, StoredJob, WorkerRow, WorkerStatus

NOW = 1_893_456_000.0


def names(text: str) -> set[str]:
    return set(text.split())


JOB = names(
    """id task queue state phase priority attempt_count failures losses token worker key tenant
    run_at enqueued_at expires_at reason meta keep labels started_at ended_at progress checkpoint
    args result solo"""
)
"""What programs find in the document of a job, at least; below, of an attempt and a worker."""
ATTEMPT = names("token number worker host pid outcome charged started_at ended_at crash")
WORKER = names(
    """id name host pid status queues tasks running heartbeat_at lease_expires_at started_at
    presence presence_off wakeup release"""
)
FAILED = AttemptRow(
    job_id=7,
    token=70,
    number=1,
    outcome="signalled",
    charge=Charge.FAILURE,
    started_at=NOW - 90,
    ended_at=NOW - 60,
    message="the runner was ended by SIGSEGV.",
    crash=Crash(kind=CrashKind.SIGNALLED, neighbours=[7, 3]),
)
RELEASED = msgspec.structs.replace(
    FAILED, token=71, number=2, outcome="released", charge=Charge.NONE, message="", crash=None
)
KILLED = msgspec.structs.replace(
    FAILED, outcome="cancelled", charge=Charge.NONE, message="it did not stop"
)


def job(**changes: Any) -> StoredJob:
    row = StoredJob(
        id=7,
        task="render",
        queue="slow",
        state=State.QUEUED,
        priority=0,
        attempt_count=0,
        failures=0,
        losses=0,
        token=None,
        waiting=False,
        args="{}",
        policy=Policy(),
        run_at=NOW - 30,
        enqueued_at=NOW - 30,
    )
    return msgspec.structs.replace(row, **changes)


def running(**changes: Any) -> StoredJob:
    values = {"state": State.RUNNING, "attempt_count": 2, "token": 72, "worker_id": 1}
    values |= {"worker": "W-1", "host": "h1", "started_at": NOW - 12}
    return job(**(values | changes))


def worker(number: int = 1, **changes: Any) -> WorkerRow:
    row = WorkerRow(
        id=number,
        name=f"W-{number}",
        host="h1",
        pid=1,
        boot_id="",
        status=WorkerStatus.ACTIVE,
        epoch=1,
        beat=1,
        heartbeat=2.0,
        lease=60.0,
        queues=[],
        tasks=["render"],
        running=3,
        started_at=NOW - 900,
        heartbeat_at=NOW - 1,
        lease_expires_at=NOW + 59,
        unheard=1.0,
    )
    return msgspec.structs.replace(row, **changes)
