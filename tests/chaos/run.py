"""One chaos run: the stage is set, the storm passes, everything has to end, and is judged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import psutil

from outlast.errors import StoreUnavailable
from outlast.model.job import ENDED
from outlast.store import open_store
from outlast.store.reads import JobFilter, JobRow
from tests.chaos import judge
from tests.chaos.crew import Crew, Member
from tests.chaos.disk import Disk
from tests.chaos.enqueuer import BRAKE
from tests.chaos.nemesis import Ground, Nemesis
from tests.crash.harness import ROOT, Scene, boot
from tests.crash.payments import EFFECTS
from tests.crash.proxy import Proxy, proxied
from tests.servers import PostgresServer

MARK = "OUTLAST_CHAOS"  # in the environment of all that is started
ENQUEUERS = 2
BACKLOG_MAX = 25  # unfinished jobs: then the enqueuers wait
READY_SECONDS = 120.0  # for all workers to start
QUIET_SECONDS = 180.0  # until everything has to be terminal
DRAIN_SECONDS = 60.0
DISK_MEGABYTES = {"sqlite": 64, "postgres": 256}
SERVER = {"max_wal_size": "64MB", "min_wal_size": "32MB"}  # on a small disk
PAGE = 500


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. ``mounts``: whether a small disk can be mounted, and so be filled."""

    store: str
    seconds: float
    seed: int
    folder: Path
    workers: int = 3
    wakeup: str | None = None
    only: str | None = None
    keep: bool = False
    mounts: bool = False

    def command(self) -> str:
        """Return the command that runs the same plan again."""
        more = [f"--only {shlex.quote(self.only)}"] if self.only else []
        more += [f"--wakeup {shlex.quote(self.wakeup)}"] if self.wakeup else []
        more += [f"--workers {self.workers}"] if self.workers != 3 else []
        start = f"python -m tests.chaos {self.store} --seconds {self.seconds:g} --seed {self.seed}"
        return " ".join([start, *more])


class Verdict(msgspec.Struct, kw_only=True):
    """What came of it. ``events``: what the workers' logs tell, by name."""

    violations: list[str]
    jobs: Counter[str]
    tasks: Counter[str]
    done: Counter[str]
    phases: Counter[str]
    events: Counter[str]
    outcomes: Counter[str]
    recoveries: list[judge.Recovery]
    accepted: int
    attempts: int
    done_twice: int
    refused: Counter[str]
    late_by: float
    worker_starts: int
    quiet_seconds: float
    verified: str


class Chaos:
    """Plays one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def play(self) -> Verdict:
        """Play it and judge. Leaves no process behind, whatever happens."""
        try:
            async with self._ground() as ground:
                return await self._play(ground)
        finally:
            end_marked()

    async def _play(self, ground: Ground) -> Verdict:
        plan, crew = self._plan, ground.crew
        nemesis = Nemesis(ground, plan.seed, plan.only)
        enqueuers = [self._enqueuer(number) for number in range(ENQUEUERS)]
        crew.begin()
        await ground.scene.until(crew.is_ready, "workers that are ready", READY_SECONDS)
        braking = asyncio.create_task(self._brake(ground.scene))
        try:
            await nemesis.torment(plan.seconds)
        finally:
            braking.cancel()
            for each in enqueuers:
                each.send_signal(signal.SIGTERM)
        codes = [await asyncio.to_thread(each.wait, DRAIN_SECONDS) for each in enqueuers]
        crew.odd += [f"an enqueuer ended with code {code}" for code in codes if code]
        quiet = await self._until_all_ended(ground.scene)
        await crew.end(DRAIN_SECONDS)
        return await self._judge(ground, nemesis, quiet)

    # --- the stage -----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _ground(self) -> AsyncIterator[Ground]:
        async with contextlib.AsyncExitStack() as stack:
            plan = self._plan
            server, disk, url = self._store(stack)
            store = open_store(url)
            await store.open()
            stack.push_async_callback(store.close)
            await self._prepare(url)
            scene = Scene(url, plan.folder, store)
            proxies: list[Proxy] = []
            members = []
            for number in range(plan.workers + 1):  # the last one is for the enqueuers
                through, proxy = url, None
                if server is not None:
                    proxy, through = await stack.enter_async_context(proxied(url))
                    proxies.append(proxy)
                if number < plan.workers:
                    members.append(Member(scene, number, through))
            self._clients_url = through
            crew = Crew(members, random.Random(plan.seed))
            stack.callback(crew.kill)
            yield Ground(scene=scene, crew=crew, disk=disk, server=server, proxies=proxies)

    def _store(
        self, stack: contextlib.ExitStack | contextlib.AsyncExitStack
    ) -> tuple[PostgresServer | None, Disk | None, str]:
        """Start the store, on a small disk where that is possible."""
        size = DISK_MEGABYTES[self._plan.store]
        if self._plan.store == "sqlite":
            folder = Path(tempfile.mkdtemp(prefix="outlast-chaos-store-"))
            stack.callback(lambda: subprocess.run(["rm", "-rf", str(folder)], check=False))
            (folder / "disk").mkdir()
            disk = self._disk(stack, folder / "disk", size)
            return None, disk, f"sqlite:///{folder}/disk/chaos.db"
        server = PostgresServer(settings=SERVER)
        stack.callback(server.dispose)
        disk = self._disk(stack, server.data, size)
        server.start()
        return server, disk, server.create_database("chaos")

    def _disk(self, stack: Any, folder: Path, size: int) -> Disk | None:
        if not self._plan.mounts:
            return None
        disk = Disk(folder, size)
        stack.callback(disk.close)
        return disk

    async def _prepare(self, url: str) -> None:
        """Make the table for the tasks' own effects."""
        if url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
                file.execute(EFFECTS)
            return
        connection = await asyncpg.connect(url)
        await connection.execute(EFFECTS)
        await connection.close()

    def _enqueuer(self, number: int) -> subprocess.Popen[bytes]:
        plan = self._plan
        with (plan.folder / f"enqueuer-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.chaos.enqueuer",
                    f"e{number}",
                    str(plan.folder),
                    str(plan.seed),
                ],
                cwd=ROOT,
                env={**os.environ, "OUTLAST_URL": self._clients_url, **wakeup(plan)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    # --- while it lasts ------------------------------------------------------------------------

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

    # --- the verdict ---------------------------------------------------------------------------

    async def _judge(self, ground: Ground, nemesis: Nemesis, quiet: float) -> Verdict:
        scene, inspector = ground.scene, ground.scene.store.inspector
        jobs = await self._jobs(scene)
        closed = await self._closed(scene)
        run = judge.Run(
            accepted={line["job"] for line in lines_of(scene.folder, "ledger-*")},
            journal=list(lines_of(scene.folder, "journal")),
            faults=list(lines_of(scene.folder, "faults")),
            jobs=jobs,
            effects=await self._effects(scene.url),
            closed=closed,
        )
        refusals = await inspector.refusals(limit=1_000)
        code, verified = await asyncio.to_thread(self._verify, scene.url)
        events = Counter(line["event"] for line in log_lines(scene.folder))
        return Verdict(
            violations=[
                *judge.violations(run),
                *ground.crew.odd,
                *([verified] if code else []),
                *(f"a duty failed: {line}" for line in failed_duties(scene.folder)),
            ],
            jobs=Counter(job.state.value for job in jobs),
            tasks=Counter(job.task for job in jobs),
            done=nemesis.done,
            phases=nemesis.phases,
            events=events,
            outcomes=Counter(outcome for outcome, _ in closed.values()),
            recoveries=judge.recoveries(run),
            accepted=len(run.accepted),
            attempts=sum(line["event"] == "start" for line in run.journal),
            done_twice=judge.done_twice(run),
            refused=Counter(each.verb for each in refusals),
            late_by=max((each.late_by or 0 for each in refusals), default=0.0),
            worker_starts=ground.crew.starts,
            quiet_seconds=quiet,
            verified=verified.splitlines()[-1] if verified else "",
        )

    async def _jobs(self, scene: Scene) -> list[JobRow]:
        jobs: list[JobRow] = []
        while page := await scene.store.inspector.jobs(
            JobFilter(limit=PAGE, before_id=jobs[-1].id if jobs else None)
        ):
            jobs += page
        return jobs

    async def _closed(self, scene: Scene) -> dict[int, tuple[str, float]]:
        closed: dict[int, tuple[str, float]] = {}
        after: int | None = 0
        to_boot = boot() - time.time()
        while after is not None:
            page = await scene.store.inspector.history(after)
            for each in (attempt for job in page.jobs for attempt in job.attempts):
                closed[each.token] = each.outcome, each.ended_at + to_boot
            after = page.next_after
        return closed

    async def _effects(self, url: str) -> list[tuple[int, int]]:
        query = "SELECT job, token FROM effects"
        if url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
                return [(job, token) for job, token in file.execute(query)]
        connection = await asyncpg.connect(url)
        rows = await connection.fetch(query)
        await connection.close()
        return [(row["job"], row["token"]) for row in rows]

    def _verify(self, url: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "outlast", "verify", "--url", url],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).strip()


def wakeup(plan: Plan) -> dict[str, str]:
    """Return what tells the application its wake-up."""
    return {"OUTLAST_TEST_WAKEUP": plan.wakeup} if plan.wakeup else {}


def lines_of(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """Return the lines of files of JSON objects; one that a kill has cut short is left out."""
    for path in sorted(folder.glob(pattern)):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)


def log_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Return what the workers said that is an event."""
    return (
        line
        for line in lines_of(folder, "worker-*.log")
        if isinstance(line, dict) and "event" in line
    )


def failed_duties(folder: Path) -> Iterator[str]:
    """Return each kind of error that a duty has raised: none of them should ever be."""
    seen = Counter(
        f"{line['duty']}: {line['error']}"
        for line in log_lines(folder)
        if line["event"] == "duty_failed"
    )
    return (f"{number}x {error}" for error, number in seen.most_common(10))


def end_marked() -> None:
    """Kill what bears our mark and is not us: nothing of a run is left behind."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.environ().get(MARK) == os.environ.get(MARK)
            if marked and process.pid != os.getpid():
                process.kill()
