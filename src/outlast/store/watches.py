"""The verbs of a store by which its workers share the looks at all of them (``model.watch``)."""

from __future__ import annotations

from typing import Protocol

from outlast.store.values import Glance, WorkerRef


class WatchVerbs(Protocol):
    """The half of ``Store`` that knows who watches."""

    async def glance(self, me: WorkerRef, boot_id: str) -> Glance:
        """Return what each worker reads all the time, for a worker of the host of ``boot_id``."""
        ...

    async def keep_watch(self, place: int, mark: int) -> None:
        """Overwrite the mark of one of the watches that a glance has shown, counted from 0."""
        ...
