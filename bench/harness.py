"""One entry on one fresh store: its clients and workers, and what they cost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from bench.contenders import POSTGRES, REDIS, Entry
from bench.environment import ADAPTERS, Ground, cpu, interpreter, tree
from bench.peers.common import RECORD

CLIENT_SECONDS = 300.0
STOP_SECONDS = 10.0  # for workers to finish what they run
ENDS_SECONDS = 5.0  # for the backends of killed workers to end
LOOK = 0.01
TUPLES = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables"
COUNTERS = """SELECT pg_current_wal_lsn() - '0/0'::pg_lsn || ' ' || xact_commit + xact_rollback
FROM pg_stat_database WHERE datname = '{name}'"""


class Mark(msgspec.Struct, frozen=True):
    """The start of a handler: when (monotonic seconds), and how long the job waited (seconds)."""

    at: float
    waited: float


class Counters(msgspec.Struct, frozen=True):
    """What PostgreSQL counts: bytes of WAL, transactions, and row versions that died."""

    wal: int = 0
    transactions: int = 0
    dead: int = 0


class Stand:
    """An entry with a store of its own."""

    def __init__(self, entry: Entry, ground: Ground, url: str, folder: Path) -> None:
        self.entry = entry
        self.url = url
        self._ground = ground
        self._python = interpreter(entry)
        self._log = folder / "log"
        self._marks = ground.marks / folder.name
        self._marks.unlink(missing_ok=True)
        self._marks.touch(0o666)
        self.workers: list[subprocess.Popen[bytes]] = []

    # --- processes -----------------------------------------------------------------------------

    def client(self, operation: str, *numbers: float) -> dict[str, Any]:
        """Run a client to its end; return what it says: jobs, seconds, cpu."""
        with self._log.open("ab") as log:
            done = subprocess.run(
                self._command(operation, *numbers),
                cwd=ADAPTERS,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=CLIENT_SECONDS,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(f"{self.entry.name}, {operation}: {self.tail()}")
        lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {}

    def start(self, operation: str, *numbers: float) -> subprocess.Popen[bytes]:
        """Start a client that goes on beside the workers."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command(operation, *numbers),
                cwd=ADAPTERS,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        self.workers.append(self.start("worker"))
        return self.workers[-1]

    def kill_first(self) -> float:
        """Kill the worker that was started first, with everything below it; return when."""
        worker = self.workers.pop(0)
        killed_at = time.monotonic()
        _kill(worker)
        return killed_at

    def stop_workers(self) -> None:
        """Ask all workers to stop, so that nothing is left running; kill those that do not."""
        for worker in self.workers:
            worker.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and any(worker.poll() is None for worker in self.workers):
            time.sleep(LOOK)
        self.kill_workers()

    def kill_workers(self) -> None:
        """End all workers, with everything below them."""
        for worker in self.workers:
            _kill(worker)
        self.workers = []

    def tail(self) -> str:
        """Return the end of what the processes said."""
        return self._log.read_text(errors="replace")[-1500:] if self._log.exists() else ""

    def _command(self, operation: str, *numbers: float) -> list[str]:
        program = str(ADAPTERS / self.entry.program)
        return [self._python, program, operation, *(f"{number:g}" for number in numbers)]

    def _environment(self) -> dict[str, str]:
        url = self.url
        if self.entry.program == "with_outlast.py" and self.entry.store == "sqlite":
            url = f"sqlite:///{url}"
        return {
            **os.environ,
            "BENCH_URL": url,
            "BENCH_MARKS": str(self._marks),
            "OUTLAST_URL": url,
            "OUTLAST_RUN_DIR": str(self._log.parent / "run"),
            "PYTHONDONTWRITEBYTECODE": "",
            **self.entry.variables,
        }

    # --- what is seen --------------------------------------------------------------------------

    def done(self) -> int:
        """Return how many handlers have begun."""
        return self._marks.stat().st_size // RECORD.size

    def marks(self, after: int = 0) -> list[Mark]:
        """Return the starts of handlers from this number on, in the order of time."""
        data = self._marks.read_bytes()[after * RECORD.size :]
        whole = data[: len(data) // RECORD.size * RECORD.size]
        return sorted((Mark(*each) for each in RECORD.iter_unpack(whole)), key=lambda m: m.at)

    def wait(self, jobs: int, seconds: float) -> bool:
        """Wait until this number of handlers has begun; return whether that happened in time."""
        return self.wait_for(lambda: self.done() >= jobs, seconds)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds; return whether that happened in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            if self.workers and all(worker.poll() is not None for worker in self.workers):
                raise RuntimeError(f"{self.entry.name}: the workers ended: {self.tail()}")
            time.sleep(LOOK)
        return True

    def client_cpu(self) -> float:
        """Return the processor seconds of the workers so far."""
        return cpu(*(worker.pid for worker in self.workers))

    def database_cpu(self) -> float:
        """Return the processor seconds of the database's server so far (SQLite has none)."""
        if self.entry.store == POSTGRES:
            return cpu(self._ground.postgres.pid)
        return cpu(self._ground.redis.pid) if self.entry.store == REDIS else 0.0

    def sql(self, statement: str) -> str:
        """Run a statement in the entry's database."""
        return self._ground.postgres.sql(statement, self.url.rpartition("/")[2])

    def settle(self) -> None:
        """Give each the same start: a checkpoint behind it, and statistics of its tables."""
        if self.entry.store == POSTGRES:
            self.sql("CHECKPOINT")
            self.sql("ANALYZE")

    def counters(self) -> Counters:
        """Return what PostgreSQL has counted."""
        if self.entry.store != POSTGRES:
            return Counters()
        name = self.url.rpartition("/")[2]
        wal, transactions = self._ground.postgres.sql(COUNTERS.format(name=name)).split()
        return Counters(int(wal), int(transactions), int(self.sql(TUPLES)))

    def without_clients(self) -> None:
        """Wait until only we are connected: each session hands in its counts at its end."""
        if self.entry.store != POSTGRES:
            return
        name = self.url.rpartition("/")[2]
        sessions = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
        deadline = time.monotonic() + ENDS_SECONDS
        while time.monotonic() < deadline and self._ground.postgres.sql(sessions) != "0":
            time.sleep(LOOK)


def _kill(worker: subprocess.Popen[bytes]) -> None:
    """Kill everything at once: stopped first, so that nothing reacts in between."""
    processes = tree(worker.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    worker.kill()
    worker.wait()


@contextlib.contextmanager
def stand(entry: Entry, ground: Ground, name: str = "stand") -> Iterator[Stand]:
    """Put an entry on an empty store, and take it away again; ``name``: of its folder."""
    with ground.store(entry.store) as url:
        folder = ground.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "log").unlink(missing_ok=True)
        one = Stand(entry, ground, url, folder)
        try:
            one.client("setup")
            yield one
        finally:
            one.kill_workers()
