"""The tether: no runner outlives its worker's authority, nor do the runner's own children.

One small process per worker, started beside the runners from this file alone (standard library
only, so it is up in a few milliseconds and shares no fate with user code). Its worker tells it
over a pipe which process groups are its runners and for how many seconds they may go on. When
the pipe ends (the worker died) or the time is up (the worker is stopped, wedged or cut off), it
kills the groups, waits until they are empty, and only then lets go of the worker's lock file.
A runner whose GIL is held in C, or that is itself stopped, cannot resist: it takes no part.

Lines on the pipe: ``add PGID``, ``drop PGID``, ``until BOOTTIME``, ``quit``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

LOOK_SECONDS = 0.5  # select() does not count a suspended machine's time: look again
EMPTY_SECONDS = 10.0  # how long to wait for a killed group to be gone

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def group_is_empty(pgid: int) -> bool:
    """Whether no process of the group is left; zombies do not count."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    if not sys.platform.startswith("linux"):
        return False
    return not any(_in_group(name, pgid) for name in os.listdir("/proc") if name.isdigit())


def _in_group(pid: str, pgid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, _, group = stat.read().rpartition(b")")[2].split()[:3]
    except OSError:
        return False
    return int(group) == pgid and state not in (b"Z", b"X")


def kill_group(pgid: int) -> None:
    """Send SIGKILL to every process of the group; none left is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


def die_with_parent() -> None:
    """Ask the kernel (Linux) for SIGKILL when the parent dies."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def _end(groups: set[int]) -> None:
    deadline = time.clock_gettime(_CLOCK) + EMPTY_SECONDS
    left = set(groups)
    while left and time.clock_gettime(_CLOCK) < deadline:
        for pgid in left:
            kill_group(pgid)
        left = {pgid for pgid in left if not group_is_empty(pgid)}
        if left:
            time.sleep(0.01)
    groups.clear()


def _deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def _obey(line: str, groups: set[int], until: float) -> float:
    verb, _, value = line.partition(" ")
    if verb == "add":
        groups.add(int(value))
    elif verb == "drop":
        groups.discard(int(value))
    elif verb == "until":
        return float(value)
    return until


def hold(pipe: int) -> None:
    """Obey the pipe until it ends; leave no group behind."""
    groups: set[int] = set()
    until = float("inf")
    buffer = b""
    while True:
        left = until - time.clock_gettime(_CLOCK)
        if left <= 0 and groups:
            _end(groups)
        wait = LOOK_SECONDS if groups else None
        if groups and left < LOOK_SECONDS:
            wait = max(0.0, left)
        if not select.select([pipe], [], [], wait)[0]:
            continue
        data = os.read(pipe, 65536)
        if not data:
            _end(groups)
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            until = _obey(line.decode(), groups, until)


if __name__ == "__main__":
    _deaf()
    hold(int(sys.argv[1]))
