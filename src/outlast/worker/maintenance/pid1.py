"""Reaps adopted child processes if the worker is the first process of a container.

A process whose parent has died is adopted by process 1. An init would wait for it; a worker in
its place has to do the same, or what its runners leave behind fills the table of processes.
Only as process 1, and never in process: there the children are the caller's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection

LOOK_SECONDS = 2.0


class Pid1:
    """The duty that waits for dead children which this process has not started.

    The code that started a child of the worker waits for it: ``known`` names their pids. A child
    that is not named yet has long been waited for at the second look, so only that one reaps.
    """

    name = "pid1"

    def __init__(self, known: Callable[[], Collection[int | None]]) -> None:
        self._known = known
        self._seen: set[int] = set()

    async def run_once(self) -> float:
        """Wait for those that were dead at the last look already."""
        dead = dead_children() - set(self._known())
        for pid in dead & self._seen:
            _wait_for(pid)
        self._seen = dead
        return LOOK_SECONDS


def dead_children() -> set[int]:
    """Return the children of this process that are dead and were not waited for."""
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
