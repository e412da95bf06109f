"""The reading end of a pipe, read by the loop, its descriptor owned and closed here alone.

Not by a transport of the loop: uvloop's closes the number once more than it was opened, and in a
process with threads that number may be another's by then.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from collections.abc import Callable

READ_BYTES = 1 << 16


class Pipe:
    """Hands what comes out of a pipe to ``sink``; ``ended`` is set at its end. Owns ``fd``."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read, READ_BYTES)

    def drain(self) -> None:
        """Take what is there now, and no more: a writer without end must not hold up the loop."""
        if self._fd >= 0:
            waiting = fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4))
            if size := int.from_bytes(waiting, sys.byteorder):
                self._read(size)

    def _read(self, size: int) -> None:
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._sink(data)
        else:
            self.close()

    def close(self) -> None:
        """Close it. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)
            self.ended.set()
