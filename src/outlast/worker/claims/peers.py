"""Decides whether a worker is *among many* that serve the same, so that each may peek rarely."""

from __future__ import annotations

from collections.abc import Callable

from outlast.store.wakeup import Wakeup
from outlast.worker.claims.wake_turns import WakeTurns

EASED_SECONDS = 2.25  # between two rare peeks: a heartbeat is 2 s by default
EASED_PEERS = 10  # workers of a kind whose rare peeks together are frequent enough


def never() -> bool:
    """Return False: the answer for a worker that is never among many."""
    return False


def is_among_many(wakeup: Wakeup | None, kind: WakeTurns) -> Callable[[], bool]:
    """Return a function that tests whether a worker may peek rarely: it hears of new work by its
    wake-up, and enough others of its kind peek, too."""
    if wakeup is None:
        return never
    return lambda: wakeup.health.good and kind.peers >= EASED_PEERS
