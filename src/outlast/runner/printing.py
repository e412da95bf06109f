"""Marks the output of attempts: text that Python code writes is sent with its attempt's token.

The runner's stdout and stderr are one pipe, which many attempts share. So ``sys.stdout`` and
``sys.stderr`` find the writing attempt as ``outlast.current()`` does, and put a head before the
text: the token, and the number of bytes that follow, which the worker removes
(``worker/runners/output.py``). Output of C code or a child process has no head.

A piece with its head is at most as long as a pipe takes in one write (PIPE_BUF), so that pieces of
several writers do not mix. Where user code has redirected the descriptor, there are none.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

HEAD = b"\x1eoutlast %d %d\x1f"  # token, bytes
PIECE_MAX = select.PIPE_BUF - 64  # bytes; with its head it is below PIPE_BUF


class Tagged(io.BufferedIOBase):
    """A binary stream to a descriptor. ``token_of`` returns the token of the writing attempt."""

    def __init__(self, fd: int, token_of: Callable[[], int | None]) -> None:
        self._fd = fd
        self._token_of = token_of
        self._pipe = find_identity(fd)
        self._partial: dict[int, bytes] = {}  # unfinished lines, by token
        self._renew_lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()  # a signal handler or a finalizer may print meanwhile
        self._is_joining = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Only flush: a task that closes the process's stream must not affect others."""
        self.flush()

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Write whole lines; the rest waits for the end of its line, or for a flush."""
        token = self._token_of()
        if token is None:
            write_all(self._fd, bytes(data))
            return len(data)
        with self._lock:
            if self._is_joining:  # this thread is in _join, further up its stack
                self._put(token, bytes(data))
            else:
                self._join(token, bytes(data))
        return len(data)

    def _join(self, token: int, data: bytes) -> None:
        self._is_joining = True
        try:
            text = self._partial.pop(token, b"") + data
            end = len(text) if len(text) >= PIECE_MAX else text.rfind(b"\n") + 1
            if end < len(text):
                self._partial[token] = text[end:]
            self._put(token, text[:end])
        finally:
            self._is_joining = False

    def flush(self) -> None:
        """Write unfinished lines, too."""
        if self._partial:
            with self._lock:
                partial, self._partial = self._partial, {}
                for token, text in partial.items():
                    self._put(token, text)

    def _put(self, token: int, text: bytes) -> None:
        if text and find_identity(self._fd) != self._pipe:
            write_all(self._fd, text)
            return
        for at in range(0, len(text), PIECE_MAX):
            piece = text[at : at + PIECE_MAX]
            write_all(self._fd, HEAD % (token, len(piece)) + piece)


def find_identity(fd: int) -> tuple[int, int] | None:
    """Return what tells the descriptor's file or pipe from others; None if it is closed."""
    try:
        stat = os.fstat(fd)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, in as many calls as that takes. OSError where a call fails."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


_streams: list[Tagged] = []


def tag_output(token_of: Callable[[], int | None]) -> None:
    """Replace ``sys.stdout`` and ``sys.stderr`` of this process by such streams."""
    sys.stdout = _text(Tagged(1, token_of), sys.stdout)
    sys.stderr = _text(Tagged(2, token_of), sys.stderr)


def _text(stream: Tagged, old: TextIO) -> TextIO:
    old.flush()
    _streams.append(stream)
    buffer: Any = stream  # a BufferedIOBase; the type stubs ask for more
    return io.TextIOWrapper(buffer, old.encoding, old.errors, write_through=True)


def flush_tagged() -> None:
    """Write the unfinished lines that wait; they are lost if the descriptor cannot be written."""
    for stream in _streams:
        with contextlib.suppress(OSError):
            stream.flush()
