"""Real workers in real processes, and ways to look at them without sleeping blindly."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.stores import opened
from outlast.client.task import Task
from outlast.errors import StoreUnavailable
from outlast.insight.verify import verify
from outlast.model.crash import Crash
from outlast.model.job import ENDED, Policy, State
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, StoredJob, WorkerRow
from outlast.store.values import NewJob

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 90.0  # seconds that a test waits for something to happen; a busy machine is slow
STARTED = 90.0  # the same for a worker's start, which starts up to six interpreters
BY_LEASE = 55.0  # the default lease less two beats: a death noticed sooner was noticed by proof
# The exact number of seconds is measured by bench/recovery.py: test machines are slow and busy.


class WorkerProcess:
    """``outlast worker`` as a process of its own; its tree is gone after the test."""

    def __init__(
        self,
        url: str,
        journal: Path,
        *options: str,
        env: dict[str, str],
        log: Path,
        prefix: tuple[str, ...] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.log = log
        self._output = log.open("ab")
        self.process = subprocess.Popen(
            [
                *prefix,
                env.get("OUTLAST_TEST_PYTHON", sys.executable),
                "-m",
                env.get("OUTLAST_TEST_MODULE", "outlast"),
                "worker",
                env["OUTLAST_TEST_APP"],
                *(() if "OUTLAST_TEST_NO_URL" in env else ("--url", url)),
                *options,
            ],
            cwd=ROOT,
            env={**os.environ, "OUTLAST_TEST_JOURNAL": str(journal), "OUTLAST_URL": url, **env},
            stdin=stdin,
            stdout=self._output,
            stderr=self._output,
        )
        self.pid = self.process.pid
        self._known: dict[int, psutil.Process] = {}

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return the events of this name that the worker has logged."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def tree(self) -> list[psutil.Process]:
        """Return the worker and everything below it; nothing once it has ended: another process may
        have its number then."""
        if self.process.poll() is not None:
            return []
        try:
            worker = psutil.Process(self.pid)
            return [worker, *worker.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill_tree(self) -> None:
        """kill -9 of everything at once: stopped first, so that nothing reacts in between."""
        tree = self.tree()
        for signal_ in (signal.SIGSTOP, signal.SIGKILL):
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal_)
        self.process.wait()

    def signal_tree(self, number: int) -> None:
        """Send a signal to everything."""
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def signal(self, number: int) -> None:
        """Send a signal to the worker process alone."""
        self.process.send_signal(number)

    async def left(self, number: int | None = None) -> None:
        """Send a signal, if any; wait until the worker has left in good order."""
        if number is not None:
            self.signal(number)
        assert await asyncio.to_thread(self.process.wait, DEADLINE) == 0

    def remember(self) -> None:
        """Note the tree as it is now, so that clean-up finds it without its parent."""
        self._known |= {process.pid: process for process in self.tree()}

    def end(self) -> None:
        """Leave nothing behind."""
        self.remember()
        for process in self._known.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        self._output.close()


class Scene:
    """A store, some workers of an application, and the journal that their tasks write.

    ``app`` is what workers run unless OUTLAST_TEST_APP in their ``env`` says otherwise; ``tasks``
    are those that ``enqueue`` knows by name.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        store: Store,
        *,
        app: str,
        tasks: Mapping[str, Task[..., Any]] | None = None,
    ) -> None:
        self.url = url
        self.folder = folder
        self.store = store
        self._app = app
        self._tasks = tasks or {}
        self.journal = folder / "journal"
        self.workers: list[WorkerProcess] = []

    def start(
        self,
        *options: str,
        env: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> WorkerProcess:
        """Start a worker, behind a wrapping command if given."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        run_dir = str(self.folder / "run")
        env = {"OUTLAST_TEST_APP": self._app, "OUTLAST_RUN_DIR": run_dir, **(env or {})}
        if "--runners" not in options:  # the default depends on the machine
            options = ("--runners", "1", *options)
        if "--log-format" not in options:  # `told` reads JSON
            options = ("--log-format", "json", *options)
        worker = WorkerProcess(
            self.url, self.journal, *options, env=env, log=log, prefix=prefix, stdin=stdin
        )
        self.workers.append(worker)
        return worker

    async def worker(self, *options: str, **how: Any) -> WorkerProcess:
        """Start a worker as ``start`` does, and wait until it knows its tasks."""
        before = {row.id for row in await self.worker_rows()}
        worker = self.start(*options, **how)

        async def announced() -> bool:
            ended = worker.process.poll() is not None  # before the look: its job may have ended it
            rows = await self.worker_rows()
            known = any(row.id not in before and row.tasks for row in rows)
            if ended and not known:
                raise AssertionError(f"the worker ended at once:\n{worker.log.read_text()}")
            return known

        await self.until(announced, "a worker that knows its tasks", STARTED)
        worker.remember()
        return worker

    async def stop(self, send: Callable[[int], None]) -> None:
        """Send SIGSTOP, but not in the middle of a write transaction on SQLite.

        A process that is stopped there keeps the file's only write lock, and no one else can do
        anything about it (docs/guarantees.md says so): stop it a moment later.
        """
        send(signal.SIGSTOP)
        while self.url.startswith("sqlite") and not self._can_write():
            send(signal.SIGCONT)
            await asyncio.sleep(0.01)
            send(signal.SIGSTOP)

    def _can_write(self) -> bool:
        path = self.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
                file.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
        return True

    async def enqueue(self, task: str, policy: Policy | None = None, **args: Any) -> int:
        """Enqueue one job of the task with this name; return its id."""
        task_ = self._tasks[task]
        new = NewJob(
            task=task,
            queue=task_.call(**args).job.queue,
            args=json.dumps(args),
            policy=policy or task_.policy,
        )
        return (await self.store.enqueue([new]))[0].job_id

    async def told(self, worker: WorkerProcess, event: str) -> dict[str, Any]:
        """Wait for the first event of this name in the worker's log; a thread writes it, later
        than the worker's row."""
        await self.until(lambda: worker.told(event), f"{event} of {worker.log.name}")
        return worker.told(event)[0]

    def enough(self) -> None:
        """Let all counting tasks, now or later, end."""
        self.journal.with_suffix(".enough").touch()

    async def job(self, job_id: int) -> StoredJob:
        """Return the job's row."""
        row = await self.store.inspector.job(job_id)
        assert row is not None
        return row

    async def worker_rows(self) -> list[WorkerRow]:
        """Return the rows of all workers; none while the store cannot be reached."""
        try:
            return await self.store.inspector.workers()
        except StoreUnavailable:
            return []

    async def checkpoint(self, job_id: int) -> str | None:
        """Return the checkpoint, or None while the store cannot be reached."""
        try:
            return (await self.job(job_id)).checkpoint
        except StoreUnavailable:
            return None

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        """Return the closed attempts."""
        return await self.store.inspector.attempts(job_id)

    async def ended(self, job_id: int, deadline: float = DEADLINE) -> StoredJob:
        """Wait until the job has ended; return its row."""
        await self.until(lambda: self._has_ended(job_id), f"the end of job {job_id}", deadline)
        return await self.job(job_id)

    async def _has_ended(self, job_id: int) -> bool:
        try:
            return (await self.job(job_id)).state in ENDED
        except StoreUnavailable:  # the test has made it so: look again
            return False

    async def in_state(self, job_id: int, state: State, deadline: float = DEADLINE) -> StoredJob:
        """Wait until the job is in this state."""

        async def reached() -> bool:
            return (await self.job(job_id)).state is state

        await self.until(reached, f"job {job_id} to be {state}", deadline)
        return await self.job(job_id)

    async def verify(self) -> None:
        """Check the history that the test leaves behind; do nothing if its store is gone."""
        try:
            verified = await verify(self.store.inspector)
        except StoreUnavailable:
            return
        wrong = [f"job {each.job_id}: {each.sentence}" for each in verified.violations]
        assert not wrong, "\n".join([*wrong, self.logs()])

    def lock_files(self) -> list[Path]:
        """Return the lock files of this scene's workers."""
        return sorted(self.folder.rglob("*.lock"))

    def entries(self, event: str = "start") -> list[dict[str, Any]]:
        """Return what the journal says of this kind."""
        if not self.journal.exists():
            return []
        lines = self.journal.read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    async def started(self, number: int, deadline: float = DEADLINE) -> dict[str, Any]:
        """Wait for the start of the attempt with this number; return its journal entry."""

        def there() -> list[dict[str, Any]]:
            return [entry for entry in self.entries() if entry["number"] == number]

        await self.until(there, f"the start of attempt {number}", deadline)
        return there()[0]

    async def noted(self, count: int, event: str = "start") -> list[dict[str, Any]]:
        """Wait until the journal has this many entries of this kind; return them."""
        await self.until(lambda: len(self.entries(event)) >= count, f"{count} times {event}")
        return self.entries(event)

    async def tried(self, job_id: int, count: int = 1) -> list[AttemptRow]:
        """Wait until the job has this many closed attempts; return them."""

        async def there() -> bool:
            return len(await self.attempts(job_id)) >= count

        await self.until(there, f"{count} closed attempts of job {job_id}")
        return await self.attempts(job_id)

    async def death(self, job_id: int) -> tuple[AttemptRow, Crash]:
        """Wait until the job is dead; return its only closed attempt, and its crash report."""
        assert (await self.ended(job_id)).state is State.DEAD, self.logs()
        (closed,) = await self.attempts(job_id)
        assert closed.crash is not None
        return closed, closed.crash

    async def until(
        self, done: Callable[[], object], what: str, deadline: float = DEADLINE
    ) -> None:
        """Wait until ``done`` returns something true, or something that is true once awaited;
        fail with a clear message when it does not come in time."""
        end = time.monotonic() + deadline
        while True:
            seen = done()
            if await seen if inspect.isawaitable(seen) else seen:
                return
            if time.monotonic() > end:
                raise AssertionError(f"waited {deadline:g} s for {what}\n{self.logs()}")
            await asyncio.sleep(0.02)

    def logs(self) -> str:
        """Return the tails of all logs."""
        return "\n".join(f"--- {w.log.name}\n{w.log.read_text()[-4000:]}" for w in self.workers)


@contextlib.asynccontextmanager
async def scene(
    url: str, folder: Path, *, app: str, tasks: Mapping[str, Task[..., Any]] | None = None
) -> AsyncIterator[Scene]:
    """Open a scene; end all its processes."""
    async with opened(url) as store:
        stage = Scene(url, folder, store, app=app, tasks=tasks)
        try:
            yield stage
            for worker in stage.workers:
                worker.end()
            await stage.verify()
        finally:
            for worker in stage.workers:
                worker.end()


def boot() -> float:
    """Return the clock on which the journal writes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
