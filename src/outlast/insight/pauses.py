"""Pause and resume: note it in the store, wait until each active worker has acknowledged it, and
describe it.

No paused job starts once all live workers have acknowledged the pause. A draining worker counts: it
takes no more jobs, but a job in one of its runners may not have begun. A worker whose lock file is
free is dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from outlast.base.clock import SYSTEM
from outlast.base.text import line, shell_word, since, stamp
from outlast.insight.availability import holds, with_proof
from outlast.insight.resource import SCHEMA, Document, Resource
from outlast.model.pause import Pause, PauseKind, is_acknowledged
from outlast.store.inspector import ReadableStore
from outlast.store.rows import JobFilter, WorkerRow
from outlast.store.values import NewPause

if TYPE_CHECKING:
    from outlast.insight.acting import By
    from outlast.store.protocol import Store

WAIT_SECONDS = 10.0  # for workers to acknowledge, by default
LOOK_SECONDS = 0.05  # between two checks whether they have
NAME_MAX = 60
REASON_MAX = 200


class PauseList(msgspec.Struct, frozen=True):
    """All pauses, and the workers that have to obey them."""

    pauses: list[Pause]
    workers: list[WorkerRow]

    def unheard(self, pause: Pause) -> list[WorkerRow]:
        """Return the live workers that have not acknowledged this pause yet."""
        return [
            one
            for one in self.workers
            if holds(one)
            and not one.lock_free
            and not is_acknowledged(pause.id, one.acknowledged_pauses)
        ]


async def read_pauses(store: ReadableStore) -> PauseList:
    """Return the pauses, and the workers that have to obey them. Read in this order: a worker that
    registers later reads the pauses before it takes anything."""
    pauses = await store.inspector.pauses()
    return PauseList(pauses, with_proof(await store.inspector.workers()))


async def pause_and_wait(
    store: Store,
    new: NewPause,
    wait: float = WAIT_SECONDS,
    *,
    by: By | None = None,
) -> tuple[Pause, list[WorkerRow]]:
    """Pause, and wait up to ``wait`` seconds for all active workers to acknowledge it; return the
    pause and the workers that have not. It is in force for them, too, as soon as they read it.
    ``by``: the person, for the record."""
    from outlast.insight.acting import note_of

    record = note_of("pause", by, name_of(new.kind, new.name))
    pause = await store.pause(new, record=record)
    deadline = SYSTEM.boot() + wait
    while True:
        seen = PauseList([pause], with_proof(await store.inspector.workers()))
        if not (left := seen.unheard(pause)) or SYSTEM.boot() >= deadline:
            return pause, left
        await SYSTEM.sleep(LOOK_SECONDS)


async def resume(store: Store, kind: PauseKind, name: str, *, by: By | None = None) -> Pause | None:
    """End a pause and return it; None if there was none."""
    from outlast.insight.acting import note_of

    return await store.resume(kind, name, record=note_of("resume", by, name_of(kind, name)))


async def is_named(store: ReadableStore, kind: PauseKind, name: str) -> bool:
    """Whether any job or worker has a queue, task or tenant of this name. One bounded search of the
    jobs answers; if it does not reach all jobs, the answer is yes."""
    if kind is PauseKind.ALL:
        return True
    workers = await store.inspector.workers()
    names = {
        PauseKind.QUEUE: {queue for one in workers for queue in one.queues},
        PauseKind.TASK: {task for one in workers for task in (*one.tasks, *one.lacks)},
        PauseKind.TENANT: set[str](),
    }
    if name in names[kind]:
        return True
    which = msgspec.convert({"limit": 1, kind.value: name}, JobFilter)
    seen = await store.inspector.job_ids(which)
    return bool(seen.ids) or seen.before is not None


# -- in words


def name_of(kind: PauseKind, name: str) -> str:
    """Name the paused thing: ``the queue 'mail'``, ``everything``."""
    return "everything" if kind is PauseKind.ALL else f"the {kind} '{line(name, NAME_MAX)}'"


def command_to_resume(pause: Pause) -> str:
    """Return the command that ends the pause."""
    return " ".join(
        ["outlast resume", pause.kind, *([shell_word(pause.name)] if pause.name else [])]
    )


def describe(pause: Pause, now: float) -> str:
    """Return who has paused what, since when and why, as one sentence."""
    by = f" by {line(pause.paused_by, NAME_MAX)}" if pause.paused_by else ""
    reason = f": {line(pause.reason, REASON_MAX).rstrip('.')}" if pause.reason else ""
    what = name_of(pause.kind, pause.name)
    lasts = f"{since(pause.paused_at, now)} (since {stamp(pause.paused_at)})"
    return f"{what[:1].upper()}{what[1:]} has been paused {lasts}{by}{reason}."


# -- as documents


def pauses_document(found: PauseList) -> Document:
    """Return the pauses as one JSON document."""
    shown = [pause_document(pause, found.unheard(pause)) for pause in found.pauses]
    return {"schema": SCHEMA, "pauses": shown}


PAUSE = Resource(
    "Pause",
    Pause,
    "kind name paused_at paused_by reason stop unacknowledged",
    name=(str | None, lambda pause: pause.name or None),
    unacknowledged=list[str],
)


def pause_document(pause: Pause, unheard: Iterable[WorkerRow]) -> Document:
    """Return one pause; ``unacknowledged``: active workers that have not acknowledged it yet."""
    return PAUSE.document(pause, unacknowledged=[one.name for one in unheard])
