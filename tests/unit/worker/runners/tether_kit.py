"""Small process groups for a tether to hold."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from outlast.runner.tether import groups_of, kill_group

SECONDS = 60.0  # for events that have to happen

# Ignores every signal that can be ignored; has a child of its own; prints when both are up.
PARENT = """
import os, signal, subprocess, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


class Group:
    """A process group of two, parent and child, in a session of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout is not None
        self.pgid = self.process.pid
        self.grandchild = int(self.process.stdout.readline())

    def wait_until_killed(self) -> None:
        assert self.process.wait(SECONDS) == -signal.SIGKILL
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], SECONDS)[0]
        assert ready, "the grandchild holds the pipe open"
        assert self.process.stdout.read() == b"", "the grandchild is gone as well"

    def lives(self) -> bool:
        return self.process.poll() is None and groups_of({self.pgid}) == {self.pgid}

    def close(self) -> None:
        kill_group(self.pgid)
        self.process.wait(SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    made = [Group(), Group()]
    yield made
    for group in made:
        group.close()
