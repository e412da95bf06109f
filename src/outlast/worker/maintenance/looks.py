"""Which looks at all workers are this worker's: those of a watcher, and those that a neighbour's
free lock file asks for.

Each worker glances at the store each second, which shows the marks of the watchers
(``model.watch``) and the next few workers of its own host. Their lock files it probes itself: only
a worker of the same host can, and the watchers may be on other hosts.
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.clock import Clock
from outlast.model.watch import WatchPart
from outlast.store.lockfile import Probe, probe
from outlast.store.protocol import Store
from outlast.store.values import Glance, WorkerRef


class OwnLooks:
    """The looks of one worker of the host of ``boot_id``, as ``me`` returns it."""

    def __init__(
        self, store: Store, me: Callable[[], WorkerRef], boot_id: str, *, clock: Clock
    ) -> None:
        self._store = store
        self._me = me
        self._boot_id = boot_id
        self._clock = clock
        self._watch = WatchPart()
        self._glance = Glance()

    async def glance(self) -> Glance:
        """Glance at the store, and step in where a watch is free."""
        me = self._me()
        self._glance = glance = await self._store.glance(me, self._boot_id)
        if self._watch.take_glance(self._clock.boot(), me.worker_id, glance.watches):
            await self._leave_mark()
        return glance

    def are_wanted(self) -> bool:
        """Whether this worker is to look at all, after the last glance."""
        return not self._glance.watches or self._watch.is_on or self._has_free_neighbour()

    async def note_success(self) -> None:
        """Leave a mark, where this worker keeps a watch: a look has succeeded."""
        if self._watch.place is not None:
            await self._leave_mark()

    def forget(self) -> None:
        """Start over: a glance or a look has failed."""
        self._watch.forget()

    async def _leave_mark(self) -> None:
        if self._watch.place is not None:
            await self._store.keep_watch(self._watch.place, self._watch.next_mark())

    def _has_free_neighbour(self) -> bool:
        return any(
            probe(each.lock_path, each.lock_device, each.lock_inode, self._boot_id) is Probe.FREE
            for each in self._glance.neighbours
        )
