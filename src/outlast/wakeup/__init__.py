"""Wake-ups: hints that work exists. The store is the truth, and polling goes on underneath."""

from __future__ import annotations

from outlast.clock import Clock
from outlast.wakeup.base import Wakeup


def open_wakeup(url: str, clock: Clock) -> Wakeup:
    """Return the wake-up that comes with the store at ``url``."""
    if url.startswith("sqlite:"):
        from outlast.wakeup.sqlite import SqliteWakeup

        return SqliteWakeup(url, clock)
    from outlast.wakeup.postgres import PostgresWakeup

    return PostgresWakeup(url)
