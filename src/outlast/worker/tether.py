"""The worker's end of the tether: starts the small process that ends runners in its stead.

See ``outlast.runner.tether`` for what that process does. If it dies, it is started again.
"""

from __future__ import annotations

import os
import subprocess
import sys

from outlast.events import emit
from outlast.runner import tether


class Tether:
    """Names the runners' process groups to the tether process, and how long they may go on."""

    def __init__(self, shared_fds: tuple[int, ...] = ()) -> None:
        self._shared_fds = shared_fds
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._groups: set[int] = set()
        self._until = float("inf")

    def start(self) -> None:
        """Start the process, knowing all that this one knows."""
        read, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", tether.__file__, str(read)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(read, *self._shared_fds),
                env=_what_an_interpreter_needs(),
                start_new_session=True,
            )
        finally:
            os.close(read)
        self._say(f"until {self._until!r}", *(f"add {pgid}" for pgid in self._groups))

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
        """End the process; any group still on the tether is killed by it."""
        process, self._process = self._process, None
        if process is not None:
            os.close(self._pipe)
            process.wait()

    @property
    def pid(self) -> int | None:
        """The tether process, or None before the start."""
        return None if self._process is None else self._process.pid

    def _tell(self, *lines: str) -> None:
        if self._process is None:
            return
        if self._process.poll() is not None:
            self._restart()
            return
        self._say(*lines)

    def _say(self, *lines: str) -> None:
        try:
            os.write(self._pipe, "".join(f"{line}\n" for line in lines).encode())
        except BrokenPipeError:
            self._restart()

    def _restart(self) -> None:
        emit("tether_restarted")
        if self._process is not None:
            self._process.wait()
        os.close(self._pipe)
        self.start()


def _what_an_interpreter_needs() -> dict[str, str]:
    """Return the environment that finds Python's libraries; passwords are none of its business."""
    loader = ("LD_", "DYLD_")
    return {name: value for name, value in os.environ.items() if name.startswith(loader)}
