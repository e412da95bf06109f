"""One chaos run: set up, do the faults, wait until everything has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

import outlast
from harness.faketime import HOUR, faked, no_faked_leftovers, write_offset
from harness.nats_server import NatsServer
from harness.proxy import Proxy, proxied
from harness.rounds import MOST, lower_functions
from harness.scene import ROOT, Scene
from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.model.job import ENDED, State
from outlast.store import open_store
from outlast.store.rows import JobFilter
from tests.chaos.deeds import deeds_on
from tests.chaos.disk import Disk
from tests.chaos.enqueuer import BRAKE
from tests.chaos.nemesis import Deed, Ground, Nemesis
from tests.chaos.supervisor import Member, Supervisor
from tests.chaos.tasks import answer_to
from tests.chaos.timetable import Timetable
from tests.chaos.verdict import KEY, Verdict, verdict_of
from tests.conformance.hostile_kit import raw
from tests.crash.payments import EFFECTS

MARK = "OUTLAST_CHAOS"  # in the environment of all that is started
WAKEUP = "OUTLAST_TEST_WAKEUP"  # the same, for the applications' wakeup=
OWN_NATS = "nats"  # as the plan's wakeup: a NATS server of its own, which is harmed, too
ENQUEUERS = 2
BACKLOG_MAX = 25  # unfinished jobs: then the enqueuers wait
READY_SECONDS = 120.0  # for all workers to start
QUIET_SECONDS = 180.0  # until everything has to be terminal
DRAIN_SECONDS = 60.0
DISK_MEGABYTES = {"sqlite": 64, "postgres": 256}
ENCRYPTED_FACTOR = 6
SERVER = {"max_wal_size": "64MB", "min_wal_size": "32MB"}  # on a small disk


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. ``mounts``: whether a small disk can be mounted, and so be filled.
    ``clock``: whether that of the database is stepped. ``asynchronous``: where hosts are apart,
    commits do not wait for the standby. ``encrypted``: all payloads are."""

    store: str
    seconds: float
    seed: int
    folder: Path
    workers: int = 3
    wakeup: str | None = None
    only: str | None = None
    keep: bool = False
    mounts: bool = False
    schedules: int = 0
    clock: bool = False
    asynchronous: bool = False
    encrypted: bool = False

    def mark(self) -> str:
        """Return the mark of all processes of this run, which those of no other run have."""
        return str(self.folder.resolve())

    def command(self) -> str:
        """Return the command that runs the same plan again."""
        more = [f"--only {shlex.quote(self.only)}"] if self.only else []
        more += [f"--wakeup {shlex.quote(self.wakeup)}"] if self.wakeup else []
        more += [f"--workers {self.workers}"] if self.workers != 3 else []
        more += [f"--schedules {self.schedules}"] if self.schedules else []
        more += ["--clock"] if self.clock else []
        more += ["--asynchronous"] if self.asynchronous else []
        more += ["--encrypted"] if self.encrypted else []
        start = f"OUTLAST_TEST_MOST={MOST} " if MOST else ""
        start += f"python -m tests.chaos {self.store} --seconds {self.seconds:g} --seed {self.seed}"
        return " ".join([start, *more])


class Chaos:
    """Plays one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._clients_url = ""
        self._clients_prefix: tuple[str, ...] = ()
        self._clients_env: dict[str, str] = {}
        self._clients_python = sys.executable

    async def play(self) -> Verdict:
        """Play it and judge. Leaves no process behind, also after an error."""
        try:
            async with self._ground() as ground:
                return await self._play(ground)
        finally:
            end_marked()

    async def _play(self, ground: Ground) -> Verdict:
        plan, supervisor = self._plan, ground.supervisor
        nemesis = Nemesis(ground, self._deeds(ground), plan.seed)
        enqueuers = [self._enqueuer(number) for number in range(ENQUEUERS)]
        supervisor.begin()
        await ground.scene.until(supervisor.is_ready, "workers that are ready", READY_SECONDS)
        braking = asyncio.create_task(self._brake(ground.scene))
        await ground.timetable.put(plan.schedules)
        try:
            await self._storm(ground, nemesis, enqueuers)
        finally:
            braking.cancel()
            for each in enqueuers:
                each.send_signal(signal.SIGTERM)
        if ground.clock is not None:
            write_offset(ground.clock, HOUR)  # all that was put off meanwhile is due
        codes = [await asyncio.to_thread(each.wait, DRAIN_SECONDS) for each in enqueuers]
        supervisor.odd += [f"an enqueuer ended with code {code}" for code in codes if code]
        await ground.timetable.pause()
        await self._resume(ground.scene.url)
        await self._answer(ground.scene)
        quiet = await self._until_all_ended(ground.scene)
        await supervisor.end(DRAIN_SECONDS)
        return await verdict_of(ground, nemesis, quiet)

    async def _storm(
        self, ground: Ground, nemesis: Nemesis, enqueuers: list[subprocess.Popen[bytes]]
    ) -> None:
        await nemesis.torment(self._plan.seconds)

    # --- the stage -----------------------------------------------------------------------------

    def _member(self, scene: Scene, number: int, url: str) -> Member:
        return Member(scene, number, url)

    def _deeds(self, ground: Ground) -> dict[str, Deed]:
        return deeds_on(ground, self._plan.only)

    @contextlib.asynccontextmanager
    async def _ground(self) -> AsyncIterator[Ground]:
        async with contextlib.AsyncExitStack() as stack:
            plan = self._plan
            clock = self._clock(stack)
            server, disk, url = self._store(stack, clock)
            messenger = self._messenger(stack)
            scene = await self._scene(stack, url)
            proxies: list[Proxy] = []
            members = []
            for number in range(plan.workers + 1):  # the last one is for the enqueuers
                through, proxy = url, None
                if server is not None:
                    proxy, through = await stack.enter_async_context(proxied(url))
                    proxies.append(proxy)
                if number < plan.workers:
                    members.append(self._member(scene, number, through))
            self._clients_url = through
            supervisor = Supervisor(members, random.Random(plan.seed))
            stack.callback(supervisor.kill)
            yield Ground(
                scene=scene,
                supervisor=supervisor,
                disk=disk,
                server=server,
                proxies=proxies,
                messenger=messenger,
                clock=clock,
                timetable=Timetable(scene.store),
            )

    async def _scene(self, stack: contextlib.AsyncExitStack, url: str) -> Scene:
        """Open the store, with a table for the tasks' own effects."""
        store = open_store(url)
        await store.open()
        stack.push_async_callback(store.close)
        if MOST and self._plan.store != "sqlite":
            lower_functions(url, MOST)
        await self._prepare(url)
        return Scene(url, self._plan.folder, store, app="tests.chaos.tasks:app")

    def _store(
        self, stack: contextlib.AsyncExitStack, clock: Path | None
    ) -> tuple[PostgresServer | None, Disk | None, str]:
        """Start the store, on a small disk where that is possible."""
        size = DISK_MEGABYTES[self._plan.store]
        if self._plan.encrypted:  # what is encrypted cannot be compressed
            size *= ENCRYPTED_FACTOR
        if self._plan.store == "sqlite":
            folder = Path(tempfile.mkdtemp(prefix="outlast-chaos-store-"))
            stack.callback(lambda: subprocess.run(["rm", "-rf", str(folder)], check=False))
            (folder / "disk").mkdir()
            disk = self._disk(stack, folder / "disk", size)
            return None, disk, f"sqlite:///{folder}/disk/chaos.db"
        server = PostgresServer(settings=SERVER, env=faked(clock) if clock else {})
        stack.callback(server.dispose)
        disk = self._disk(stack, server.data, size)
        server.start()
        return server, disk, server.create_database("chaos")

    def _clock(self, stack: contextlib.AsyncExitStack) -> Path | None:
        """Return the file that says how far the database's clock is off, where it is stepped."""
        if not self._plan.clock:
            return None
        stack.enter_context(no_faked_leftovers())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-clock-")))
        folder.chmod(0o755)  # the server may be another user
        write_offset(folder / "clock", 0)
        return folder / "clock"

    def _messenger(self, stack: contextlib.AsyncExitStack) -> NatsServer | None:
        """Set the applications' wake-up; start its server where none is named."""
        wakeup, server = self._plan.wakeup, None
        if wakeup == OWN_NATS:
            server = stack.enter_context(NatsServer())
            wakeup = server.url
        if wakeup:
            os.environ[WAKEUP] = wakeup
        return server

    def _disk(self, stack: Any, folder: Path, size: int) -> Disk | None:
        if not self._plan.mounts:
            return None
        disk = Disk(folder, size)
        stack.callback(disk.close)
        return disk

    async def _prepare(self, url: str) -> None:
        async with raw(url) as file:
            assert await file.run(EFFECTS)

    def _enqueuer(self, number: int) -> subprocess.Popen[bytes]:
        plan = self._plan
        with (plan.folder / f"enqueuer-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *self._clients_prefix,
                    self._clients_python,
                    "-m",
                    "tests.chaos.enqueuer",
                    f"e{number}",
                    str(plan.folder),
                    str(plan.seed),
                ],
                cwd=ROOT,
                env={**os.environ, "OUTLAST_URL": self._clients_url, **self._clients_env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def _resume(self, url: str) -> None:
        """End the pauses that enqueuers left behind when they were ended."""
        app = outlast.App(url)
        for paused in await app.pauses():
            await app.resume(task=paused.name)
        await app.close()

    async def _answer(self, scene: Scene) -> None:
        """Send each event that may not have been sent: one that was sent before wakes no job once
        more."""
        key = os.environ.get(KEY)
        payloads = [outlast.Encryption({"chaos": key})] if key else []
        app = outlast.App(scene.url, payloads=payloads)
        for state in (State.QUEUED, State.RUNNING):
            left = JobFilter(state=state, task="asks", limit=500)
            for job in await scene.store.inspector.jobs(left):
                await app.send_event(answer_to(job.id), "late")
        await app.close()

    # --- during the faults ------------------------------------------------------------------------

    async def _brake(self, scene: Scene) -> None:
        """Let the enqueuers wait while there is more than can be done soon."""
        brake = scene.folder / BRAKE
        while True:
            await asyncio.sleep(0.5)
            unfinished = await self._unfinished(scene)
            if unfinished is None or unfinished > BACKLOG_MAX:
                brake.touch()
            else:
                brake.unlink(missing_ok=True)

    async def _unfinished(self, scene: Scene) -> int | None:
        try:
            counts = await scene.store.inspector.counts()
        except StoreUnavailable:
            return None
        return sum(number for (_, state), number in counts.items() if state not in ENDED)

    async def _until_all_ended(self, scene: Scene) -> float:
        """Wait for the end of all jobs; return after how many seconds it came, or the limit."""
        began_at = time.monotonic()
        while (spent := time.monotonic() - began_at) < QUIET_SECONDS:
            if await self._unfinished(scene) == 0:
                return spent
            await asyncio.sleep(0.2)
        return QUIET_SECONDS


def end_marked() -> None:
    """Kill all other processes with our mark: nothing of a run is left behind."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.environ().get(MARK) == os.environ.get(MARK)
            if marked and process.pid != os.getpid():
                process.kill()
