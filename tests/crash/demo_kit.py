"""A command as people run it, and all processes that it starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

MARK = "DEMO_TEST_MARK"  # not OUTLAST_…: the demo drops these from its environment
LIMIT = 90.0  # seconds that a demo may take on a loaded machine
GONE = 30.0  # seconds until nothing is left of an interrupted demo


class Marked:
    """A process; all that it starts carries a mark in its environment."""

    def __init__(self, command: Sequence[str], cwd: Path, **env: str) -> None:
        self.mark = uuid.uuid4().hex
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "OUTLAST_"))}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**kept, MARK: self.mark, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end, and check that it has left no process; return exit code, stdout and
        stderr."""
        stdout, stderr = self.process.communicate(timeout=LIMIT)
        assert self.is_gone()
        return self.process.returncode, stdout, stderr

    def interrupt(self, when: str, number: int) -> tuple[int, str, str]:
        """Send a signal once it has said this; finish."""
        self.read_until(when)
        self.process.send_signal(number)
        return self.finish()

    def read_until(self, text: str) -> str:
        """Read its output up to a line with this text; return what was read."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if text in line:
                return said
        raise AssertionError(f"it ended before it said {text!r}: {self.finish()}")

    def left(self) -> list[psutil.Process]:
        """Return the processes that carry its mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
        return found

    def is_gone(self) -> bool:
        """Return whether all its processes end soon."""
        deadline = time.monotonic() + GONE
        while self.left():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


M = TypeVar("M", bound=Marked)


@contextlib.contextmanager
def ended(started: M) -> Iterator[M]:
    """Give it, and leave none of its processes."""
    try:
        yield started
    finally:
        for process in started.left():
            with contextlib.suppress(psutil.Error):
                process.kill()
        started.process.communicate()
