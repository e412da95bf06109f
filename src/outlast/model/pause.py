"""Defines pauses: no job of a paused queue, task or tenant starts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from outlast.model.kinds import Time


class PauseKind(StrEnum):
    """What a pause stops. ``all`` has no name: it stops every job."""

    QUEUE = "queue"
    TASK = "task"
    TENANT = "tenant"
    ALL = "all"


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause. ``id``: a later pause of the same kind and name has a higher one. ``paused_at``:
    in seconds since 1970. ``stop``: running attempts are asked to stop, too."""

    id: int
    kind: PauseKind
    name: str
    paused_at: Time
    paused_by: str | None = None
    reason: str | None = None
    stop: bool = False


class Pauses:
    """All pauses in force at one moment, by id. ``version`` identifies the set ("": empty)."""

    def __init__(self, pauses: Iterable[Pause] = ()) -> None:
        self.listed = tuple(sorted(pauses, key=lambda pause: pause.id))
        self.version = ",".join(str(pause.id) for pause in self.listed)
        self.queues, self.tasks, self.tenants = (
            frozenset(pause.name for pause in self.listed if pause.kind is kind)
            for kind in (PauseKind.QUEUE, PauseKind.TASK, PauseKind.TENANT)
        )
        self.has_all = any(pause.kind is PauseKind.ALL for pause in self.listed)

    def find(self, queue: str, task: str, tenant: str | None) -> Pause | None:
        """Return the first pause that applies to such a job, or None if it is not paused."""
        return next(iter(self.find_all(queue, task, tenant)), None) if self.listed else None

    def find_all(self, queue: str, task: str, tenant: str | None) -> list[Pause]:
        """Return all pauses that apply to such a job."""
        names = {
            PauseKind.QUEUE: queue,
            PauseKind.TASK: task,
            PauseKind.TENANT: tenant,
            PauseKind.ALL: "",
        }
        return [pause for pause in self.listed if names[pause.kind] == pause.name]


NO_PAUSES = Pauses()


def is_acknowledged(pause_id: int, version: str | None) -> bool:
    """Whether a worker that has acknowledged this version has acknowledged the pause."""
    return version is not None and str(pause_id) in version.split(",")
