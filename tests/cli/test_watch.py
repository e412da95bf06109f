"""`outlast stats --watch` for as long as many refreshes take, on a terminal that is resized."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.conftest import environment

REFRESHES = 300
SLACK = 100  # objects that may come and go; a leak would be one of each refresh, 250

PROGRAM = """
import asyncio, gc, json, os, sys
from outlast.cli import main
from outlast.base.clock import SystemClock
seen = []
async def sleep(self, seconds):  # between two refreshes
    if len(seen) in (50, REFRESHES):
        gc.collect()
    seen.append((len(gc.get_objects()), len(os.listdir("/proc/self/fd"))))
    if len(seen) > REFRESHES:
        with open("seen.json", "w") as file:
            json.dump([seen[50], seen[REFRESHES]], file)
        raise KeyboardInterrupt
    await asyncio.sleep(0)
main(["migrate"])
SystemClock.sleep = sleep
sys.exit(main(["stats", "--watch", *sys.argv[1:]]))
"""


@pytest.mark.slow_but("json")
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["table", "json"])
def test_refreshes_leave_nothing_behind(flags: tuple[str, ...], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        watching = subprocess.Popen(
            [sys.executable, "-c", f"REFRESHES = {REFRESHES}\n{PROGRAM}", *flags],
            cwd=tmp_path,
            env=environment(OUTLAST_URL="sqlite:///q.db", TERM="xterm"),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        with watching:
            _read(ours, watching)
            assert watching.stderr is not None
            assert watching.stderr.read() == b""
            assert watching.wait(60) == 130
    finally:
        os.close(ours)
    early, late = json.loads((tmp_path / "seen.json").read_text())
    assert late[0] < early[0] + SLACK, f"objects: {early[0]}, {late[0]}"
    assert late[1] == early[1], "descriptors"


def _read(terminal: int, program: subprocess.Popen[bytes]) -> None:
    """Read until the program ends; make the terminal smaller and larger meanwhile."""
    reads = 0
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # it has ended
            return
        if not data:
            return
        reads += 1
        if reads % 10 == 0:
            size = struct.pack("HHHH", 1 + reads % 50, 1 + reads * 7 % 200, 0, 0)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
            program.send_signal(signal.SIGWINCH)
