"""Waits for adopted child processes if the worker is process 1 of a container.

Process 1 adopts processes whose parent has died and, like an init, has to wait for them, or they
fill the process table. This never runs in ``app.worker()``, where the children are the caller's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection

from outlast.worker.service import Nudge

LOOK_SECONDS = 2.0


class Pid1:
    """The duty that waits for dead children that this process did not start. ``known`` returns the
    pids of those that it did start. One that was started a moment ago may still be missing, but
    the code that started it waits for it before the next check: so this duty waits only for a
    child that two checks in a row have found dead."""

    name = "pid1"

    def __init__(self, known: Callable[[], Collection[int | None]]) -> None:
        self.nudge = Nudge()
        self._known = known
        self._seen: set[int] = set()

    async def run_once(self) -> float:
        """Wait for children that were already dead at the last check."""
        dead = dead_children() - set(self._known())
        for pid in dead & self._seen:
            _wait_for(pid)
        self._seen = dead
        return LOOK_SECONDS


def dead_children() -> set[int]:
    """Return the dead children of this process that are still to be waited for."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and _is_dead_child(name)}


def _is_dead_child(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b")")[2].split()[:2]
    except OSError:
        return False
    return state == b"Z" and int(parent) == os.getpid()


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
