"""What is paused: nothing of a paused queue, task or tenant starts. Pure.

Workers act on what they know (``Pauses``); which of it they know is told by its ``version``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class PauseKind(StrEnum):
    """What a pause is of. ``all`` has no name: it is of every job."""

    QUEUE = "queue"
    TASK = "task"
    TENANT = "tenant"
    ALL = "all"


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause, in force until it is resumed. ``id`` rises, and is another one when the same is
    paused again. ``paused_at``: seconds since 1970, of the first time. ``stop``: attempts that run
    are asked to stop, too."""

    id: int
    kind: PauseKind
    name: str
    paused_at: float
    paused_by: str | None = None
    reason: str | None = None
    stop: bool = False


class Pauses:
    """All pauses that are in force at one moment.

    Attributes:
        listed: they, by id.
        version: names this very set; "" is none.
        queues, tasks, tenants: the names of those that are paused.
        has_all: whether everything is.
    """

    def __init__(self, pauses: Iterable[Pause] = ()) -> None:
        self.listed = tuple(sorted(pauses, key=lambda pause: pause.id))
        self.version = ",".join(str(pause.id) for pause in self.listed)
        self.queues, self.tasks, self.tenants = (
            frozenset(pause.name for pause in self.listed if pause.kind is kind)
            for kind in (PauseKind.QUEUE, PauseKind.TASK, PauseKind.TENANT)
        )
        self.has_all = any(pause.kind is PauseKind.ALL for pause in self.listed)

    def find(self, queue: str, task: str, tenant: str | None) -> Pause | None:
        """Return the first pause that a job of these is under; None: it is not paused."""
        if not self.listed:
            return None
        names = {
            PauseKind.QUEUE: queue,
            PauseKind.TASK: task,
            PauseKind.TENANT: tenant,
            PauseKind.ALL: "",
        }
        return next((pause for pause in self.listed if names[pause.kind] == pause.name), None)


NO_PAUSES = Pauses()


def is_acknowledged(pause_id: int, version: str | None) -> bool:
    """Whether a worker that has acknowledged this version acknowledges the pause."""
    return version is not None and str(pause_id) in version.split(",")
