"""The verbs of the store on the production code: the functions and statements of SQLite.

A ``Db`` is written into an in-memory file with the real schema, the verb runs in a transaction,
what the tables hold then is the next ``Db``, and the transaction is rolled back. The next state of
a job is not decided here: an ``End`` comes from ``model.lifecycle.decide``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from outlast.model.crash import Charge
from outlast.model.job import Policy, State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store import acts
from outlast.store.rows import WorkerStatus
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import schema as sqlite_schema
from outlast.store.sqlite import workers as sqlite_workers
from outlast.store.sqlite.acts import act
from outlast.store.values import ClaimRequest, LockIdentity, NewWorker, Save, WorkerRef, WorkerSeen
from tests.model.state import LEFT, LOST, SILENT, Db, End, Job, Me

T = TypeVar("T")
Claim = tuple[int, int, int]  # job, token, and the checkpoint that is handed on
LIVE = {"active", "draining"}
TASK, INSTANCE, LOCK = "t", "instance-{}", "/locks/of-{}"
NOW, EPOCH = 0.0, 5  # tokens are at least the microseconds since 1970
PLACED = 1_000.0  # seconds before 1970 from which the places of suspects count
_GONE = {LOST: ("lost", "lock_file"), SILENT: ("lost", "silence"), LEFT: ("stopped", None)}
_OWNER = {cause: owner for owner, cause in _GONE.items()}

_JOB = """INSERT INTO outlast_jobs (id, task, queue, state, position, run_at, enqueued_at, args,
 policy, failures, losses, solo, incident, token, worker_id, completed_by, started_at,
 ended_at, cancel_requested, checkpoint, checkpoint_number, attempt_count)
 VALUES (?, 't', 'q', ?, ?, ?, 0, '{}', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"""
_ROW = """INSERT INTO outlast_workers (id, name, host, pid, boot_id, status, epoch, heartbeat,
 lease, instance, started_at, heartbeat_at, lease_expires_at, stopped_at, cause, lock_path,
 lock_device, lock_inode)
 VALUES (?, 'w', 'h', 1, 'b', ?, ?, 1, 3, ?, 0, 0, 0, ?, ?, '/locks/of-' || ?, 1, ?)"""
_ATTEMPT = """INSERT INTO outlast_attempts
 (token, job_id, number, outcome, charge, started_at, ended_at) VALUES (?, ?, 1, ?, 'none', 0, 0)"""
_JOBS = """SELECT j.token, j.position, j.run_at, j.state, j.worker_id, w.status, w.cause,
 j.failures, j.losses, j.cancel_requested, j.solo, j.incident, j.checkpoint, j.checkpoint_number
 FROM outlast_jobs AS j LEFT JOIN outlast_workers AS w ON w.id = j.worker_id ORDER BY j.id"""
_ROWS = "SELECT instance, status FROM outlast_workers WHERE status IN ('active', 'draining')"
_CLOSED = "SELECT token, job_id - 1, outcome FROM outlast_attempts ORDER BY token, job_id, outcome"
_SEQUENCES = "UPDATE outlast_sequences SET value = CASE name WHEN 'token' THEN ? ELSE 100 END"


class Desk:
    """The verbs; not for use by two threads. ``top`` is the highest token ever drawn."""

    def __init__(self, policy: Policy) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._cursor = self._connection.cursor()
        self._policy = msgspec.json.encode(policy).decode()
        self._cursor.execute("BEGIN")
        sqlite_schema.migrate(self._cursor, 0.0)
        self._cursor.execute("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # -- the verbs

    def claim(self, db: Db, me: Me, solo: int, top: int) -> tuple[Db, tuple[Claim, ...]]:
        room = ClaimRequest(tasks=[TASK], limit=1, solo=solo)
        db, reply = self._do(
            db, lambda c: sqlite_exchange.exchange(c, NOW, _ref(me), [], [room]), top
        )
        return db, tuple(
            (each.job_id - 1, each.token, int(each.checkpoint or 0)) for each in reply.claimed
        )

    def hand_in(self, db: Db, end: End) -> tuple[Db, str]:
        unknown = WorkerRef(99, 1)
        ends = [_transition(end)]
        db, reply = self._do(db, lambda c: sqlite_exchange.exchange(c, NOW, unknown, ends, []))
        return db, reply.answers[0].value

    def close(self, db: Db, end: End) -> tuple[Db, str]:
        db, applied = self._do(
            db, lambda c: sqlite_workers.close_orphans(c, NOW, [_transition(end)])
        )
        return db, applied[0].state.value if applied else ""

    def complete_in(self, db: Db, job: int, token: int) -> tuple[Db, bool]:
        return self._do(db, lambda c: sqlite_jobs.complete(c, NOW, job + 1, token, None))

    def save(self, db: Db, job: int, token: int, number: int, value: int) -> tuple[Db, str]:
        save = Save(job + 1, token, number, str(value))
        db, answers = self._do(db, lambda c: sqlite_jobs.checkpoint(c, NOW, [save]))
        return db, answers[0].value

    def cancel(self, db: Db, job: int) -> tuple[Db, str]:
        db, told = self._do(db, lambda c: act(c, NOW, lambda it: acts.cancel(it, [job + 1])))
        return db, told[job + 1].value

    def requeue(self, db: Db, job: int) -> tuple[Db, str]:
        db, told = self._do(db, lambda c: act(c, NOW, lambda it: acts.requeue(it, [job + 1])))
        return db, told[job + 1].value

    def register(self, db: Db, slot: int, *, replaces: bool) -> tuple[Db, bool]:
        new = NewWorker(
            name="w", host="h", pid=1, boot_id="b", heartbeat=1.0, lease=3.0,
            instance=INSTANCE.format(slot), succeeds=replaces,
        )  # fmt: skip
        db, made = self._do(db, lambda c: sqlite_workers.register(c, NOW, new))
        return db, made.epoch == 1

    def reap(self, db: Db, slot: int, *, proven: bool) -> tuple[Db, bool]:
        seen = WorkerSeen(
            worker_id=slot + 1, name="w", host="h", boot_id="b", beat=0, heartbeat=1.0, lease=3.0
        )
        cause = DeathCause.LOCK_FILE if proven else DeathCause.PRESENCE
        return self._do(db, lambda c: sqlite_workers.reap(c, NOW, seen, cause))

    def tell_gone(self, db: Db, slot: int, *, live: bool) -> tuple[Db, bool]:
        row = slot + 1 if live else LOST
        lock = LockIdentity(boot_id="b", path=LOCK.format(row), device=1, inode=row)

        def act(cursor: sqlite3.Cursor) -> bool:
            sqlite_workers.tell_gone(cursor, NOW, lock, None)
            looks = sqlite_workers.observe(cursor, NOW, 0.0, Path()).workers
            told = [each for each in looks if each.told_gone]
            reaped = [sqlite_workers.reap(cursor, NOW, each, DeathCause.TETHER) for each in told]
            return any(reaped)

        return self._do(db, act)

    def set_status(self, db: Db, me: Me, status: str) -> tuple[Db, bool]:
        to = WorkerStatus(status)
        return self._do(db, lambda c: sqlite_workers.set_status(c, NOW, _ref(me), to))

    def reconnect(self, db: Db, me: Me) -> tuple[Db, bool]:
        db, again = self._do(db, lambda c: sqlite_workers.reconnect(c, NOW, _ref(me), 0))
        if again is not None:
            assert again.epoch == EPOCH + 1
        return db, again is not None

    def reconcile(self, db: Db, me: Me, held: Collection[int]) -> tuple[Db, tuple[int, ...]]:
        db, pairs = self._do(db, lambda c: sqlite_workers.reconcile(c, NOW, _ref(me), held))
        return db, tuple(sorted(token for _, token in pairs))

    # -- to and from the tables

    def _do(self, db: Db, verb: Callable[[sqlite3.Cursor], T], top: int = 50) -> tuple[Db, T]:
        cursor = self._cursor
        cursor.execute("BEGIN")
        try:
            self._write(db, top)
            answer = verb(cursor)
            return self._read(db), answer
        finally:
            cursor.execute("ROLLBACK")

    def _write(self, db: Db, top: int) -> None:
        cursor = self._cursor
        alive = [
            (slot + 1, status, EPOCH, INSTANCE.format(slot), None, None)
            for slot, status in enumerate(db.rows)
            if status
        ]
        gone = [
            (owner, status, EPOCH, None, 1.0, cause) for owner, (status, cause) in _GONE.items()
        ]
        cursor.executemany(_ROW, [(*row, row[0], row[0]) for row in [*alive, *gone]])
        cursor.executemany(_JOB, [self._columns(i, job) for i, job in enumerate(db.jobs, 1)])
        cursor.executemany(_ATTEMPT, [(token, job + 1, word) for token, job, word in db.closed])
        cursor.execute(_SEQUENCES, (top,))

    def _columns(self, job_id: int, job: Job) -> tuple[object, ...]:
        waits, runs = job.state == "queued", job.state == "running"
        return (
            job_id,
            job.state,
            job.place if waits and not job.solo else None,
            job.place - PLACED,
            self._policy,
            job.failures,
            job.losses,
            job.solo,
            job.incident or None,
            job.token or None,
            job.owner or None,
            9 if job.state == "completed" else None,
            1.0 if runs else None,
            None if waits or runs else 2.0,
            job.cancel,
            str(job.value) if job.value else None,
            job.saved,
        )

    def _read(self, before: Db) -> Db:
        cursor = self._cursor
        jobs = tuple(
            _job(row, old.kills)
            for row, old in zip(cursor.execute(_JOBS).fetchall(), before.jobs, strict=True)
        )
        status = dict(cursor.execute(_ROWS).fetchall())
        rows = tuple(status.get(INSTANCE.format(slot), "") for slot in range(len(before.rows)))
        return Db(jobs, rows, tuple(cursor.execute(_CLOSED).fetchall()))


def _job(row: tuple, kills: bool) -> Job:
    token, position, run_at, state, worker_id, status, cause, *counted = row
    failures, losses, cancel, solo, incident, value, saved = counted
    owner = 0
    if worker_id is not None:
        owner = worker_id if status in LIVE else _OWNER[_cause(status, cause)]
    place = (run_at + PLACED if solo else position) if state == "queued" else 0
    return Job(
        token=token or 0, place=place, state=state, owner=owner, failures=failures, losses=losses,
        cancel=bool(cancel), solo=solo, incident=incident or 0, value=int(value or 0),
        saved=saved, kills=kills,
    )  # fmt: skip


def _cause(status: str, cause: str | None) -> tuple[str, str | None]:
    """All proofs of a death are one here, and all that is none."""
    if cause is None:
        return status, None
    return status, "lock_file" if DeathCause(cause).proven else "silence"


def _ref(me: Me) -> WorkerRef:
    """A worker that is not live asks under a row that was lost, perhaps at that row's own epoch."""
    return WorkerRef(me.slot + 1 if me.live else LOST, EPOCH if me.current else EPOCH - 1)


def _transition(end: End) -> Transition:
    return Transition(
        job_id=end.job + 1,
        token=end.token,
        state=State(end.state),
        outcome=end.outcome,
        charge=Charge(end.charge),
        failures=end.failures,
        losses=end.losses,
        solo=end.solo,
        incident=end.incident or None,
        clears=end.clears or None,
    )
