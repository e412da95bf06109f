"""Passes on what runners write, without ever waiting for whoever reads it."""

from __future__ import annotations

import os
import queue
import sys
import threading

CLOSE_SECONDS = 0.5
QUEUE_MAX = 1_000  # chunks; above that, output is dropped rather than waited for


class Output:
    """Copies runners' output to this process's stderr on a thread; drops when it is blocked."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.__stderr__.fileno() if fd is None and sys.__stderr__ else fd
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE_MAX)
        self.dropped = 0
        self._thread = threading.Thread(target=self._copy, name="outlast-output", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
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
