"""Passes on what runners write, without ever waiting for the reader: as it comes, or, for a
log that programs read, line by line."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable

from outlast.runner.tail import last_state

CLOSE_SECONDS = 0.5
JobName = tuple[int, str]  # id and task
OnLine = Callable[[int, str, JobName | None], None]
LINE_BYTES_MAX = 8_192  # a longer line comes in pieces
QUEUE_MAX = 1_000  # chunks; above that, output is dropped rather than waited for


class Output:
    """Copies runners' output to this process's stderr on a thread; drops when it is blocked."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.__stderr__.fileno() if fd is None and sys.__stderr__ else fd
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE_MAX)
        self.dropped = 0
        self._thread = threading.Thread(target=self._copy, name="outlast-output", daemon=True)
        self._thread.start()

    def write(self, pid: int, data: bytes, token: int | None = None) -> None:
        """Pass on a chunk of a runner's output."""
        try:
            self._queue.put_nowait(data)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Let the thread write what is queued and end; do not wait long for a blocked pipe."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self.dropped += 1
        self._thread.join(CLOSE_SECONDS)

    def _copy(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                os.write(self._fd or 2, data)
            except OSError:
                return


class KeptOutput:
    """Passes on what runners write, and hands what is known to be an attempt's to ``keep``."""

    def __init__(
        self, write: Callable[[int, bytes, int | None], None], keep: Callable[[int, bytes], None]
    ) -> None:
        self._write = write
        self._keep = keep

    def write(self, pid: int, data: bytes, token: int | None = None) -> None:
        """Take a chunk of a runner's output."""
        self._write(pid, data, token)
        if token is not None:
            self._keep(token, data)


class Lines:
    """Cuts what runners write into lines, each attempt's own, for ``on_line(pid, text, job)``.

    ``job_of`` returns which job a token is an attempt of.
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
            self._on_line(pid, last_state(line).decode(errors="replace"), job)
