"""Workers under a supervisor: each that ends is restarted, as systemd or Kubernetes would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal

import psutil

from harness.scene import Scene, WorkerProcess
from tests.chaos.bed import Bed

HEARTBEAT, LEASE = 1.0, 6.0
STORE_AWAY = 3  # the exit code of a worker that cannot use its store
SETTINGS = ("--heartbeat", f"{HEARTBEAT:g}", "--lease", f"{LEASE:g}", "--runners", "2")
LONG_LEASE = 40.0  # of one place: a deadline passes within it
MORE = (
    (),
    ("--instance", "chaos-1", "--lease", f"{LONG_LEASE:g}"),
    ("--no-presence",),
    ("--concurrency", "3"),
)


class Member:
    """One place under the supervisor, maybe on a host of its own, and its present worker."""

    def __init__(self, scene: Scene, number: int, url: str, bed: Bed | None = None) -> None:
        self.name = f"worker-{number}"
        self.expected: set[int] = set()  # exit codes that our own deeds explain
        self.busy = False  # a deed that has to be undone is in progress
        self.is_off = False  # its host is, or is about to be
        self._bed = bed
        self.host = None if bed is None else bed.workers[number]
        self._scene = scene
        self._url = url
        self._options: tuple[str, ...] = MORE[number % len(MORE)]
        self.has_long_lease = "--lease" in self._options
        self.process: WorkerProcess | None = None
        self.past: list[WorkerProcess] = []  # with the present one; orphans end by themselves

    def start(self) -> None:
        """Start a worker in this place."""
        self.expected = {STORE_AWAY}
        self.process = WorkerProcess(
            self._url,
            self._scene.journal,
            *SETTINGS,
            *self._options,
            "--log-format",
            "json",
            env={"OUTLAST_TEST_APP": "tests.chaos.tasks:app", **self._place()},
            log=self._scene.folder / f"{self.name}.log",
            prefix=() if self.host is None else self.host.enter(),
        )
        self.past.append(self.process)

    def _place(self) -> dict[str, str]:
        runs = self._scene.folder / "run"
        if self._bed is None or self.host is None:
            return {"OUTLAST_RUN_DIR": str(runs)}
        return {"OUTLAST_RUN_DIR": str(runs / self.name), **self._bed.environment(self.host)}

    @property
    def alive(self) -> bool:
        """Return whether a worker has this place now."""
        return self.process is not None and self.process.process.poll() is None

    @property
    def may_be_harmed(self) -> bool:
        """Return whether a deed may be done to it now."""
        return self.alive and not self.busy

    def below(self) -> tuple[list[psutil.Process], psutil.Process | None]:
        """Return its runners, and the process at the end of its tether, as they are now."""
        runners, tether = [], None
        children = self.process.tree()[1:] if self.process else []
        for child in children:
            with contextlib.suppress(psutil.Error):
                command = " ".join(child.cmdline())
                if "outlast.runner.main" in command:
                    runners.append(child)
                elif "tether.py" in command:
                    tether = child
        return runners, tether

    def kill(self, *, tree: bool) -> None:
        """kill -9 of the worker process, alone or with all below it."""
        assert self.process is not None
        self.expected.add(-signal.SIGKILL)
        self.process.remember()
        if tree:
            self.process.kill_tree()
        else:
            self.process.signal(signal.SIGKILL)

    def lose_host(self) -> None:
        """Expect its end with that of its host, also while it starts."""
        self.is_off = True
        self.expected |= {-signal.SIGKILL, 1}
        if self.process is not None:
            self.process.remember()

    def drain(self) -> None:
        """Ask it to finish, as a deploy does."""
        assert self.process is not None
        self.expected |= {0, -signal.SIGTERM}  # the second: before it listens
        self.process.signal(signal.SIGTERM)


class Supervisor:
    """All members, and the task that restarts them."""

    def __init__(self, members: list[Member], rng: random.Random) -> None:
        self.members = members
        self.odd: list[str] = []  # unexpected ends: no fault of the plan explains them
        self.starts = 0
        self._rng = rng
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start all, and start again what ends."""
        for member in self.members:
            self._start(member)
        self._keeping = asyncio.create_task(self._keep())

    async def is_ready(self) -> bool:
        """Return whether every worker has been ready at least once."""
        return all(each.process and each.process.told("worker_ready") for each in self.members)

    def alive(self) -> list[Member]:
        """Return the members to which a deed may be done."""
        return [each for each in self.members if each.may_be_harmed]

    async def end(self, deadline: float) -> None:
        """Drain all; note each that does not end well."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        for member in self.members:
            if member.alive:
                member.drain()
        until = asyncio.get_running_loop().time() + deadline
        while any(each.alive for each in self.members):
            if asyncio.get_running_loop().time() > until:
                self.odd.append(f"a worker did not drain within {deadline:g} s")
                break
            await asyncio.sleep(0.05)
        for member in self.members:
            self._look(member)

    def kill(self) -> None:
        """Leave nothing behind, in any state."""
        if self._keeping is not None:
            self._keeping.cancel()
        for member in self.members:
            for process in member.past:
                process.end()

    def _start(self, member: Member) -> None:
        member.start()
        self.starts += 1

    def _look(self, member: Member) -> None:
        code = None if member.process is None else member.process.process.poll()
        if code is not None and code not in member.expected:
            self.odd.append(f"{member.name} ended by itself, with code {code}")
            member.expected.add(code)

    async def _keep(self) -> None:
        due: dict[Member, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0.05)
            for member in self.members:
                if member.alive or member.is_off:
                    continue
                self._look(member)
                at = due.setdefault(member, loop.time() + self._rng.uniform(0, 2.5))
                if loop.time() >= at:
                    del due[member]
                    self._start(member)


def send(process: psutil.Process | int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if isinstance(process, int):
            os.kill(process, number)
        else:
            process.send_signal(number)  # not to another one that has its number by now
