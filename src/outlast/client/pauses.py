"""Pause queues, tasks and tenants for programs, and resume them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from outlast.errors import UsageError
from outlast.insight.row import moment
from outlast.model.pause import Pause, PauseKind
from outlast.store.rows import WorkerRow
from outlast.store.values import NewPause

TEXT_MAX = 1_000  # characters of a name, of a reason and of the person's name


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is paused.

    Attributes:
        kind: ``queue``, ``task``, ``tenant`` or ``all``; ``name``: its name, "" for ``all``.
        paused_at: since when, aware, in UTC, by the store's clock; None if it cannot be read.
        paused_by, reason: by whom and why, if given.
        stop: whether running attempts of it were asked to stop.
        unacknowledged: the names of the live workers that have not acknowledged it yet. Once this
            is empty, none of its jobs starts.
    """

    kind: str
    name: str
    paused_at: datetime | None
    paused_by: str | None
    reason: str | None
    stop: bool
    unacknowledged: list[str]


def choose_target(
    queue: str | None, task: str | None, tenant: str | None, *, everything: bool
) -> tuple[PauseKind, str]:
    """Return the one thing to pause or resume. UsageError unless exactly one, with a name."""
    names = {PauseKind.QUEUE: queue, PauseKind.TASK: task, PauseKind.TENANT: tenant}
    given = [(kind, name) for kind, name in names.items() if name is not None]
    given += [(PauseKind.ALL, "")] if everything else []
    if len(given) != 1:
        raise UsageError("give one of queue=…, task=…, tenant=… or everything=True")
    kind, name = given[0]
    if kind is not PauseKind.ALL:
        check_text(str(kind), name)
    return kind, name


def check_text(what: str, text: object) -> None:
    """Raise UsageError unless it is a text that can be stored, and not an empty one."""
    if not isinstance(text, str) or not text or "\0" in text:
        raise UsageError(f"{what}: write a text of at least one character without NULs")
    if len(text) > TEXT_MAX:
        raise UsageError(f"{what}: {len(text)} characters are more than {TEXT_MAX}")


def make_pause(
    target: tuple[PauseKind, str], *, paused_by: str | None, reason: str | None, stop: bool
) -> NewPause:
    """Return the pause to store. UsageError for a text that cannot be stored."""
    for what, text in {"paused_by": paused_by, "reason": reason}.items():
        if text is not None:
            check_text(what, text)
    kind, name = target
    return NewPause(kind=kind, name=name, paused_by=paused_by, reason=reason, stop=bool(stop))


def describe_pause(made: Pause, left: list[WorkerRow]) -> Paused:
    """Return a pause for programs. ``left``: the workers that have not acknowledged it."""
    return Paused(
        kind=made.kind.value,
        name=made.name,
        paused_at=moment(made.paused_at),
        paused_by=made.paused_by,
        reason=made.reason,
        stop=made.stop,
        unacknowledged=[one.name for one in left],
    )
