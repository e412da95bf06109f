"""Decides what a runner's garbage collections visit, and makes one when it has become quiet."""

from __future__ import annotations

import asyncio
import gc

QUIET_SECONDS = 1.0  # without an end


def keep_what_is_loaded() -> None:
    """Exclude all current objects from later collections.

    A full collection visits every object (10 to 20 ms in a small worker) while nothing else runs.
    Only for processes that belong to Outlast: a program that embeds a worker decides this for
    itself.
    """
    gc.collect()
    gc.freeze()


class Collector:
    """Collects garbage once no attempt has ended for ``QUIET_SECONDS``, within twice that.

    A task may forget a database connection with an open transaction. sqlite3's connections refer to
    themselves, so only a collection frees them, which rolls back, and a quiet process makes none.
    A transaction on the queue's own file locks the queue for all: no end is written and no job
    claimed, so each runner becomes quiet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._has_ended = False
        self._is_waiting = False

    def note_end(self) -> None:
        """Note that attempts have ended: collect later."""
        self._has_ended = True
        if not self._is_waiting:
            self._is_waiting = True
            self._collect_if_quiet()

    def _collect_if_quiet(self) -> None:
        if self._has_ended:
            self._has_ended = False
            self._loop.call_later(QUIET_SECONDS, self._collect_if_quiet)
            return
        self._is_waiting = False
        gc.collect()
