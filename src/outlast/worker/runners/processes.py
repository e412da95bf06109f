"""Lists the processes of a session.

The session is that of a command that runs as a job, or of a runner that shows no stacks.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from outlast.base.text import line

PROCESSES_MAX = 50  # listed
COMMAND_MAX = 200  # characters of a command
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in a call of the kernel that cannot be interrupted",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "ended, and not waited for",
}
UNSEEN = "its processes cannot be seen on this system"


class Process(NamedTuple):
    """One process at the time of reading."""

    pid: int
    parent: int
    state: str
    command: str


def describe_session(session: int, *, leader: bool = True) -> str:
    """Return the processes of a session as a tree, a line each; ``leader``: include its leader."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # not Linux
        return UNSEEN
    found = [one for name in names if (one := _look(name, session)) is not None]
    shown = found if leader else [one for one in found if one.pid != session]
    lines = list(_lines(shown))
    more = [f"and {len(lines) - PROCESSES_MAX} more"] if len(lines) > PROCESSES_MAX else []
    return "\n".join(lines[:PROCESSES_MAX] + more)


def _look(pid: str, session: int) -> Process | None:
    """Return a process if it belongs to the session; None also if it is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
        state, parent, _, its_session = rest.split()[:4]
        if int(its_session) != session:
            return None
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(8 * COMMAND_MAX).rstrip(b"\0").replace(b"\0", b" ")
    except (OSError, ValueError):
        return None
    name = (words or head.partition(b"(")[2]).decode(errors="replace")
    return Process(int(pid), int(parent), state.decode(), line(name, COMMAND_MAX))


def _lines(found: list[Process]) -> Iterator[str]:
    pids = {one.pid for one in found}
    below: defaultdict[int, list[Process]] = defaultdict(list)
    for one in sorted(found):
        below[one.parent if one.parent in pids else 0].append(one)
    left = [(one, 0) for one in reversed(below[0])]
    while left:
        one, depth = left.pop()
        state = STATES.get(one.state, one.state)
        yield f"{'  ' * min(depth, 20)}{one.pid} {one.command} ({state})"
        left += [(child, depth + 1) for child in reversed(below[one.pid])]
