"""How many workers serve the same, and from which number on they may do alternately what each of
them did by itself: they are *among many*."""

from __future__ import annotations

from collections.abc import Callable

from outlast.store.wakeup import Wakeup
from outlast.worker.claims.wake_turns import WakeTurns

EASED_SECONDS = 2.25  # between two peeks, where they are rare: a heartbeat is 2 s by default
EASED_PEERS = 10  # workers of a kind, from which on theirs together are frequent


def never() -> bool:
    """Return what a worker alone is told."""
    return False


def is_among_many(wakeup: Wakeup | None, kind: WakeTurns) -> Callable[[], bool]:
    """Return what says whether a worker may peek rarely: it hears of new work by its wake-up, and
    enough others of its kind peek, too."""
    if wakeup is None:
        return never
    return lambda: wakeup.health.good and kind.peers >= EASED_PEERS
