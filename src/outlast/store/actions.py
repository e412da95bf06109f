"""What people do to jobs, workers and schedules, and the record of who did what.

A verb that is given a ``Note`` writes it in its own transaction: there is no act without its record
and no record of what was not done. A program that acts for itself gives none.

An action on all jobs that match a filter is a row that says how far it has come. Each step of it
moves that row on, if it still stands where the one who takes the step has read it, and changes jobs
in the same commit: so any process may go on with it, also several at once (docs/decisions/0067).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from outlast.errors import OutlastError
from outlast.model.pause import Pause, PauseKind
from outlast.store.values import Cancelled, Enqueued, NewJob, NewPause, Requeued

ACTIONS_KEPT = 10_000  # of each actor: the acts of one push out none of another's
ACTIONS_SECONDS = 90 * 86_400.0  # after which a pruner deletes them
NAME_MAX, TEXT_MAX, FILTER_MAX = 200, 1_000, 4_000  # characters of what is noted
LAST_ID = 2**63 - 1

Tokens = Mapping[int, int]
"""Job id -> the token that is to be its last one; 0: it has none yet."""


class ActionState(StrEnum):
    """Whether an action is over. Only a bulk action is ever ``running`` or ``stopped``."""

    DONE = "done"
    RUNNING = "running"
    STOPPED = "stopped"


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk action is held to: jobs up to ``up_to_id`` that had ended by ``as_of`` (seconds
    since 1970 on the store's clock), of which there were ``expected``."""

    up_to_id: int
    as_of: float
    expected: int


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Who does what, and why. ``target`` names it for people; ``job_id`` is set where it is one
    job; ``filter`` is JSON text. With ``bulk`` it begins an action that goes on in steps."""

    actor: str
    verb: str
    target: str = ""
    job_id: int | None = None
    filter: str | None = None
    reason: str | None = None
    bulk: Bulk | None = None


class BulkStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next step of a bulk action that stands at ``before_id``: jobs down to ``then`` are looked
    at; None: all are."""

    action_id: int
    before_id: int
    then: int | None


class More(msgspec.Struct, frozen=True, kw_only=True):
    """What is done belongs to a step that was taken before."""

    action_id: int


Record = Note | BulkStep | More
Counts = dict[str, int]
"""What became of it -> how many."""
CHANGES = frozenset(
    {"cancelled", "requested", "requeued", "discarded", "asked", "paused", "resumed", "enqueued"}
)
"""The answers that say that something was done."""


class Overtaken(OutlastError):
    """A bulk action does not stand where it was read: another process has taken this step, or it
    was stopped. Nothing was done."""


class ActionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a person did, as it is read. Times are seconds since 1970. ``moved_at``: when it was
    last counted; the last fields before it as of ``Bulk`` and ``BulkStep``."""

    id: int
    at: float
    actor: str
    verb: str
    target: str = ""
    job_id: int | None = None
    filter: str | None = None
    reason: str | None = None
    counts: Counts = {}
    state: ActionState = ActionState.DONE
    expected: int | None = None
    up_to_id: int | None = None
    as_of: float | None = None
    before_id: int | None = None
    moved_at: float = 0.0


class ActionReads(Protocol):
    """What people and screens read of actions."""

    async def actions(
        self, limit: int = 50, before_id: int = LAST_ID, job_id: int | None = None
    ) -> list[ActionRow]:
        """Return what was done, newest first, to this job or at all."""
        ...

    async def running_actions(self, limit: int = 50) -> list[ActionRow]:
        """Return bulk actions that are under way, the oldest first."""
        ...

    async def now(self) -> float:
        """Return the time of the store's clock, in seconds since 1970."""
        ...


class ActionVerbs(Protocol):
    """What people do through a store. ``tokens``: a job whose last token is another is left alone,
    and left out of the answer. ``record``: written with what was done, if anything was."""

    async def cancel(
        self,
        job_ids: Sequence[int],
        *,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Cancelled]:
        """Cancel queued jobs at once, ask running ones. Unknown ids are left out."""
        ...

    async def requeue(
        self,
        job_ids: Sequence[int],
        *,
        from_scratch: bool = False,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Requeued]:
        """Revive dead or cancelled jobs with fresh budgets, under no suspicion (``from_scratch``:
        without their checkpoint), in the order of their ids: of several with one key the first
        has it. Tokens go on rising. Unknown ids are left out."""
        ...

    async def discard(
        self,
        job_ids: Sequence[int],
        *,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> int:
        """Delete dead jobs and their attempts; return how many."""
        ...

    async def request_drain(
        self, worker_ids: Sequence[int], *, record: Record | None = None
    ) -> set[int]:
        """Ask live workers to drain and leave: each receives it with its next beat. Return the ids
        of those that are asked, now or before; the others are gone."""
        ...

    async def ask_stack(
        self, job_id: int, token: int, *, seen: str, then: str, record: Record | None = None
    ) -> bool:
        """Ask the worker that runs this attempt where it is (``store.stacks``): replace the
        requests on its row, where they are those that were seen. False: they are not, or nothing
        runs the attempt any more."""
        ...

    async def pause(self, new: NewPause, *, record: Record | None = None) -> Pause:
        """Note that it is paused. Workers act on it once they have read it, and say so by
        ``heed``; the same again has a new id, and they do both again."""
        ...

    async def resume(
        self, kind: PauseKind, name: str, *, record: Record | None = None
    ) -> Pause | None:
        """End a pause; return what it was. None: it was not paused."""
        ...

    async def trigger(self, job: NewJob, *, record: Record | None = None) -> Enqueued:
        """Store the job that a person asks a schedule for."""
        ...

    async def note(self, note: Note) -> int:
        """Record what was done otherwise, or begin a bulk action; return its id."""
        ...

    async def take_step(self, step: BulkStep, counts: Counts) -> None:
        """Move a bulk action on by a step in which no job was to be changed. Raises Overtaken, as
        each verb that is given a step does where it cannot be taken."""
        ...

    async def stop_action(self, action_id: int) -> bool:
        """Stop a bulk action that is under way; no further step of it is taken. False: it is over,
        or unknown."""
        ...


def cleaned(note: Note) -> Note:
    """Return a note as every store can hold it: bounded, and without what is no text there."""
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
        **{name: getattr(cleaned(note), name) for name in _NOTED},
        "counts": msgspec.json.encode(counts).decode(),
        "state": (ActionState.DONE if bulk is None else ActionState.RUNNING).value,
        "expected": bulk and bulk.expected,
        "up_to_id": bulk and bulk.up_to_id,
        "as_of": bulk and bulk.as_of,
        "before_id": bulk and bulk.up_to_id + 1,
    }


_NOTED = ("actor", "verb", "target", "job_id", "filter", "reason")


def moved(
    step: BulkStep | More, standing: Sequence[object] | None, more: Counts
) -> tuple[str, str, object]:
    """Return counts, state and ``before_id`` of an action after a step of it, given those that it
    stands at. Raises Overtaken."""
    if standing is None:
        raise Overtaken(f"there is no action {step.action_id} any more")
    text, state, before_id = standing
    if isinstance(step, BulkStep):
        if state != ActionState.RUNNING or before_id != step.before_id:
            raise Overtaken(f"action {step.action_id} is {state}, or another process goes on")
        state = ActionState.RUNNING if step.then is not None else ActionState.DONE
        before_id = step.then
    counts = counts_of(str(text))
    for name, number in more.items():
        counts[name] = counts.get(name, 0) + number
    return msgspec.json.encode(counts).decode(), str(state), before_id


def counts_of(text: str) -> Counts:
    """Return the counts on a row; none where they cannot be read."""
    try:
        return msgspec.json.decode(text, type=Counts)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
