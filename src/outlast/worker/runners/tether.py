"""The worker's end of the tether: starts the small process that kills the runners if the worker
cannot.

See ``outlast.runner.tether`` for what that process does. If it dies, or has not read for so long
that its pipe is full, it is started again; if that fails, with the next message, as at each beat.
"""

from __future__ import annotations

import os
import subprocess
import sys

from outlast.errors import text_of
from outlast.events import emit
from outlast.runner import tether
from outlast.runner.tether import EMPTY_SECONDS, NO_WILL, kill_group

STOP_SECONDS = EMPTY_SECONDS + 5.0  # for the process to end what is left, and itself


class Tether:
    """Names the runners' process groups to the tether process, and how long they may go on.

    ``shared_fds`` are held by it until the groups are empty; ``will_fd``: the file of a last will.
    """

    def __init__(self, shared_fds: tuple[int, ...] = (), will_fd: int = NO_WILL) -> None:
        self._shared_fds = shared_fds
        self._will_fd = will_fd
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._groups: set[int] = set()
        self._until = float("inf")

    def start(self) -> None:
        """Start the process, knowing all that this one knows. Raises OSError if it cannot be."""
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
        os.set_blocking(write, False)  # this loop must not wait for a process that was stopped
        self._write(f"until {self._until!r}", *(f"add {pgid}" for pgid in self._groups))

    def add(self, pgid: int) -> None:
        """Take a runner's process group on the tether."""
        self._groups.add(pgid)
        self._tell(f"add {pgid}")

    def drop(self, pgid: int) -> None:
        """Let go of a group that is empty."""
        self._groups.discard(pgid)
        self._tell(f"drop {pgid}")

    def hold_until(self, boottime: float) -> None:
        """Let runners go on until then, on CLOCK_BOOTTIME."""
        self._until = boottime
        self._tell(f"until {boottime!r}")

    def stop(self) -> None:
        """End the process; any group still on the tether is killed by it, or else from here. No
        will is carried out: this worker leaves by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        self._write("quit")
        self._close_pipe()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it was stopped, and does not react
            _end(process)
            for pgid in self._groups:
                kill_group(pgid)

    @property
    def pid(self) -> int | None:
        """The tether process, or None before the start."""
        return None if self._process is None else self._process.pid

    def is_lost(self) -> bool:
        """Whether the process has died, though it was not stopped. From any thread."""
        process = self._process
        return process is not None and process.poll() is not None

    def children(self) -> set[int]:
        """Return the pids that this worker has started: this process, and the runners on it."""
        return self._groups if self.pid is None else {self.pid, *self._groups}

    def _tell(self, *lines: str) -> None:
        if self._process is None:
            return
        if self._process.poll() is not None or not self._write(*lines):
            self._restart(self._process)

    def _write(self, *lines: str) -> bool:
        """Return whether the pipe has taken it: False if it has no reader."""
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
        except (
            OSError
        ) as error:  # no descriptor, no process: there may be one with the next message
            emit("tether_missing", error=text_of(error))
        else:
            emit("tether_restarted")

    def _close_pipe(self) -> None:
        """Close it once: its number may be another's by the next time."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _choose_environment() -> dict[str, str]:
    """Return the environment that finds Python's libraries; passwords are none of its business.

    A libfaketime that the loader preloads needs its settings, too: without them the tether would
    read another clock than its worker, and end all runners at once."""
    loader = ("LD_", "DYLD_", "FAKETIME")
    return {name: value for name, value in os.environ.items() if name.startswith(loader)}
