"""Changes jobs outside the exchange: plain functions of a cursor, some of which also run on a
connection of the caller's own (sqlite/foreign.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.errors import BadData
from outlast.store.batches import share_the_rest
from outlast.store.keys import check_batch, make_replaceable, match_holder
from outlast.store.logs import LOGS_KEPT, JobLog, lines_text
from outlast.store.new_rows import OWN, SHARED, rest_of, values_of
from outlast.store.protocol import ENQUEUE_MAX
from outlast.store.sqlite.dependencies import check, depend
from outlast.store.sqlite.lanes import draw
from outlast.store.sqlite.pruning import forget
from outlast.store.sqlite.refusals import refuse
from outlast.store.sqlite.statements import statements
from outlast.store.stacks import Stack
from outlast.store.values import Answer, Enqueued, NewJob, Report, Save

_ENQUEUE = statements("enqueue")
_JOBS = statements("jobs")
_encode = msgspec.json.Encoder().encode
TEXT_MAX = 10_000_000  # characters; SQLite takes a text of 1e9 bytes


def complete(cursor: Any, now: float, job_id: int, token: int, result: str | None) -> bool:
    values = {"now": now, "result": result, "job_id": job_id, "token": token}
    if cursor.execute(_JOBS["complete"], values).rowcount == 1:
        return True
    if cursor.execute(_JOBS["is_kept"], values).fetchone()[0]:
        return False
    forget(cursor, [job_id])
    return True


# --------------------------------------------------------------------------------- enqueue


def enqueue(cursor: Cursor, now: float, jobs: Sequence[NewJob]) -> list[Enqueued]:
    return (enqueue_flow if any(job.after for job in jobs) else _store)(cursor, now, jobs)


def enqueue_flow(cursor: Cursor, now: float, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs, of which some may wait for others."""
    check(cursor, jobs)
    parts = range(0, len(jobs), ENQUEUE_MAX)
    stored = [each for n in parts for each in _store(cursor, now, jobs[n : n + ENQUEUE_MAX])]
    depend(cursor, jobs, stored)
    return stored


def _store(cursor: Cursor, now: float, jobs: Sequence[NewJob]) -> list[Enqueued]:
    if len(jobs) > ENQUEUE_MAX:
        raise ValueError(f"{len(jobs)} jobs in one call: at most {ENQUEUE_MAX}")
    if not jobs:
        return []
    with_keys = [job.key for job in jobs].count(None) < len(jobs)
    if with_keys and any(job.on_key is not None for job in jobs):
        check_batch(jobs)
        return [_enqueue_or_replace(cursor, now, job) for job in jobs]
    job_id, position = _draw_places(cursor, len(jobs))
    if with_keys:
        check_batch(jobs)
        free_keys(cursor, now, [job.key for job in jobs])
        taken = [_holder(cursor, job) for job in jobs]  # all keys first: all or none is stored
        return [
            found or _enqueue_one(cursor, job_id + n, position + n, now, job)
            for n, (job, found) in enumerate(zip(jobs, taken, strict=True))
        ]
    if len(jobs) == 1:
        return [_enqueue_one(cursor, job_id, position, now, jobs[0])]
    for alike in _alike(jobs):
        first = jobs[alike[0]]
        row = _row(job_id, position, now, first)
        if first.stream is None:
            cursor.execute(_ENQUEUE["insert"], row | {"args": _args(jobs, alike)})
        else:
            args = _limited_args(jobs, alike, now)
            cursor.execute(_ENQUEUE["insert_limited"], row | {"args": args})
        _label(cursor, first, *(job_id + n for n in alike))
    _arrive(cursor, now, jobs)
    return [Enqueued(each, True) for each in range(job_id, job_id + len(jobs))]


def _draw_places(cursor: Cursor, count: int) -> tuple[int, int]:
    """Return the first of consecutive ids, and of positions."""
    drawn = dict(map(tuple, cursor.execute(_JOBS["draw_places"], (count,)).fetchall()))
    return drawn[1] - count + 1, drawn[0] - count + 1


def free_keys(cursor: Any, now: float, keys: Sequence[str | None]) -> None:
    held = [key for key in keys if key is not None]
    if held:
        values = {"now": now, "keys": _encode(held).decode()}
        ended = cursor.execute(_ENQUEUE["free_keys"], values).fetchall()
        forget(cursor, [job_id for (job_id,) in ended if job_id is not None])


def _alike(jobs: Sequence[NewJob]) -> Iterable[Sequence[int]]:
    """Return the indexes of jobs that can be stored as one, in batches of about TEXT_MAX characters
    of arguments."""
    tenants, streams = [job.tenant for job in jobs], [job.stream for job in jobs]
    is_plain = streams.count(None) == tenants.count(tenants[0]) == len(jobs)
    is_short = sum([len(job.args) for job in jobs]) <= TEXT_MAX
    if is_short and (is_plain or None not in streams) and share_the_rest(jobs):
        return [range(len(jobs))]
    places: dict[tuple[Any, ...], list[int]] = {}
    length = 0
    for n, job in enumerate(jobs):
        length += len(job.args)
        is_limited = job.stream is not None
        tenant = None if is_limited else job.tenant
        key = (*rest_of(job), tenant, is_limited, id(job.policy), length // TEXT_MAX)
        places.setdefault(key, []).append(n)
    return places.values()


def _label(cursor: Cursor, job: NewJob, *job_ids: int) -> None:
    if job.policy.labels:
        rows = [(job_id, label) for job_id in job_ids for label in dict.fromkeys(job.policy.labels)]
        cursor.executemany(_ENQUEUE["label"], rows)


def _arrive(cursor: Cursor, now: float, jobs: Sequence[NewJob]) -> None:
    streams: dict[int, tuple[Any, ...]] = {}
    for job in jobs:
        if job.stream is not None:
            *_, tenant, is_due = streams.get(job.stream, (job.tenant, False))
            if is_due and tenant == job.tenant:
                continue
            rank = -job.priority if job.aged_by is None else 0
            row = (job.stream, job.task, job.queue, rank, job.needs)
            tenant = job.tenant if tenant == job.tenant else None
            streams[job.stream] = (*row, tenant, is_due or _due(job, now) <= now)
    if streams:
        values = {"streams": _encode(list(streams.values())).decode(), "now": now}
        cursor.execute(_ENQUEUE["arrive"], values)


def _due(job: NewJob, now: float) -> float:
    return now + job.delay if job.run_at is None else job.run_at


def _aged(job: NewJob, now: float) -> int | None:
    return None if job.aged_by is None else round((_due(job, now) - job.aged_by) * 1000)


def _args(jobs: Sequence[NewJob], places: Sequence[int]) -> str:
    args = [jobs[n].args for n in places]
    _refuse_nul(args)
    return _by_index(args, places)


def _limited_args(jobs: Sequence[NewJob], places: Sequence[int], now: float) -> str:
    chosen = [jobs[n] for n in places]
    _refuse_nul([text for job in chosen for text in (job.args, job.tenant or "")])
    rows = [(job.args, job.tenant, job.stream, job.needs, _aged(job, now)) for job in chosen]
    return _by_index(rows, places)


def _by_index(values: Sequence[Any], places: Sequence[int]) -> str:
    """Return JSON with the places as keys; an array has its indexes as keys."""
    by_index = isinstance(places, range)
    return _encode(values if by_index else dict(zip(places, values, strict=True))).decode()


def _refuse_nul(texts: Sequence[str]) -> None:
    if "\0" in "".join(texts):
        raise BadData("arguments hold a NUL character")  # SQLite's JSON ends at it


def _row(job_id: int, position: int, now: float, job: NewJob) -> dict[str, Any]:
    run_at = _due(job, now)
    expires_at = job.expires_at
    if expires_at is None and job.expires is not None:
        expires_at = now + job.expires
    return values_of(job, (*SHARED, *OWN)) | {
        "id": job_id,
        "position": position if run_at <= now else None,
        "run_at": run_at,
        "enqueued_at": now,
        "expires_at": expires_at,
        "aged": _aged(job, now),
    }


def _enqueue_or_replace(cursor: Cursor, now: float, job: NewJob) -> Enqueued:
    free_keys(cursor, now, [job.key])  # also takes the write lock, before anything is read
    if job.on_key is not None and job.on_key.window is not None:
        return _enqueue_in_window(cursor, now, job, job.on_key.window)
    found = cursor.execute(_ENQUEUE["unfinished"], (job.key,)).fetchone()
    if job.on_key is not None and found is not None:
        job_id, task, begun, enqueued_at, position, is_blocked, yields = found
        match_holder(job, job_id, bytes(task).decode(), same_args=False)
        if begun and yields and job.on_key.until_start:
            cursor.execute(_ENQUEUE["drop_key"], (job_id,))
        elif not begun and yields and job.on_key.replaces:
            _refuse_nul([job.args, job.queue, job.tenant or ""])
            due_max = inf if job.on_key.due_max is None else enqueued_at + job.on_key.due_max
            due = min(_due(job, now), due_max)
            if due > now or is_blocked:
                position = None
            elif position is None:
                position = draw(cursor, "position", 1)[0]
            aged = None if job.aged_by is None else round((due - job.aged_by) * 1000)
            values = {"args": job.args, "run_at": due, "position": position, "id": job_id}
            values |= {"queue": job.queue, "priority": job.priority, "tenant": job.tenant}
            values |= {"stream": job.stream, "needs": job.needs, "aged": aged}
            cursor.execute(_ENQUEUE["replace"], values)
            _arrive(cursor, now, [msgspec.structs.replace(job, run_at=due)])
            return Enqueued(job_id, created=False)
    return _store(cursor, now, [job if job.on_key is None else make_replaceable(job)])[0]


def _enqueue_in_window(cursor: Cursor, now: float, job: NewJob, seconds: float) -> Enqueued:
    found = _holder(cursor, job)
    if found is not None:
        return found
    mine = {"key": job.key, "task": job.task, "until": (now // seconds + 1) * seconds}
    row = cursor.execute(_ENQUEUE["window"], mine | {"args": job.args, "now": now}).fetchone()
    if row is not None:
        job_id, same_args = row
        return Enqueued(job_id, created=False, same_args=bool(same_args))
    (stored,) = _store(cursor, now, [msgspec.structs.replace(job, on_key=None)])
    cursor.execute(_ENQUEUE["fill_window"], mine | {"job_id": stored.job_id})
    return stored


def enqueue_unless_taken(cursor: Cursor, now: float, job: NewJob) -> tuple[int | None, int | None]:
    """Return the id of the new job, and otherwise of the unfinished one that has its key."""
    free_keys(cursor, now, [job.key])
    job_id, position = _draw_places(cursor, 1)
    if _insert(cursor, job_id, position, now, job):
        return job_id, None
    values = {"key": job.key, "args": job.args}
    return None, cursor.execute(_ENQUEUE["key_holder"], values).fetchone()[0]


def _insert(cursor: Cursor, job_id: int, position: int, now: float, job: NewJob) -> bool:
    """Return False if an unfinished job has the key."""
    row = _row(job_id, position, now, job)
    if cursor.execute(_ENQUEUE["insert_unless_key_taken"], row).rowcount != 1:
        return False
    _label(cursor, job, job_id)
    _arrive(cursor, now, [job])
    return True


def _enqueue_one(cursor: Cursor, job_id: int, position: int, now: float, job: NewJob) -> Enqueued:
    if _insert(cursor, job_id, position, now, job):
        return Enqueued(job_id, created=True)
    twice = _holder(cursor, job)  # the key of an earlier job in this call
    assert twice is not None
    return twice


def _holder(cursor: Cursor, job: NewJob) -> Enqueued | None:
    """Raise KeyInUse if the key's holder is of another task."""
    if job.key is None:
        return None
    row = cursor.execute(_ENQUEUE["key_holder"], {"key": job.key, "args": job.args}).fetchone()
    if row is None:
        return None
    job_id, task, same_args = row
    return match_holder(job, job_id, bytes(task).decode(), same_args=bool(same_args))


# ----------------------------------------------------------------- writes of an attempt


def checkpoint(cursor: Cursor, now: float, saves: Sequence[Save]) -> list[Answer]:
    return [_save(cursor, now, save) for save in saves]


def _save(cursor: Cursor, now: float, save: Save) -> Answer:
    values = msgspec.structs.asdict(save) | {"now": now}
    if cursor.execute(_JOBS["checkpoint"], values).rowcount:
        return Answer.ACCEPTED
    if cursor.execute(_JOBS["is_current"], (save.job_id, save.token)).fetchone():
        return Answer.ALREADY
    return refuse(cursor, now, save.job_id, save.token, "checkpoint")


def progress(cursor: Cursor, _: float, reports: Sequence[Report]) -> list[Answer]:
    answers = []
    for report in reports:
        values = msgspec.structs.asdict(report) | {
            "progress": report.progress and _encode(report.progress).decode()
        }
        is_noted = cursor.execute(_JOBS["progress"], values).rowcount
        answers.append(Answer.ACCEPTED if is_noted else Answer.REFUSED)
    return answers


def keep_logs(cursor: Cursor, _: float, logs: Sequence[JobLog]) -> set[int]:
    kept = set()
    for log in logs:
        values = msgspec.structs.asdict(log)
        values |= {"printed": log.printed, "lines": lines_text(log.lines)}
        if cursor.execute(_JOBS["keep_logs"], values).rowcount:
            cursor.execute(_JOBS["trim_logs"], {"job_id": log.job_id, "kept": LOGS_KEPT})
            kept.add(log.token)
    return kept


def keep_stack(cursor: Cursor, now: float, job_id: int, stack: Stack) -> bool:
    text = _encode(stack).decode()
    values = {"job_id": job_id, "token": stack.token, "stack": text, "now": now}
    return cursor.execute(_JOBS["keep_stack"], values).rowcount == 1
