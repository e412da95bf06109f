"""Decides what a runner's garbage collections visit, and makes one when it has become quiet."""

from __future__ import annotations

import asyncio
import gc

QUIET_SECONDS = 1.0  # without an end


def keep_what_is_loaded() -> None:
    """Exclude all current objects from later full collections, which would visit each of them (10
    to 20 ms in a small worker). Only for processes of Outlast, not for embedded workers."""
    gc.collect()
    gc.freeze()


class Collector:
    """Collects garbage once no attempt has ended for ``QUIET_SECONDS``, within twice that.

    A task may forget a database connection in a transaction. Only a collection frees sqlite3's
    connections, which refer to themselves, and a quiet process makes none. On the queue's own file
    such a transaction stops all writes, so each runner becomes quiet.
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
