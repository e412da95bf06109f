"""Passes on what runners write, without ever waiting for the reader.

Output is passed on as it comes or, for a log that programs read, line by line.
"""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
from collections.abc import Callable

from outlast.runner.tail import last_state

CLOSE_SECONDS = 0.5
RETRY_SECONDS = 0.5
JobName = tuple[int, str]  # id and task
OnLine = Callable[[int, str, JobName | None], None]
OnOutput = Callable[[int, bytes, int | None], None]  # pid, a chunk, its writer if known
LINE_BYTES_MAX = 8_192  # a longer line comes in pieces
QUEUE_BYTES_MAX = 8_000_000  # above that, output is dropped rather than waited for


class Output:
    """Copies runners' output to this process's stderr on a thread; drops it while stderr is
    blocked.

    Attributes:
        dropped: the number of chunks that did not fit.
    """

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.__stderr__.fileno() if fd is None and sys.__stderr__ else fd
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._given = 0  # bytes
        self._written = 0  # bytes; only the thread changes it
        self.dropped = 0
        self._thread = threading.Thread(target=self._copy, name="outlast-output", daemon=True)
        self._thread.start()

    def write(self, pid: int, data: bytes, token: int | None = None) -> None:
        """Pass on a chunk of a runner's output."""
        if self._given - self._written + len(data) > QUEUE_BYTES_MAX:
            self.dropped += 1
            return
        self._given += len(data)
        self._queue.put(data)

    def close(self) -> None:
        """Let the thread write the queued output and end; do not wait long for a blocked pipe."""
        self._queue.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _copy(self) -> None:
        while (data := self._queue.get()) is not None and write_all(self._fd or 2, data):
            self._written += len(data)


def write_all(fd: int, data: bytes) -> bool:
    """Write everything, however long the reader takes; return False if there is no reader."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # another process has made the terminal non-blocking
            select.select([], [fd], [], RETRY_SECONDS)
        except OSError:
            return False
    return True


class Lines:
    """Splits runners' output into lines, separately for each attempt, for ``on_line(pid, text,
    job)``.

    ``job_of`` returns the job of a token.
    """

    def __init__(self, on_line: OnLine, job_of: Callable[[int], JobName | None]) -> None:
        self._on_line = on_line
        self._job_of = job_of
        self._partial: dict[tuple[int, int | None], bytes] = {}

    def write(self, pid: int, data: bytes, token: int | None = None) -> None:
        """Take a chunk of a runner's output; the last line waits until it has ended."""
        whose = (pid, token)
        *lines, rest = (self._partial.pop(whose, b"") + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        if rest:
            self._partial[whose] = rest
        job = None if token is None or not lines else self._job_of(token)
        for line in lines:
            text = last_state(line).decode(errors="replace")
            for at in range(0, len(text) or 1, LINE_BYTES_MAX):
                self._on_line(pid, text[at : at + LINE_BYTES_MAX], job)
