"""The demo's workers: real processes, started, killed and ended; none is ever left behind.

The workers are in sessions of their own, so that a terminal's Ctrl-C reaches the demo alone,
which then ends them in order. Should the demo itself be killed, a tether process (the one that
a worker has for its runners) sees the end of its pipe and kills the workers, whose own tethers
and the kernel do the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from outlast.base.clock import SYSTEM
from outlast.base.config import URL_VARIABLE
from outlast.worker.runners.tether import Tether

ROOT = Path(__file__).parents[2]
APPLICATION = "examples.census.app:app"
DRAIN_SECONDS = 1
"""What a worker's job gets to finish when the demo is interrupted."""
END_SECONDS = 6.0
"""How long the workers may take to end by themselves."""
LOG_TAIL = 1
"""Lines of a worker's log that are shown when it ends unasked."""

_LINUX = sys.platform.startswith("linux")
_ROLES = {"outlast.runner.main": "runner", "tether.py": "tether", "cat-file": "git"}


class DemoWorker:
    """One worker process; ``killed_at`` (boot seconds) is set once the demo has killed it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self.process = process
        self.killed_at: float | None = None

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self.process.pid

    def is_alive(self) -> bool:
        """Whether the worker process still runs."""
        return self.process.poll() is None

    def kill_tree(self) -> list[str]:
        """Kill the worker and all below it at once; return what they were, with their ids."""
        if not self.is_alive():
            return []
        killed = kill_tree(self.pid)
        self.killed_at = SYSTEM.boot()
        self.process.wait()
        return killed

    def read_log_tail(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text("utf-8", "replace").split("\n")
            return " ".join([line for line in lines if line.strip()][-LOG_TAIL:])
        return ""


class DemoWorkers:
    """The workers of one demo. A context manager: on leaving it no process is left."""

    def __init__(self, url: str, queue: str, folder: Path) -> None:
        self._url = url
        self._queue = queue
        self._folder = folder
        self._tether = Tether()
        self.by_name: dict[str, DemoWorker] = {}

    def __enter__(self) -> Self:
        self._tether.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._tether.stop()

    def start(self, name: str) -> DemoWorker:
        """Start a worker. Raises OSError when its log cannot be written."""
        log = self._folder / f"worker-{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._command(name),
                cwd=ROOT,  # from where a worker can import this example
                env={**os.environ, URL_VARIABLE: self._url},  # it may hold a password
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._tether.add(process.pid)
        member = self.by_name[name] = DemoWorker(name, process, log)
        return member

    def find_lost(self) -> DemoWorker | None:
        """Return a worker that has ended without being asked to."""
        return next(
            (m for m in self.by_name.values() if not m.killed_at and not m.is_alive()), None
        )

    async def end(self) -> None:
        """Ask all workers to stop, and wait until they have; kill those that do not."""
        for member in self._list_alive():
            member.process.terminate()
        deadline = SYSTEM.boot() + END_SECONDS
        while self._list_alive() and SYSTEM.boot() < deadline:
            await SYSTEM.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """Kill what is left of all workers, at once."""
        for member in self._list_alive():
            member.kill_tree()

    def _list_alive(self) -> list[DemoWorker]:
        return [member for member in self.by_name.values() if member.is_alive()]

    def _command(self, name: str) -> list[str]:
        worker = [sys.executable, "-m", "outlast", "worker", APPLICATION]
        drain = ["--drain-timeout", str(DRAIN_SECONDS)]
        return [*worker, "--name", name, "--queues", self._queue, "--runners", "1", *drain]


def kill_tree(pid: int) -> list[str]:
    """Stop the process and all below it, so that none reacts to a neighbour's death; then kill.

    Returns what they were: ``worker 17``, ``runner 18`` and so on.
    """
    killed: dict[int, str] = {}
    while new := {each: name for each, name in _tree(pid) if each not in killed}:
        for each in new:
            _send(each, signal.SIGSTOP)
        killed |= new
    for each in killed:
        _send(each, signal.SIGKILL)
    return [f"{name} {each}" for each, name in killed.items()]


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _tree(pid: int) -> Iterator[tuple[int, str]]:
    """The process and all below it, each with what it is."""
    children: dict[int, list[tuple[int, str]]] = {}
    for each, parent, command in _processes():
        children.setdefault(parent, []).append((each, _role(command)))
    yield pid, "worker"
    level = [pid]
    while level:
        below = [child for parent in level for child in children.get(parent, [])]
        yield from below
        level = [each for each, _ in below]


def _role(command: str) -> str:
    return next((role for mark, role in _ROLES.items() if mark in command), "process")


def _processes() -> Iterator[tuple[int, int, str]]:
    """All processes of this machine: id, parent, command."""
    return _from_proc() if _LINUX else _from_ps()


def _from_proc() -> Iterator[tuple[int, int, str]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                status = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(entry.name), int(status[1]), command.decode("utf-8", "replace")


def _from_ps() -> Iterator[tuple[int, int, str]]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    for entry in listing.stdout.splitlines():
        pid, parent, command = [*entry.split(None, 2), ""][:3]
        yield int(pid), int(parent), command
