"""Defines acts of people on jobs, workers and schedules, and the record of who did what.

A verb that is given a ``Note`` writes it in its own transaction: there is no act without its record
and no record of an act that was not done. A program that acts on its own passes no Note.

An action on all jobs that match a filter is a row that records how far it has come. Each step
advances that row, if it is unchanged since the process that takes the step has read it, and changes
jobs in the same commit. So any process may continue it, even several at once (docs/decisions/0067).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from outlast.errors import OutlastError
from outlast.model.kinds import Json, Time
from outlast.store.values import Cancelled, Requeued

ACTIONS_KEPT = 10_000  # of each actor: no actor pushes out another's records
ACTIONS_SECONDS = 90 * 86_400.0  # after which a pruner deletes them
NAME_MAX, TEXT_MAX, FILTER_MAX = 200, 1_000, 4_000  # characters in a note
LAST_ID = 2**63 - 1

Tokens = Mapping[int, int]
"""Job id -> the token that must still be its last one; 0: it has none yet."""


class ActionState(StrEnum):
    """Whether an action is over. Only a bulk action is ever ``running`` or ``stopped``."""

    DONE = "done"
    RUNNING = "running"
    STOPPED = "stopped"


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a bulk action: jobs up to ``up_to_id`` that had ended by ``as_of`` (seconds
    since 1970 on the store's clock), of which there were ``expected``."""

    up_to_id: int
    as_of: float
    expected: int


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """Who does what, and why. ``target`` names the object for people; ``job_id`` is set if it is
    one job."""

    actor: str
    verb: str
    target: str = ""
    job_id: int | None = None
    filter: Json | None = None
    reason: str | None = None


class Note(Noted, frozen=True, kw_only=True):
    """An act to be recorded. With ``bulk``, it begins an action that advances in steps."""

    bulk: Bulk | None = None


class BulkStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next step of a bulk action: it looks at jobs from ``before_id`` down to ``then``; None:
    at all remaining ones."""

    action_id: int
    before_id: int
    then: int | None


class More(msgspec.Struct, frozen=True, kw_only=True):
    """Counts to add for a step that was already taken."""

    action_id: int


Record = Note | BulkStep | More
Counts = dict[str, int]
"""Result, such as ``requeued`` -> number of jobs."""
LEFT = frozenset({Cancelled.ENDED, *Requeued} - {Requeued.REQUEUED})
"""The answers that say that nothing was done."""


class Overtaken(OutlastError):
    """A bulk action was stopped, or another process has taken this step. Nothing was done."""


class ActionRow(Noted, frozen=True, kw_only=True):
    """An act of a person, as it is read. Times are seconds since 1970. ``moved_at``: when its
    counts last changed; the fields of the bulk action are those of ``Bulk`` and ``BulkStep``."""

    id: int
    at: Time
    counts: Counts = {}
    state: ActionState = ActionState.DONE
    expected: int | None = None
    up_to_id: int | None = None
    as_of: float | None = None
    before_id: int | None = None
    moved_at: Time = 0.0


def cleaned(note: Note) -> Note:
    """Return a note that every store can hold: bounded, without characters that a store refuses."""
    return msgspec.structs.replace(
        note,
        actor=_clean(note.actor, NAME_MAX),
        verb=_clean(note.verb, NAME_MAX),
        target=_clean(note.target, TEXT_MAX),
        filter=None if note.filter is None else _clean(note.filter, FILTER_MAX),
        reason=None if note.reason is None else _clean(note.reason, TEXT_MAX),
    )


def _clean(text: str, most: int) -> str:
    plain = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def columns_of(note: Note, counts: Counts) -> dict[str, object]:
    """Return the columns of a new row."""
    bulk = note.bulk
    return {
        **{name: getattr(cleaned(note), name) for name in Noted.__struct_fields__},
        "counts": msgspec.json.encode(counts).decode(),
        "state": (ActionState.DONE if bulk is None else ActionState.RUNNING).value,
        "expected": bulk and bulk.expected,
        "up_to_id": bulk and bulk.up_to_id,
        "as_of": bulk and bulk.as_of,
        "before_id": bulk and bulk.up_to_id + 1,
    }


def moved(
    step: BulkStep | More, standing: Sequence[object] | None, more: Counts
) -> tuple[str, str, object]:
    """Return counts, state and ``before_id`` after a step of an action, given those before it.
    Raises Overtaken."""
    if standing is None:
        raise Overtaken(f"there is no action {step.action_id} any more")
    text, state, before_id = standing
    if isinstance(step, BulkStep):
        if state != ActionState.RUNNING or before_id != step.before_id:
            raise Overtaken(
                f"action {step.action_id} is {state}, or another process has taken this step"
            )
        state = ActionState.RUNNING if step.then is not None else ActionState.DONE
        before_id = step.then
    counts = counts_of(str(text))
    for name, number in more.items():
        counts[name] = counts.get(name, 0) + number
    return msgspec.json.encode(counts).decode(), str(state), before_id


def counts_of(text: str) -> Counts:
    """Return the counts on a row; none if they cannot be read."""
    try:
        return msgspec.json.decode(text, type=Counts)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
