"""Watches a file for writes by inotify, through the C library (Linux)."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import sys
from contextlib import suppress
from pathlib import Path

IN_MODIFY = 0x2
READ_BYTES = 65_536  # of events; the kernel merges equal ones in a row, so one read gets all


class FileWatch:
    """Notices every write to the files that it watches, by any process of this kernel.

    ``interrupt`` may be called from any thread, everything else from one. Raises OSError if there
    is no inotify, or if this user's limit of it is reached.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "inotify is Linux's")
        self._fd = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            os.close(self._fd)
            raise
        self._poll = select.poll()
        for each in (self._fd, self._bell):
            self._poll.register(each, select.POLLIN)

    def follow(self, path: Path) -> None:
        """Watch writes to this file from now on. Raises OSError, for example if it is missing."""
        _call("inotify_add_watch", self._fd, os.fsencode(path), IN_MODIFY)

    def has_events(self, seconds: float = 0.0) -> bool:
        """Return whether there were writes since the last call; wait ``seconds`` for the first."""
        self._poll.poll(seconds * 1000)
        with suppress(BlockingIOError):
            return bool(os.read(self._fd, READ_BYTES))
        return False

    def interrupt(self) -> None:
        """End all waits, now and later."""
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Let go of everything. Once, and last."""
        os.close(self._fd)
        os.close(self._bell)


def _call(name: str, *values: int | bytes) -> int:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    result = int(function(*values))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
