"""The store as a value: its verbs, guard by guard. ``real.py`` is the same on SQLite.

Each verb is a pure function of a ``Db`` that returns the next one and the answer. The next state
of a job is not decided here: an ``End`` comes from ``model.lifecycle.decide``.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.model.state import LEFT, LOST, SILENT, Db, End, Job, Me

COMPLETED = {"completed", "completion_not_committed"}
LIVE = {"active", "draining"}
COHORT_MAX = 2

Claim = tuple[int, int, int]  # job, token, and the checkpoint that is handed on


class Desk:
    """The verbs. ``top`` is the highest token ever drawn."""

    def claim(self, db: Db, me: Me, solo: int, top: int) -> tuple[Db, tuple[Claim, ...]]:
        """Take the first of a line; of suspects, its cohort."""
        if not (me.live and me.current and db.rows[me.slot] == "active"):
            return db, ()
        line = [i for i, job in enumerate(db.jobs) if job.state == "queued" and job.solo == solo]
        line.sort(key=lambda index: db.jobs[index].place)
        if not line:
            return db, ()
        first, jobs, claims = db.jobs[line[0]], list(db.jobs), []
        for index in sorted(i for i in line if i == line[0] or _together(first, jobs[i]))[
            :COHORT_MAX
        ]:
            top += 1
            claims.append((index, top, jobs[index].value))
            jobs[index] = jobs[index]._replace(
                state="running", token=top, owner=me.slot + 1, place=0, saved=0
            )
        return db._replace(jobs=tuple(jobs)), tuple(claims)

    def hand_in(self, db: Db, end: End) -> tuple[Db, str]:
        """Write an end that is current; judge one that is not."""
        if _is_current(db, end.job, end.token):
            return _applied(db, end), "accepted"
        job = db.jobs[end.job]
        done = job.state == "completed" and job.token == end.token and end.outcome in COMPLETED
        same = (end.token, end.job, end.outcome) in db.closed
        return db, "already" if done or same else "refused"

    def close(self, db: Db, end: End) -> tuple[Db, str]:
        """Apply another worker's decision, if it is still the same attempt; return the state that
        the job is in then."""
        if not _is_current(db, end.job, end.token):
            return db, ""
        db = _applied(db, end)
        return db, db.jobs[end.job].state

    def complete_in(self, db: Db, job: int, token: int) -> tuple[Db, bool]:
        """Complete in the task's own transaction."""
        if not _is_current(db, job, token):
            return db, False
        return _with(db, job, state="completed", owner=0), True

    def save(self, db: Db, job: int, token: int, number: int, value: int) -> tuple[Db, str]:
        """Save a checkpoint: fenced, only forward; it forgives the losses."""
        if not _is_current(db, job, token):
            return db, "refused"
        row = db.jobs[job]
        if number <= row.saved:
            return db, "already"
        return _with(db, job, value=value, saved=number, losses=0), "accepted"

    def cancel(self, db: Db, job: int) -> tuple[Db, str]:
        """End a queued job, ask a running one."""
        state = db.jobs[job].state
        if state == "queued":
            return _with(db, job, state="cancelled", cancel=True, place=0), "cancelled"
        if state == "running":
            return _with(db, job, cancel=True), "requested"
        return db, "ended"

    def requeue(self, db: Db, job: int) -> tuple[Db, str]:
        """Revive a dead or cancelled job."""
        row = db.jobs[job]
        if row.state not in {"dead", "cancelled"}:
            return db, "completed" if row.state == "completed" else "not_ended"
        fresh = Job(token=row.token, place=_last(db, 0) + 1, value=row.value, saved=row.saved)
        jobs = list(db.jobs)
        jobs[job] = fresh._replace(kills=row.kills)
        return db._replace(jobs=tuple(jobs)), "requeued"

    def register(self, db: Db, slot: int, *, replaces: bool) -> tuple[Db, bool]:
        """Make a row; with ``replaces``, the one that is there is lost by it."""
        if replaces:
            db = self.gone(db, slot, LOST)
        return _status(db, slot, "active"), True

    def reap(self, db: Db, slot: int, *, proven: bool) -> tuple[Db, bool]:
        """Mark a worker lost."""
        return self.gone(db, slot, LOST if proven else SILENT), True

    def tell_gone(self, db: Db, slot: int, *, live: bool) -> tuple[Db, bool]:
        """Mark the row that a will names lost, if it lives; ``live``: it is this worker's own."""
        if not live or db.rows[slot] not in LIVE:
            return db, False
        return self.gone(db, slot, LOST), True

    def set_status(self, db: Db, me: Me, status: str) -> tuple[Db, bool]:
        """Move a live row to draining or stopped."""
        if not me.live or db.rows[me.slot] not in LIVE:
            return db, False
        if status == "stopped":
            return self.gone(db, me.slot, LEFT), True
        return _status(db, me.slot, status), True

    def reconnect(self, db: Db, me: Me) -> tuple[Db, bool]:
        """Raise the epoch of a live row."""
        return db, me.live and db.rows[me.slot] in LIVE

    def reconcile(self, db: Db, me: Me, held: Collection[int]) -> tuple[Db, tuple[int, ...]]:
        """Release own running jobs that the worker does not hold; return their tokens."""
        if not (me.live and me.current and db.rows[me.slot] in LIVE):
            return db, ()
        unheard = [
            (index, job)
            for index, job in enumerate(db.jobs)
            if job.owner == me.slot + 1 and job.token not in held
        ]
        for index, job in unheard:
            db = _applied(db, _released(index, job))
        return db, tuple(sorted(job.token for _, job in unheard))

    @staticmethod
    def gone(db: Db, slot: int, how: int) -> Db:
        """End a row: its running jobs become orphans."""
        jobs = tuple(job._replace(owner=how) if job.owner == slot + 1 else job for job in db.jobs)
        return _status(db._replace(jobs=jobs), slot, "")


def _is_current(db: Db, job: int, token: int) -> bool:
    return db.jobs[job].state == "running" and db.jobs[job].token == token


def _together(first: Job, other: Job) -> bool:
    same = (first.incident, first.cohort) == (other.incident, other.cohort)
    return first.solo == 1 and first.incident != 0 and same


def _with(db: Db, job: int, **fields: object) -> Db:
    jobs = list(db.jobs)
    jobs[job] = jobs[job]._replace(**fields)  # type: ignore[arg-type]
    return db._replace(jobs=tuple(jobs))


def _status(db: Db, slot: int, status: str) -> Db:
    rows = list(db.rows)
    rows[slot] = status
    return db._replace(rows=tuple(rows))


def _last(db: Db, solo: int) -> int:
    places = (job.place for job in db.jobs if job.state == "queued" and job.solo == solo)
    return max(places, default=0)


def _applied(db: Db, end: End) -> Db:
    if end.state == "completed":
        return _with(db, end.job, state="completed", owner=0)
    job = db.jobs[end.job]
    losses = job.losses + (end.charge == "loss")
    forgiven = end.state == "dead" and end.charge == "loss" and losses < end.losses  # unheard
    state = "queued" if forgiven else end.state
    if state == "queued" and job.cancel:
        state = "cancelled"
    place = _last(db, end.solo) + 1 if state == "queued" else 0
    suspected = {"solo": end.solo, "incident": end.incident, "cohort": end.cohort}
    counted = {"failures": end.failures, "losses": losses}
    db = _with(db, end.job, state=state, owner=0, place=place, **suspected, **counted)
    db = db._replace(closed=(*db.closed, (end.token, end.job, end.outcome)))
    return _cleared(db, end.clears) if end.clears else db


def _cleared(db: Db, incident: int) -> Db:
    for index, job in enumerate(db.jobs):
        if job.incident == incident and job.state == "queued" and job.solo == 1:
            place = _last(db, 0) + 1
            db = _with(db, index, solo=0, incident=0, cohort=0, place=place)
    return db


def _released(index: int, job: Job) -> End:
    counted = (job.failures, job.losses)
    suspected = (job.solo, job.incident, job.cohort)
    return End(job.token, index, "queued", "released", "none", *counted, *suspected)
