"""Keeps the values of steps, and finds them for later attempts; stores the children of attempts,
and lets an attempt's end wait for them (sql/dependencies.sql). Plain functions of a cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.store.dependencies import not_spawned
from outlast.store.sqlite.jobs import enqueue_flow
from outlast.store.sqlite.refusals import refuse
from outlast.store.sqlite.statements import statements
from outlast.store.values import Answer, Enqueued, NamedStep, NewJob, Spawn, StepFound

_STEPS = statements("steps")
_JOBS = statements("jobs")
_CHILDREN = statements("dependencies")
_encode = msgspec.json.Encoder().encode


def find_steps(cursor: Any, now: float, steps: Sequence[NamedStep]) -> list[StepFound]:
    return [find_step(cursor, now, step) for step in steps]


def find_step(cursor: Any, _: float, step: NamedStep) -> StepFound:
    values = {"job_id": step.job_id, "token": step.token, "name": step.name}
    row = cursor.execute(_STEPS["find"], values).fetchone()
    if row is None:
        return StepFound(Answer.REFUSED)
    text = row[0].decode() if isinstance(row[0], bytes) else row[0]
    return StepFound(Answer.ACCEPTED if text is None else Answer.ALREADY, text)


def keep_steps(cursor: Cursor, now: float, steps: Sequence[NamedStep]) -> list[Answer]:
    return [_keep(cursor, now, step) for step in steps]


def _keep(cursor: Cursor, now: float, step: NamedStep) -> Answer:
    if is_new(cursor, now, step):
        return Answer.ACCEPTED
    if cursor.execute(_JOBS["is_current"], (step.job_id, step.token)).fetchone():
        return Answer.ALREADY
    return refuse(cursor, now, step.job_id, step.token, "step")


def is_new(cursor: Any, now: float, step: NamedStep) -> bool:
    values = msgspec.structs.asdict(step) | {"now": now}
    if cursor.execute(_STEPS["keep"], values).rowcount != 1:
        return False
    cursor.execute(_STEPS["forgive"], {"job_id": step.job_id})
    return True


def spawn(cursor: Cursor, now: float, jobs: Sequence[NewJob], which: Spawn) -> list[Enqueued]:
    stored = enqueue_flow(cursor, now, jobs)
    if keep_steps(cursor, now, [which.step]) != [Answer.ACCEPTED]:
        raise not_spawned(which)
    made = [each.job_id for each in stored]
    ids = _encode(made).decode()
    cursor.execute(_CHILDREN["await"], {"ids": _encode([which.step.job_id, *made]).decode()})
    cursor.execute(
        _CHILDREN["adopt"], {"job_id": which.step.job_id, "first": which.first, "ids": ids}
    )
    return stored


def watch_children(cursor: Cursor, _: float, job_id: int, token: int, ids: Sequence[int]) -> bool:
    if not cursor.execute(_JOBS["is_current"], (job_id, token)).fetchone():
        return False
    cursor.execute(_CHILDREN["watch"], {"job_id": job_id, "ids": _encode(list(ids)).decode()})
    return True
