"""A large store, what its page can be asked for, and the process that serves it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import large_store
from harness.servers import PostgresServer

PAGES = (
    "/",
    "/jobs",
    "/jobs?phase=queued",
    "/jobs?phase=scheduled",
    "/jobs?phase=dead&queue=nomatch",
    "/jobs?task=nomatch",
    "/jobs?queue=queue7&phase=completed",
    "/jobs?tenant=tenant8",
    "/jobs?label=sale&queue=nomatch",
    "/jobs/{waiting}",
    "/jobs/{done}",
    "/jobs/{dead}",
    "/dead",
    "/dead?queue=queue7",
    "/dead/group?group=group7",
    "/deaths",
    "/queues",
    "/queues/queue?name=queue7",
    "/tasks",
    "/tasks/task?name=shop.task7",
    "/workers",
    "/workers/1",
    "/schedules",
    "/refusals",
    "/actions",
    "/system",
    "/go?q=shop-7",
)
API = (
    "stats",
    "jobs",
    "jobs/{waiting}/why",
    "jobs/{dead}",
    "dead/groups",
    "deaths",
    "workers",
    "schedules",
    "refusals",
    "doctor",
    "history",
    "history?seconds=2592000&by=task",
    "actions",
    "scale?queue=queue7",
)
PREVIEW = json.dumps({"verb": "cancel", "filter": {"queue": "queue7"}})
BULK = "POST /api/v1/bulk"


class Page:
    """A process that serves the page of a store."""

    def __init__(self, url: str, *options: str) -> None:
        command = [sys.executable, "-m", "bench.page_server", url, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        address = self._process.stdout.readline().strip()
        self.port = int(address.rpartition(":")[2].strip("/"))
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, path: str) -> bytes:
        """Return the body of an answer. RuntimeError where the page has failed."""
        method, body, headers = "GET", None, {}
        if path.startswith("POST "):
            method, path, body = "POST", path.removeprefix("POST "), PREVIEW
            headers = {"Sec-Fetch-Site": "none", "Content-Type": "application/json"}
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
        except http.client.RemoteDisconnected:  # it waits 5 s for the next request
            self._connection.close()
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {text[:2000]!r}")
        return text

    def timed(self, path: str) -> float:
        """Return the milliseconds of a request."""
        began_at = time.perf_counter()
        self.ask(path)
        return (time.perf_counter() - began_at) * 1e3

    def looks(self) -> int:
        """Return how often it has looked at the store."""
        return int(self.ask("/bench/looks"))

    def memory(self) -> float:
        """Return the MiB that it has taken, at most."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

    def processor_seconds(self) -> float:
        """Return the seconds of a processor that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def page(url: str, *options: str) -> Iterator[Page]:
    """Give a page while the block runs."""
    made = Page(url, *options)
    try:
        yield made
    finally:
        made.close()


class Shop:
    """A large store. ``server``: of a PostgreSQL one."""

    def __init__(self, kind: str, folder: Path, rows: int, server: PostgresServer | None) -> None:
        self.kind, self.rows, self.server = kind, rows, server
        self.file = folder / "large.db"
        self.url = f"sqlite:///{self.file}" if server is None else server.create_database("large")
        self.seconds = large_store.fill(self.url, rows)
        last = rows - rows // 50 - rows // 200
        self.words = {"waiting": rows - 100, "done": last // 2 // 1000 * 1000, "dead": 1507}

    def addresses(self) -> list[str]:
        """Return all that is asked for."""
        names = [*PAGES, *(f"/api/v1/{name}" for name in API), BULK]
        return [name.format(**self.words) if "{" in name else name for name in names]

    def forget(self) -> None:
        """Empty the memory of the database."""
        if self.server is not None:
            self.server.restart()
            return
        with self.file.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which this part of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
