"""The verbs of a store by which its workers share the looks at all of them (``model.watch``), and
by which one host says what the others cannot see."""

from __future__ import annotations

from typing import Protocol

import msgspec

from outlast.store.glances import Glance
from outlast.store.values import WorkerRef


class LockIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which lock file a worker has: no other worker, before or after it, on this host or another,
    has the same."""

    boot_id: str
    path: str
    device: int
    inode: int


class WatchVerbs(Protocol):
    """The part of ``Store`` that knows who watches, and what is said to them."""

    async def glance(self, me: WorkerRef) -> Glance:
        """Return what each worker reads all the time. Beats may bring it along."""
        ...

    async def keep_watch(self, place: int, mark: int) -> None:
        """Overwrite the mark of one of the watches that a glance has shown, counted from 0."""
        ...

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        """Say on the rows that name this lock file that their worker is gone: it was found free,
        and ``begun`` in it. Looks show that, and workers that listen look at once; they reap.
        Return how many live rows there are."""
        ...
