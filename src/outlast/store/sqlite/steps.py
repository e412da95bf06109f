"""Keeps the values of steps, and finds them for later attempts: plain functions of a cursor.

``find_on`` and ``keep_on`` run on a connection of the caller's own, inside its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.store.sqlite.jobs import clear_errors
from outlast.store.sqlite.refusals import refuse
from outlast.store.statements import statements
from outlast.store.values import Answer, NamedStep, StepFound

_STEPS = statements("sqlite", "steps")
_JOBS = statements("sqlite", "jobs")


def find_steps(cursor: Any, _: float, steps: Sequence[NamedStep]) -> list[StepFound]:
    """Look for the values of steps, each guarded by its token."""
    return [_find(cursor, step) for step in steps]


def _find(cursor: Any, step: NamedStep) -> StepFound:
    values = {"job_id": step.job_id, "token": step.token, "name": step.name}
    row = cursor.execute(_STEPS["find"], values).fetchone()
    if row is None:
        return StepFound(Answer.REFUSED)
    text = row[0].decode() if isinstance(row[0], bytes) else row[0]
    return StepFound(Answer.ACCEPTED if text is None else Answer.ALREADY, text)


def keep_steps(cursor: Cursor, now: float, steps: Sequence[NamedStep]) -> list[Answer]:
    """Keep the values of steps, each guarded by its token."""
    return [_keep(cursor, now, step) for step in steps]


def _keep(cursor: Cursor, now: float, step: NamedStep) -> Answer:
    if _is_new(cursor, step, now):
        return Answer.ACCEPTED
    if cursor.execute(_JOBS["is_current"], (step.job_id, step.token)).fetchone():
        return Answer.ALREADY
    return refuse(cursor, now, step.job_id, step.token, "step")


def _is_new(cursor: Any, step: NamedStep, now: float) -> bool:
    values = msgspec.structs.asdict(step) | {"now": now}
    if cursor.execute(_STEPS["keep"], values).rowcount != 1:
        return False
    cursor.execute(_STEPS["forgive"], {"job_id": step.job_id})
    return True


def find_on(cursor: Any, step: NamedStep) -> StepFound:
    """As ``find_steps`` for one, on a connection of the caller's."""
    with clear_errors():
        return _find(cursor, step)


def keep_on(cursor: Any, step: NamedStep, now: float) -> bool:
    """Keep the value in the caller's transaction. False: the token is stale."""
    with clear_errors():
        return _is_new(cursor, step, now)
