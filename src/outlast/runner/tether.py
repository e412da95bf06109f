"""Runs the tether, which kills the runners, and the processes that they started, once their worker
may no longer run them.

The tether is one small process per worker, started from this file alone: with the standard library
only, it is up in a few milliseconds and depends on no user code. Its worker sends it over a pipe
the sessions of its runners and the time until which they may continue. When the pipe ends (the
worker died) or the time is up (the worker is stopped, wedged or cut off), the tether kills all
process groups of those sessions, waits until they are empty, and only then releases the worker's
lock file. A runner cannot resist, even if its GIL is held in C or it is stopped: its help is not
needed. The processes that it starts stay in its session, in whichever group, unless they call
``setsid``.

If the worker has died and no process of its runners is left, the tether becomes the program that
the worker's last will names (``worker/lease/last_will.py``); not after ``quit``.

Lines on the pipe: ``add SID``, ``drop SID``, ``until BOOTTIME``, ``quit``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Collection

LOOK_SECONDS = 0.5  # select() does not count a suspended machine's time: check again
EMPTY_SECONDS = 10.0  # how long to wait for a killed group to be gone
NO_WILL = -1  # in place of a descriptor
WILL_SECONDS = 30  # after which the kernel ends the program of the last will, if it hangs

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def groups_of(sids: Collection[int]) -> set[int]:
    """Return the process groups of these sessions with a live process; without /proc (macOS, a bare
    chroot) only those of the leaders. OSError if it is unreadable, as without a free descriptor."""
    if not os.path.exists("/proc/self"):
        return {sid for sid in sids if _group_is_there(sid)}
    found = (_place_of(name) for name in os.listdir("/proc") if name.isdigit())
    return {place[0] for place in found if place is not None and place[1] in sids}


def _place_of(pid: str) -> tuple[int, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, _, group, session = stat.read().rpartition(b")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or another user's
        return None
    return None if state in (b"Z", b"X") else (int(group), int(session))


def _group_is_there(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def kill_group(pgid: int) -> None:
    """Send SIGKILL to every process of the group; none left is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


def die_with_parent() -> None:
    """Ask the kernel (Linux) for SIGKILL when the parent dies."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def _end(sessions: set[int]) -> bool:
    """Kill the processes of these sessions; return whether the sessions were seen to be empty."""
    deadline = time.clock_gettime(_CLOCK) + EMPTY_SECONDS
    left = set(sessions)  # the runners' own groups first, without reading /proc
    while left and time.clock_gettime(_CLOCK) < deadline:
        for pgid in left:
            kill_group(pgid)
        with contextlib.suppress(OSError):  # on an error, processes may be left
            left = groups_of(sessions)
        if left:
            time.sleep(0.01)
    sessions.clear()
    return not left


def _deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def hold(pipe: int) -> bool:
    """Obey the pipe until it ends; leave no process behind. Return whether the worker died without
    ``quit`` and no process of its runners is left, as far as could be seen."""
    sessions: set[int] = set()  # of the worker's runners
    until = float("inf")
    leaves = False  # whether the worker leaves by itself
    is_certain = True
    buffer = b""
    poll = select.poll()  # select() takes no descriptor from 1024 on
    poll.register(pipe, select.POLLIN)
    while True:
        left = until - time.clock_gettime(_CLOCK)
        if not poll.poll(max(0.0, min(left, LOOK_SECONDS)) * 1000 if sessions else None):
            if left <= 0:  # and no renewal has come, as while this process was stopped
                is_certain = _end(sessions) and is_certain
            continue
        data = os.read(pipe, 65536)
        if not data:
            return _end(sessions) and is_certain and not leaves
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            verb, _, value = line.decode().partition(" ")
            if verb == "add":
                sessions.add(int(value))
            elif verb == "drop":
                sessions.discard(int(value))
            elif verb == "until":
                until = float(value)
            elif verb == "quit":
                leaves = True


def _become(will: int) -> None:
    """Become the program that the will names, which is its standard input. It inherits no other
    descriptor, so the lock file is free, unless other processes hold it."""
    import json

    said = json.loads(os.pread(will, os.fstat(will).st_size, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # if memory runs out, the kernel ends this process, not another
    os.lseek(will, 0, os.SEEK_SET)
    os.dup2(will, 0)
    signal.alarm(WILL_SECONDS)
    os.execve(said["arguments"][0], said["arguments"], said["environment"])  # noqa: S606


def main(pipe: int, will: int, *shared: int) -> None:
    """Hold the runners. ``will``: the last will's file, or NO_WILL; ``shared``: descriptors to hold
    for as long as this process is a tether."""
    _deaf()
    for fd in (pipe, *shared):
        os.set_inheritable(fd, False)
    if hold(pipe) and will != NO_WILL:
        os.set_inheritable(will, False)
        _become(will)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
