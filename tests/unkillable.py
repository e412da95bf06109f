"""Makes a process that SIGKILL does not end, like one that hangs in a system call."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

PTRACE_SEIZE, PTRACE_DETACH, PTRACE_O_TRACEEXIT = 0x4206, 17, 1 << 6


@contextlib.contextmanager
def held_at_its_exit(pid: int) -> Iterator[None]:
    """Hold the process in its exit, where the kernel waits for its tracer: this thread.

    It is killed and runs no line of its program any more, but is not gone.
    """
    _ptrace(PTRACE_SEIZE, pid, PTRACE_O_TRACEEXIT)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was never killed
            _ptrace(PTRACE_DETACH, pid, 0)


def _ptrace(request: int, pid: int, data: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, pid, None, data):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
