"""A drill's stage: two workers, a producer and a prober on a database of their own in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

import outlast
from harness.front import Front
from harness.haproxy import HaProxyServer
from harness.journal import boot
from harness.patroni import NODES, Cluster
from harness.pgbouncer import PgBouncerServer
from harness.scene import ROOT, WorkerProcess
from harness.stores import opened
from outlast.errors import JobNotFound, StoreUnavailable
from outlast.model.job import ENDED, State
from outlast.store.protocol import Store
from outlast.store.rows import ClosedAttempt, JobFilter, StoredJob
from tests.chaos.disk import Disk
from tests.chaos.judge import Run
from tests.chaos.verdict import lines_of
from tests.ha.check import Commit, Facts
from tests.web.kit import page_on

RATE = 50.0  # jobs a second
DEADLINE = 180.0  # for what has to happen, on a busy machine
STOP_SECONDS = 3.0
PAGE = 500
CALM_SECONDS = 30.0  # for duties and wake-ups, which try again with pauses, to work again
A_JOB = """SELECT id FROM outlast_jobs WHERE state IN ('queued', 'running')
ORDER BY run_at LIMIT 1"""
LEASE_SECONDS = 60.0  # of the workers: the default
SETTINGS = (
    "--runners",
    "1",
    "--concurrency",
    "10",
    "--log-format",
    "json",
    "--lease",
    f"{LEASE_SECONDS:g}",
)
MAKE_PROBES = "CREATE TABLE probes (node integer, at double precision)"
HAND_IN = "SELECT others FROM outlast_hand_in_v1(%s::bigint[], %s::bigint[], %s::text[], NULL, 100)"


WAYS = ("haproxy", "pgbouncer")
FRONT = 0  # in the place of a node: what leads to the primary


@contextlib.contextmanager
def through(cluster: Cluster, way: str | None) -> Iterator[Front | None]:
    """Start what leads to the primary: a HAProxy, or a PgBouncer before it that pools transactions;
    None: nothing does."""
    with contextlib.ExitStack() as stack:
        front: Front | None = None
        if way is not None:
            nodes = [(cluster.address(node), cluster.rest_address(node)) for node in NODES]
            front = stack.enter_context(HaProxyServer(nodes))
        if front is not None and way == "pgbouncer":
            settings = {"server_connect_timeout": "2", "server_login_retry": "1"}  # not 15 s
            front = stack.enter_context(PgBouncerServer(front.url(), settings=settings))
        yield front


class Prober:
    """Commits a row by each URL again and again, over sessions of its own."""

    def __init__(self, urls: dict[int, str]) -> None:
        self.commits: list[Commit] = []
        self._urls = urls
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=self._go_on, args=(node,), daemon=True) for node in urls
        ]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End, but for sessions with a server that stands still: they last until that has ended."""
        self._enough.set()
        for each in self._threads:
            if each.is_alive():
                each.join(STOP_SECONDS)

    def _go_on(self, node: int) -> None:
        while not self._enough.is_set():
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(self._urls[node], autocommit=True, connect_timeout=2) as session,
            ):
                while not self._enough.wait(0.05):
                    asked_at = boot()
                    session.execute("INSERT INTO probes VALUES (%s, %s)", (node, asked_at))
                    self.commits.append(Commit(node, asked_at, boot()))
            self._enough.wait(0.2)


class LateHands:
    """Hands in the ends of attempts whose jobs run again by now: none of them may be accepted."""

    def __init__(self, url: str, journal: Path) -> None:
        self.handed_in = 0
        self._url, self._journal = url, journal
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _go_on(self) -> None:
        first: dict[int, int] = {}
        seen = 0
        while not self._enough.wait(0.1):
            if not self._journal.exists():
                continue
            with self._journal.open() as journal:
                journal.seek(seen)
                lines = [line for line in journal if line.endswith("\n")]
            seen += sum(map(len, lines))
            late = []
            for entry in map(json.loads, lines):
                if entry["event"] == "start" and entry["task"] == "repeats":
                    if entry["job"] in first:
                        late.append((entry["job"], first[entry["job"]]))
                    first.setdefault(entry["job"], entry["token"])
            if late:
                self._hand_in(late)

    def _hand_in(self, late: list[tuple[int, int]]) -> None:
        results = [json.dumps({"token": token}) for _, token in late]
        jobs, tokens = [job for job, _ in late], [token for _, token in late]
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(self._url, autocommit=True, connect_timeout=2) as session,
        ):
            session.execute(HAND_IN, (jobs, tokens, results))
            self.handed_in += len(late)


class Stage:
    """What a drill plays on. ``order``: the nodes as the URL names them, or ``front``, which the
    URL names in their place; ``disk``: a small one that the leader has."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        order: tuple[int, ...] = NODES,
        front: Front | None = None,
        *,
        disk: Disk | None = None,
    ) -> None:
        database = folder.name.replace("-", "_").lower()
        self.cluster, self.front = cluster, front
        self.folder = folder
        self.url = cluster.url(database, *order) if front is None else front.url(database)
        self.journal = folder / "journal"
        self.odd: list[str] = []
        self.notes: dict[str, Any] = {}  # what a drill has to tell besides
        self.fault_at = 0.0
        self.workers: list[WorkerProcess] = []
        self._more_workers: list[WorkerProcess] = []
        self.database = database
        self._disk = disk
        each = {node: cluster.node_url(node, database) for node in NODES}
        self.prober = Prober(each if front is None else {FRONT: self.url})
        self.late = LateHands(self.url, self.journal)
        self._commands: list[subprocess.Popen[str]] = []
        self._producer: subprocess.Popen[bytes] | None = None

    # --- what drills call ----------------------------------------------------------------------

    def fault(self) -> None:
        """Note that the fault comes now."""
        self.fault_at = self.fault_at or boot()

    def goes_on(self) -> None:
        """Wait until something that is asked for from now on is committed, and a job begins after
        that."""
        since = boot()
        self.until(lambda: self._committed(since), "a commit")
        after = self._committed(since)
        self.until(lambda: self._has_begun(after), "the start of a job")

    def until(self, done: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
        """Wait for something."""
        end = time.monotonic() + deadline
        while not done():
            if time.monotonic() > end:
                raise AssertionError(f"waited {deadline:g} s for {what}\n{self.logs()}")
            time.sleep(0.05)

    def pause(self, seconds: float) -> None:
        """Let the load go on for so long, which is part of the drill."""
        time.sleep(seconds)

    def start_worker(self, *, may_end: bool = False) -> WorkerProcess:
        """Start a worker; ``may_end``: it may not be able to reach its database."""
        name = f"worker-{len(self.workers) + len(self._more_workers)}"
        worker = WorkerProcess(
            self.url,
            self.journal,
            *SETTINGS,
            *("--name", name),
            env={
                "OUTLAST_TEST_APP": "tests.ha.app:app",
                "OUTLAST_RUN_DIR": str(self.folder / "run"),
            },
            log=self.folder / f"{name}.log",
        )
        (self._more_workers if may_end else self.workers).append(worker)
        return worker

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of Outlast on the database."""
        command = subprocess.Popen(
            [sys.executable, "-m", "outlast", *arguments, "--url", self.url],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        self._commands.append(command)
        return command

    @property
    def disk(self) -> Disk:
        """The small disk of the leader."""
        assert self._disk is not None
        return self._disk

    def is_calm(self, before: set[str]) -> None:
        """Note as odd what the doctor still finds after a while that it has not found before."""
        end = time.monotonic() + CALM_SECONDS
        while (new := self.findings() - before) and time.monotonic() < end:
            pass
        if new:
            self.odd.append(f"FALSE ALARM {sorted(new)}")

    def hear(self, words: str, *more: str) -> None:
        """Ask in each way that people have, and note as odd which does not say so: ``words`` is a
        pattern. ``more``: commands that say so, besides those that tell of workers and one job."""
        job = self.cluster.sql(self.cluster.leader(), A_JOB, self.database)
        asked = [f"why {job}", "workers", "doctor", *more]
        commands = {each: self.command(*each.split()) for each in asked}
        told = {name: each.communicate(timeout=DEADLINE)[0] for name, each in commands.items()}
        told |= asyncio.run(self._pages())
        told |= {each.log.name: each.log.read_text() for each in self.workers}
        for name, text in told.items():
            if not re.search(words, " ".join(text.split())):
                self.odd.append(f"SILENT {name} does not say {words!r}: {text[-600:]}")

    def wait_for_workers(self, words: str) -> None:
        """Wait until each worker has said this."""
        self.until(
            lambda: all(words in each.log.read_text() for each in self.workers),
            f"workers that say {words!r}",
        )

    def is_refused(self, words: str, *arguments: str) -> bool:
        """Whether a command ends with exit code 3; note as odd if it ends with another one but 0,
        or does not say why."""
        command = self.command(*arguments)
        said = command.communicate(timeout=DEADLINE)[0]
        code = command.returncode
        if code not in {0, 3} or (code and words not in said):
            self.odd.append(f"{arguments[0]} ended with code {code}: {said}")
        return code == 3

    async def _pages(self) -> dict[str, str]:
        told = {}
        async with page_on(self.url) as page:
            for path in ("/", "/workers", "/workers/1"):
                await page.see(path)
                told[path] = await page.see(path)
        return told

    def findings(self) -> set[str]:
        """Return what the doctor calls a problem or a warning, by name."""
        said = self.command("doctor", "--json").communicate(timeout=DEADLINE)[0]
        found = json.loads(said)["findings"]
        return {each["name"] for each in found if each["level"] in {"problem", "warning"}}

    def logs(self) -> str:
        """Return the ends of all logs."""
        tails = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join([*tails, self.cluster.log_tail()])

    # --- before and after ----------------------------------------------------------------------

    def make_database(self) -> None:
        """Make the database, named as the folder, with its tables."""
        self.folder.mkdir(exist_ok=True)
        leader, _ = self.cluster.wait_healthy()
        self.cluster.sql(leader, f'CREATE DATABASE "{self.database}"')
        migrating = self.command("migrate")
        said = migrating.communicate(timeout=DEADLINE)[0]
        assert migrating.returncode == 0, said
        self.cluster.sql(leader, MAKE_PROBES, self.database)

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """Start the load; a drill is played meanwhile; then let all jobs end, and end the load."""
        try:
            self._begin()
            try:
                yield
            finally:
                self.cluster.thaw_all()
            self.cluster.wait_healthy()
            self.goes_on()
            self._calm_down()
        finally:
            for worker in (*self.workers, *self._more_workers):
                worker.end()
            for command in self._commands:
                command.kill()
                command.communicate()
            if self._producer is not None:
                self._producer.kill()
                self._producer.wait()
            self.late.stop()
            self.prober.stop()

    def _begin(self) -> None:
        for _ in range(2):
            self.start_worker()
        with (self.folder / "producer.log").open("ab") as log:
            self._producer = subprocess.Popen(
                [sys.executable, "-m", "tests.ha.producer", str(self.folder), str(RATE)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "OUTLAST_URL": self.url,
                    "OUTLAST_TEST_JOURNAL": str(self.journal),
                },
            )
        self.prober.start()
        self.late.start()
        self.until(lambda: all(each.told("worker_started") for each in self.workers), "two workers")
        self.until(lambda: self._number("done") >= 2 * RATE, "work before any fault")

    def _calm_down(self) -> None:
        assert self._producer is not None
        self._producer.terminate()
        code = self._producer.wait(DEADLINE)
        if code:
            self.odd.append(f"the producer ended with code {code}")
        asyncio.run(self._until_all_ended())
        for each in self.workers:
            if each.process.poll() is not None:
                self.odd.append(f"{each.log.name} ended by itself, with code {each.process.poll()}")
            else:
                each.process.terminate()
                if code := each.process.wait(DEADLINE):
                    self.odd.append(f"{each.log.name} ended with code {code}")

    async def _until_all_ended(self) -> None:
        """Cancel what is not due yet, and wait for the end of all others."""
        app = outlast.App(self.url)
        async with opened(self.url) as store:
            waiting = await store.inspector.jobs(
                JobFilter(state=State.QUEUED, task="due", limit=PAGE)
            )
            for job in waiting:
                with contextlib.suppress(JobNotFound):
                    await app.cancel(job.id)
            end = time.monotonic() + DEADLINE
            while left := await unfinished(store):
                if time.monotonic() > end:
                    self.odd.append(f"LOST {left} jobs have not ended")
                    break
                await asyncio.sleep(0.1)
        await app.close()

    def facts(self) -> Facts:
        """Read what the drill has left behind."""
        verified = self.command("verify")
        said = verified.communicate(timeout=DEADLINE)[0]
        if verified.returncode:
            self.odd.append(f"verify: {said.strip()}")
        jobs, closed = asyncio.run(self._history())
        ledger = list(lines_of(self.folder, "ledger"))
        run = Run(
            accepted={(line["job"], line["key"]) for line in ledger},
            ledger=ledger,
            journal=list(lines_of(self.folder, "journal")),
            faults=[],
            jobs=jobs,
            effects=[],
            closed={each.token: (each.outcome, each.ended_at) for each in closed},
        )
        return Facts(
            run=run,
            fault_at=self.fault_at,
            commits=self.prober.commits,
            closed=closed,
            synchronous=self.cluster.synchronous,
            odd=self.odd,
            notes={"late_ends": self.late.handed_in, **self.notes},
        )

    async def _history(self) -> tuple[list[StoredJob], list[ClosedAttempt]]:
        jobs: list[StoredJob] = []
        closed: list[ClosedAttempt] = []
        async with opened(self.url) as store:
            while page := await store.inspector.jobs(
                JobFilter(limit=PAGE, before_id=jobs[-1].id if jobs else None)
            ):
                jobs += page
            after: int | None = 0
            while after is not None:
                history = await store.inspector.history(after)
                closed += [attempt for job in history.jobs for attempt in job.attempts]
                after = history.next_after
        return jobs, closed

    def _committed(self, since: float) -> float:
        return min((each.at for each in self.prober.commits if each.asked_at > since), default=0.0)

    def _entries(self, event: str) -> Iterator[dict[str, Any]]:
        return (each for each in lines_of(self.folder, "journal") if each["event"] == event)

    def _number(self, event: str) -> int:
        return sum(1 for _ in self._entries(event))

    def _has_begun(self, after: float) -> bool:
        return any(each["at"] > after for each in self._entries("start"))


async def unfinished(store: Store) -> int | None:
    """Return how many jobs have not ended; something, if the store cannot say."""
    try:
        counts = await store.inspector.counts()
    except StoreUnavailable:
        return -1
    return sum(number for (_, state), number in counts.items() if state not in ENDED)
