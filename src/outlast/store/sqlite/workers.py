"""Keeps workers' rows and their beats, and gives back the jobs of workers that are gone.

Plain functions of a cursor; only the beat can do without the write lock (sql/workers.sql).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import OutcomeKind, Transition, as_applied
from outlast.store.columns import orphan_of, policy_of, struct_of
from outlast.store.lockfile import LockFile, place_in, read_beat, written_at
from outlast.store.protocol import OVERDUE_MAX
from outlast.store.rows import WorkerStatus
from outlast.store.sqlite.exchange import apply, cancels_of, worker_status
from outlast.store.sqlite.inspector import fetch
from outlast.store.sqlite.lanes import draw
from outlast.store.sqlite.schedules import next_tick_in
from outlast.store.sqlite.statements import statements
from outlast.store.stacks import read_requests
from outlast.store.statements import Row
from outlast.store.values import (
    Beat,
    Failing,
    LockIdentity,
    NewWorker,
    Orphan,
    OverdueAttempt,
    Registered,
    Snapshot,
    WorkerRef,
    WorkerSeen,
    line_of,
)

_PAUSES = statements("pauses")
_WORKERS = statements("workers")
_RECLAIM = statements("reclaim")
SHOWN_SHARE = 1 / 6  # of the lease: for so long a beat stands on the row, 10 s by default


# ---------------------------------------------------------------------------- registration


def register(cursor: Cursor, now: float, new: NewWorker) -> Registered:
    raise_tokens(cursor, now, new.token_seen)
    if (found := _made_before(cursor, now, new)) is not None:
        return found
    worker_id = draw(cursor, "worker", 1)[0]
    values = msgspec.structs.asdict(new) | {
        "id": worker_id,
        "now": now,
        "queues": json.dumps(new.queues),
        "tasks": json.dumps(new.tasks),
        "tags": json.dumps(new.tags),
        "lacks": json.dumps(new.lacks),
    }
    del values["token_seen"], values["succeeds"]
    replaced = 0
    if new.instance is not None and new.succeeds:
        before = {"now": now, "instance": new.instance}
        replaced = cursor.execute(_WORKERS["replace"], before).rowcount
    cursor.execute(_WORKERS["wake"], {"name": new.name})
    cursor.execute(_WORKERS["register"], values)
    return Registered(worker_id, 1, new.registration, replaced)


def _made_before(cursor: Cursor, now: float, new: NewWorker) -> Registered | None:
    shown = _newest(0, new.lock_path, new.lock_device, new.lock_inode)
    values = {"registration": new.registration, "floor": shown, "now": now}
    row = cursor.execute(_WORKERS["again"], values).fetchone()
    return None if row is None else Registered(row[0], row[1], new.registration)


def raise_tokens(cursor: Cursor, now: float, above: int) -> None:
    cursor.execute(_WORKERS["raise"], {"now": now, "above": above})


def reconnect(cursor: Cursor, now: float, me: WorkerRef, token_seen: int) -> WorkerRef | None:
    raise_tokens(cursor, now, token_seen)
    row = cursor.execute(_WORKERS["reconnect"], (me.worker_id, me.registration)).fetchone()
    return None if row is None else WorkerRef(me.worker_id, row[0], me.registration)


def set_status(
    cursor: Cursor, now: float, me: WorkerRef, status: WorkerStatus, *, asleep: float | None = None
) -> bool:
    values = {"status": status.value, "now": now, "asleep": asleep, **_whose(me)}
    return cursor.execute(_WORKERS["set_status"], values).rowcount == 1


def announce(
    cursor: Cursor,
    _: float,
    me: WorkerRef,
    tasks: Sequence[str],
    lacks: Mapping[str, Sequence[str]],
) -> None:
    values = {"tasks": json.dumps(list(tasks)), "lacks": json.dumps(dict(lacks)), **_whose(me)}
    cursor.execute(_WORKERS["announce"], values)


def acknowledge_pauses(cursor: Cursor, _: float, me: WorkerRef, version: str) -> None:
    cursor.execute(_PAUSES["acknowledge_pauses"], {"acknowledged_pauses": version, **_whose(me)})
    cursor.execute(_PAUSES["free_kept"])


def presence_off(cursor: Cursor, _: float, me: WorkerRef, reason: str) -> None:
    cursor.execute(_WORKERS["presence_off"], {"reason": reason, **_whose(me)})


def tell_wakeup(cursor: Cursor, _: float, me: WorkerRef, words: str) -> None:
    cursor.execute(_WORKERS["tell_wakeup"], {"words": words, **_whose(me)})


def _whose(me: WorkerRef) -> dict[str, Any]:
    return {"id": me.worker_id, "registration": me.registration}


def tell_failing(cursor: Cursor, now: float, me: WorkerRef, failing: Failing | None) -> None:
    values = {**_whose(me), "now": now, "failing": None, "seconds": None}
    if failing is not None:
        values |= {"failing": line_of(failing), "seconds": failing.seconds}
    cursor.execute(_WORKERS["tell_failing"], values)


# --------------------------------------------------------------------------------- beats


def beat_by_file(
    cursor: Cursor, now: float, me: WorkerRef, lock: LockFile
) -> tuple[Beat, bool] | None:
    """Beat through the lock file; return also whether to show it on the row. None: it is not the
    file on the row.

    The file comes first: a reap that has not seen this beat on it is seen on the row. A counter
    that the row has raised beyond the file is raised here, or the beat would not be seen.
    """
    beaten = _beaten(lock)
    row = cursor.execute(_WORKERS["beat_seen"], _whose(me)).fetchone()
    if row is None:
        return Beat(renewed=False), False
    status, device, inode, drain, count, stacks, beat_at, lease = row
    if status not in {"active", "draining"}:
        return Beat(renewed=False), False
    if (device, inode) != (lock.device, lock.inode) or not beaten:
        return None
    if count >= lock.count and not _beaten(lock, above=count):
        return None
    is_fresh = 0.0 <= now - beat_at < lease * SHOWN_SHARE
    return _renewed(cursor, me, drain, stacks), not is_fresh


def _renewed(cursor: Cursor, me: WorkerRef, drain: int, stacks: str | None) -> Beat:
    return Beat(True, cancels_of(cursor, me.worker_id), bool(drain), read_requests(stacks))


def _beaten(lock: LockFile, above: int = 0) -> bool:
    if lock.valid():
        with suppress(OSError):
            lock.beat(above)
            return True
    return False


def show_beat(cursor: Cursor, now: float, me: WorkerRef, beat: int) -> None:
    cursor.execute(_WORKERS["show_beat"], {"beat": beat, "now": now, **_whose(me)})


def beat_by_row(cursor: Cursor, now: float, me: WorkerRef, floor: int) -> Beat:
    """Beat above the counter that the file has shown."""
    values = {"floor": floor, "now": now, **_whose(me)}
    row = cursor.execute(_WORKERS["heartbeat"], values).fetchone()
    return Beat(renewed=False) if row is None else _renewed(cursor, me, *row)


def observe(cursor: Cursor, now: float, slack: float, locks: Path) -> Snapshot:
    """``locks``: the directory of the lock files."""
    return Snapshot(
        workers=[_seen(row, now, locks) for row in fetch(cursor, "workers", "observe", {})],
        orphans=bool(orphans(cursor, now, 1)),
        overdue=bool(overdue(cursor, now, slack, 1)),
        now=now,
        next_tick=next_tick_in(cursor, now),
        pauses=str(cursor.execute(_PAUSES["version"]).fetchone()[0]),
    )


def _seen(row: Row, now: float, locks: Path) -> WorkerSeen:
    path, *place = place_in(locks, row["lock_path"]), row["lock_device"], row["lock_inode"]
    shown = at = None
    if path is not None:
        shown, at = read_beat(path, *place), written_at(path, *place)
    beats_every = row["heartbeat"]
    if path is not None and shown is None:  # its row alone shows this observer its beats
        beats_every += row["lease"] * SHOWN_SHARE
    return struct_of(
        WorkerSeen,
        row,
        beat=max(row["beat"], shown or 0),
        heartbeat=beats_every,
        lock_path=path,
        age=now - max(row["heartbeat_at"], at or 0.0),
    )


def _newest(beat: int, path: str | None, device: int | None, inode: int | None) -> int:
    return beat if path is None else max(beat, read_beat(path, device, inode) or 0)


def tell_gone(cursor: Cursor, _: float, lock: LockIdentity, begun: int | None) -> int:
    values = {**msgspec.structs.asdict(lock), "begun": begun}
    return cursor.execute(_WORKERS["tell_gone"], values).rowcount


def reap(
    cursor: Cursor, now: float, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE
) -> bool:
    row = cursor.execute(_WORKERS["beat_of"], (gone.worker_id,)).fetchone()
    if row is None:
        return False
    if _newest(row[0], gone.lock_path, gone.lock_device, gone.lock_inode) != gone.beat:
        return False
    values = {"now": now, "cause": cause.value, "begun": gone.begun, "id": gone.worker_id}
    return cursor.execute(_WORKERS["reap"], values).rowcount == 1


# -------------------------------------------------------------- jobs without their worker


def reconcile(
    cursor: Cursor, now: float, me: WorkerRef, held: Collection[int]
) -> list[tuple[int, int]]:
    if worker_status(cursor, me) not in {"active", "draining"}:
        return []
    ends = [
        Transition(
            **row,
            state=State.QUEUED,
            outcome=OutcomeKind.RELEASED.value,
            charge=Charge.NONE,
            message="its worker did not hold it",
            began=False,
        )
        for row in fetch(cursor, "reclaim", "held_by", {"id": me.worker_id})
        if row["token"] not in held
    ]
    apply(cursor, now, ends)
    return [(end.job_id, end.token) for end in ends]


def orphans(cursor: Cursor, now: float, limit: int) -> list[Orphan]:
    rows = fetch(cursor, "reclaim", "orphans", {"now": now, "limit": limit})
    return [orphan_of(row) for row in rows]


def facts_of(
    cursor: Cursor, now: float, pairs: Collection[tuple[int, int]], limit: int
) -> list[Orphan]:
    each = ({"now": now, "job_id": job_id, "token": token} for job_id, token in pairs)
    found = (row for values in each for row in fetch(cursor, "reclaim", "facts", values))
    return [orphan_of(row) for row in islice(found, limit)]


def overdue(
    cursor: Cursor, now: float, slack: float, limit: int = OVERDUE_MAX
) -> list[OverdueAttempt]:
    values = {"now": now, "slack": slack, "limit": limit}
    rows = cursor.execute(_RECLAIM["overdue"], values).fetchall()
    return [
        OverdueAttempt(job_id, token, worker_id, seconds, policy_of(text))
        for job_id, token, worker_id, seconds, text in rows
    ]


def superseded(cursor: Cursor, _: float, attempts: Collection[tuple[int, int]]) -> list[int]:
    is_current = _RECLAIM["current"]
    return [pair[1] for pair in attempts if cursor.execute(is_current, pair).fetchone() is None]


def close_orphans(cursor: Cursor, now: float, decided: Sequence[Transition]) -> list[Transition]:
    """Return the transitions that were applied to orphans that are still the same attempt."""
    applied = (one for one in decided if apply(cursor, now, [one]))
    return [as_applied(one, _state_of(cursor, one.job_id)) for one in applied]


def _state_of(cursor: Cursor, job_id: int) -> State:
    """A missing row was cancelled by the reclaim, and kept for no time."""
    row = cursor.execute(_RECLAIM["state"], (job_id,)).fetchone()
    return State.CANCELLED if row is None else State(row[0])
