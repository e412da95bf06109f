"""Decides when this worker scans all workers: as a watcher, or if a neighbour's lock file is free.

A peek, which each worker makes all the time, shows the marks of the watchers (``model.watch``) and
the next few workers whose lock files this one may read. It probes those files itself, each second:
only a worker of the same host can, and the watchers may be on other hosts.

Beats bring such a peek along, and a worker makes one by itself if none came for a second. It omits
that if it hears of new work at once and enough others of its kind peek as well: then the beats'
peeks are enough, as long as none of them shows that a watcher may be gone.
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.base.clock import Clock
from outlast.model.lease import LOOK_SECONDS
from outlast.model.watch import WatchPart
from outlast.store.lockfile import Probe, probe
from outlast.store.protocol import Store
from outlast.store.values import Peek, WorkerRef

EASED_SECONDS = 2.25  # between two rare peeks: a heartbeat is 2 s by default


class OwnLooks:
    """Decides on the scans of one worker, which ``me`` returns and whose host has ``boot_id``.
    ``is_eased``: whether peeks may be rare."""

    def __init__(
        self,
        store: Store,
        me: Callable[[], WorkerRef],
        boot_id: str,
        *,
        clock: Clock,
        is_eased: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._me = me
        self._boot_id = boot_id
        self._clock = clock
        self._is_eased = is_eased
        self._watch = WatchPart()
        self._peek = Peek()
        self._peeked_at = float("-inf")
        self._has_stepped_in = False

    async def peek(self) -> Peek | None:
        """Peek at the store, unless that was done lately, and leave a mark if a watch was free;
        return the new peek, if any."""
        peek = None
        is_rare = self._may_peek_rarely() and not self._watch.doubts()
        if self._clock.boot() - self._peeked_at >= (EASED_SECONDS if is_rare else LOOK_SECONDS / 2):
            peek = await self._store.peek(self._me())
            self.take(peek)
        if self._has_stepped_in:
            self._has_stepped_in = False
            await self.leave_mark()
        return peek

    def take(self, peek: Peek) -> bool:
        """Take a peek; return whether this worker steps in for a watcher."""
        self._peek, self._peeked_at = peek, self._clock.boot()
        if self._watch.take_peek(self._peeked_at, self._me().worker_id, peek.watches):
            self._has_stepped_in = True
        return self._has_stepped_in

    def pause(self) -> float:
        """Return the seconds to wait if no scan is wanted."""
        return (
            LOOK_SECONDS / 2 if self._may_peek_rarely() and self._watch.doubts() else LOOK_SECONDS
        )

    def _may_peek_rarely(self) -> bool:
        return self._is_eased() and not self._watch.is_on

    def are_wanted(self) -> bool:
        """Whether this worker should scan all workers, after the last peek."""
        return (
            not self._peek.watches
            or self._watch.is_on
            or any(
                probe(each.lock_path, each.lock_device, each.lock_inode, self._boot_id)
                is Probe.FREE
                for each in self._peek.neighbours
            )
        )

    async def leave_mark(self) -> None:
        """Leave a mark, if this worker keeps a watch: also after each successful scan."""
        if self._watch.place is not None:
            await self._store.keep_watch(self._watch.place, self._watch.next_mark())

    def forget(self) -> None:
        """Start over: a peek or a scan has failed."""
        self._watch.forget()
