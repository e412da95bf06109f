"""Starts and feeds the tether: the small process that kills the runners if the worker cannot.

If that process (``outlast.runner.tether``) dies, or reads nothing until its pipe is full, the next
message starts it again. Each heartbeat sends a message, so a start that fails is soon retried.
"""

from __future__ import annotations

import os
import subprocess
import sys

from outlast.errors import text_of
from outlast.events import emit
from outlast.runner import tether
from outlast.runner.tether import EMPTY_SECONDS, NO_WILL, kill_group

STOP_SECONDS = EMPTY_SECONDS + 5.0  # for the process to kill what is left and end


class Tether:
    """Tells the tether process which sessions the runners have, and until when they may continue.
    The process keeps ``shared_fds`` open until the groups are empty; ``will_fd`` is the file of the
    last will (``worker/lease/last_will.py``)."""

    def __init__(self, shared_fds: tuple[int, ...] = (), will_fd: int = NO_WILL) -> None:
        self._shared_fds = shared_fds
        self._will_fd = will_fd
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._groups: set[int] = set()
        self._until = float("inf")

    def start(self) -> None:
        """Start the process, and tell it the groups and the time. Raises OSError if that fails."""
        read, write = os.pipe()
        fds = (read, self._will_fd, *self._shared_fds)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", tether.__file__, *map(str, fds)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[fd for fd in fds if fd != NO_WILL],
                env=_choose_environment(),
                start_new_session=True,
            )
        except BaseException:
            os.close(write)
            raise
        finally:
            os.close(read)
        self._pipe = write
        os.set_blocking(write, False)  # this loop must not wait for a stopped process
        self._write(f"until {self._until!r}", *(f"add {pgid}" for pgid in self._groups))

    def add(self, pgid: int) -> None:
        """Put a runner's process group on the tether."""
        self._groups.add(pgid)
        self._tell(f"add {pgid}")

    def drop(self, pgid: int) -> None:
        """Take an empty group off the tether."""
        self._groups.discard(pgid)
        self._tell(f"drop {pgid}")

    def hold_until(self, boottime: float) -> None:
        """Let runners continue until then, on CLOCK_BOOTTIME."""
        self._until = boottime
        self._tell(f"until {boottime!r}")

    def stop(self) -> None:
        """End the process, and any group on the tether. The worker exits by itself, so its last
        will is not carried out."""
        process, self._process = self._process, None
        if process is None:
            return
        self._write("quit")
        self._close_pipe()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it is stopped, and does not react
            _end(process)
            for pgid in self._groups:
                kill_group(pgid)

    @property
    def pid(self) -> int | None:
        """The pid of the tether process, or None before the start."""
        return None if self._process is None else self._process.pid

    def is_lost(self) -> bool:
        """Whether the process has died without ``stop``. From any thread."""
        process = self._process
        return process is not None and process.poll() is not None

    def children(self) -> set[int]:
        """Return the pids that this worker has started: the tether's, and the runners on it."""
        return self._groups if self.pid is None else {self.pid, *self._groups}

    def _tell(self, *lines: str) -> None:
        if self._process is None:
            return
        if self._process.poll() is not None or not self._write(*lines):
            self._restart(self._process)

    def _write(self, *lines: str) -> bool:
        """Write lines; return whether the pipe took them: not if it is full or has no reader."""
        try:
            os.write(self._pipe, "".join(f"{line}\n" for line in lines).encode())
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    def _restart(self, process: subprocess.Popen[bytes]) -> None:
        _end(process)
        self._close_pipe()
        try:
            self.start()
        except OSError as error:
            # no free descriptor, or no free process: the next message tries again
            emit("tether_missing", error=text_of(error))
        else:
            emit("tether_restarted")

    def _close_pipe(self) -> None:
        """Close the pipe once: its number may belong to another file later."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _choose_environment() -> dict[str, str]:
    """Return the variables by which the process finds Python's libraries, and no passwords. The
    settings of a preloaded libfaketime are among them: otherwise the tether would read another
    clock and kill all runners at once."""
    loader = ("LD_", "DYLD_", "FAKETIME")
    return {name: value for name, value in os.environ.items() if name.startswith(loader)}
