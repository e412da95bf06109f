"""The page, the API and the exporter on a large store of either kind, against what was aimed at.

    python -m bench pages [--rows 10000000] [--store postgres|sqlite] [--after FILE] [--quick]

Every address is asked *warm* (anew: nothing that was read before is used, the database has it in
memory) and *cold* (the page's process has just begun, and the database's memory is empty:
PostgreSQL was started again, the file was dropped from the system's cache). Then what each
statement reads, a scrape, the first page's bytes, 50 open pages beside a worker, from a change to
the page that shows it, and memory. With ``--after`` the stores are filled, and measured once
that file exists. Some 10 GB of space are needed for 10,000,000 rows (``TMPDIR``).
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import large_store, size
from bench.environment import SETTINGS, ground
from bench.kit import tell
from bench.series import Series
from harness.servers import PostgresServer
from outlast.store import open_store
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewJob
from outlast.web.assets import asset_path

WARM, COLD = 30, 1  # times that each address is asked
TABS, CHANGES = 50, 20
DRAIN_SECONDS, PAIRS = 4.0, 3
ROWS_MAX, BUFFERS_MAX = 20_000, 5_000
STEPS_MAX = 400_000  # of SQLite's machine: 20,000 rows at 20 steps each
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


# --- addresses ----------------------------------------------------------------------------------


def warm(shop: Shop, series: Series, times: int) -> None:
    """Note what each address takes where the database has all in memory."""
    worst: dict[str, float] = {}
    with page(shop.url, "--anew") as served:
        for name in ["/bench/floor", *shop.addresses()]:
            served.ask(name)
            taken = [served.timed(name) for _ in range(times)]
            for part in (0.5, 0.95):
                what = f"warm, p{part * 100:.0f}: {name}"
                series.figure(shop.kind, what, "ms", 1).values.append(quantile(taken, part))
            if name != "/bench/floor":
                worst[name] = quantile(taken, 0.95)
        memory = served.memory()
    most(series, shop, "warm: the slowest address, p95", worst, "ms")
    series.figure(shop.kind, "memory of the page's process, at most", "MiB", 1).values.append(
        memory
    )


def most(series: Series, shop: Shop, what: str, found: dict[str, float], unit: str) -> None:
    """Note the largest of these, and say which it is."""
    name = max(found, key=lambda one: found[one])
    series.figure(shop.kind, what, unit, 1).values.append(found[name])
    print(f"{shop.kind}, {what}: {found[name]:,.1f} {unit}, {name}", flush=True)


def cold(shop: Shop, series: Series, times: int) -> None:
    """Note what each address takes as the first one that is asked for."""
    worst: dict[str, float] = {}
    for name in shop.addresses():
        for _ in range(times):
            shop.forget()
            with page(shop.url) as served:
                served.ask("/api/v1/me")
                worst[name] = max(worst.get(name, 0.0), served.timed(name))
        series.figure(shop.kind, f"cold: {name}", "ms", 0).values.append(worst[name])
    most(series, shop, "cold: the slowest address", worst, "ms")


def scrape(shop: Shop, series: Series, times: int) -> None:
    """Note what a scrape takes that looks at the store."""
    with page(shop.url, "--anew") as served:
        served.ask("/metrics")
        taken = [served.timed("/metrics") for _ in range(times)]
        large = len(served.ask("/metrics"))
    series.figure(shop.kind, "a scrape, p95", "ms", 1).values.append(quantile(taken, 0.95))
    series.figure(shop.kind, "a scrape, bytes", "kB", 0).values.append(large / 1e3)


def weigh(shop: Shop, series: Series) -> None:
    """Note the bytes of the first page, and of the scripts among them."""
    with page(shop.url) as served:
        texts = [served.ask("/"), *(served.ask(asset_path(name)) for name in ASSETS)]
    sizes = [len(gzip.compress(text)) / 1e3 for text in texts]
    series.figure(shop.kind, "first page, gzipped", "kB", 1).values.append(sum(sizes))
    series.figure(shop.kind, "our script, gzipped", "kB", 1).values.append(sizes[1])
    series.figure(shop.kind, "idiomorph, gzipped", "kB", 1).values.append(sizes[2])


ASSETS = ("outlast.js", "idiomorph.js", "outlast.css", "icon.svg")

# --- statements ---------------------------------------------------------------------------------

EXPLAIN = {
    "session_preload_libraries": "'auto_explain'",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_level": "'notice'",
    "auto_explain.log_format": "'json'",
}


def plans(shop: Shop, series: Series, folder: Path) -> None:
    """Note what the statements of each address read, and print those that read most."""
    if shop.server is not None:
        for name, value in EXPLAIN.items():
            shop.server.sql(f"ALTER DATABASE large SET {name} = {value}")
    file = folder / f"plans-{shop.kind}"
    found: dict[str, dict[str, Any]] = {}
    try:
        with page(shop.url, "--anew", "--plans", str(file)) as served:
            for name in [*shop.addresses(), "/metrics"]:
                before = file.stat().st_size
                served.ask(name)
                time.sleep(0.05)  # notes of the last statement
                with file.open() as noted:
                    noted.seek(before)
                    for line in noted:
                        one = json.loads(line) | {"address": name}
                        if _weight(one) > _weight(found.get(one["text"], {})):
                            found[one["text"]] = one
    finally:
        if shop.server is not None:
            shop.server.sql("ALTER DATABASE large RESET ALL")
    report(shop, series, sorted(found.values(), key=_weight, reverse=True))


def _weight(one: dict[str, Any]) -> float:
    return max(one.get("rows", 0) / ROWS_MAX, one.get("buffers", 0) / BUFFERS_MAX)


def report(shop: Shop, series: Series, found: list[dict[str, Any]]) -> None:
    """Note the most that a statement has read; print the largest ones."""
    unit = "steps" if shop.server is None else "buffers"
    for key, what in (("rows", "rows"), ("buffers", unit)):
        if shop.server is not None or key == "buffers":
            highest = float(max(one[key] for one in found))
            series.figure(shop.kind, f"a statement: {what}, at most", "").values.append(highest)
    for one in found[:12]:
        lines = [line for line in one["text"].splitlines() if not line.startswith("--")]
        print(
            f"{shop.kind}: {one['rows']:,} rows, {one['buffers']:,} {unit}, {one['ms']:.1f} ms:"
            f" {one['address']}: {' '.join(' '.join(lines).split())[:110]} [{one['plan'][:160]}]",
            flush=True,
        )


# --- open pages ---------------------------------------------------------------------------------


class Tab(threading.Thread):
    """An open page in a browser: waits for hints, and asks for its page again at each."""

    def __init__(self, port: int, path: str, topics: str) -> None:
        super().__init__(daemon=True)
        self._port, self._path, self._topics = port, path, topics
        self._ended = threading.Event()
        self.fetched = 0
        self.heard = threading.Condition()
        self.body = b""
        self._stream: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Follow the page until it is closed."""
        tag = ""
        while not self._ended.is_set():
            stream = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            self._stream = stream
            fetcher = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            with contextlib.suppress(OSError, http.client.HTTPException):
                stream.request("GET", f"/events?topics={self._topics.replace(' ', '%20')}")
                answer = stream.getresponse()
                while not self._ended.is_set() and (line := answer.readline()):
                    if not line.startswith(b"data:"):
                        continue
                    fetcher.request("GET", self._path, headers={"If-None-Match": tag})
                    fresh = fetcher.getresponse()
                    body = fresh.read()
                    tag = fresh.headers.get("etag", "")
                    with self.heard:
                        self.fetched, self.body = self.fetched + 1, body or self.body
                        self.heard.notify_all()
            stream.close()
            fetcher.close()

    def shows(self, text: bytes, seconds: float) -> bool:
        """Wait until the page shows this."""
        with self.heard:
            return self.heard.wait_for(lambda: text in self.body, seconds)

    def close(self) -> None:
        """Leave."""
        self._ended.set()
        if self._stream is not None and self._stream.sock is not None:
            with contextlib.suppress(OSError):
                self._stream.sock.shutdown(socket.SHUT_RDWR)


def tabs(shop: Shop, series: Series, seconds: float, pairs: int) -> None:
    """Note how often 50 open pages let the store be looked at, and what a worker loses by them."""
    shares, looks = [], []
    for _ in range(pairs):
        alone = asyncio.run(drain(shop.url, seconds))
        with page(shop.url) as served:
            opened = [Tab(served.port, "/", "stats workers") for _ in range(TABS)]
            for one in opened:
                one.start()
            while any(not one.fetched for one in opened):
                time.sleep(0.05)
            before, began_at = served.looks(), time.monotonic()
            beside = asyncio.run(drain(shop.url, seconds))
            looks.append((served.looks() - before) / (time.monotonic() - began_at) * 2)
            for one in opened:
                one.close()
            for one in opened:
                one.join(20)
            before = served.looks()
            time.sleep(4)
            nobody = served.looks() - before
        shares.append(beside / alone)
    series.figure(shop.kind, f"{TABS} open pages: looks in 2 s", "", 1).values.extend(looks)
    series.figure(shop.kind, "no open page: looks in 4 s", "").values.append(nobody)
    what = f"a drain beside {TABS} open pages, as a share of one alone"
    series.figure(shop.kind, what, "", 3).values.append(statistics.median(shares))


async def drain(url: str, seconds: float) -> float:
    """Drain and fill up for so long; return the jobs a second."""
    store = open_store(url)
    await store.open()
    me, done, began_at = await size.register(store), 0, time.monotonic()
    while time.monotonic() < began_at + seconds:
        await size.top_up(store, 1_000)
        await size.drain(store, me, 1_000)
        done += 1_000
    rate = done / (time.monotonic() - began_at)
    await store.set_status(me, WorkerStatus.STOPPED)
    await store.close()
    return rate


def changes(shop: Shop, series: Series, times: int) -> None:
    """Note how long it takes from a commit until the open page of that job has it."""
    taken = asyncio.run(_changes(shop, times))
    series.figure(shop.kind, "from a change to the page, p95", "ms").values.append(
        quantile(taken, 0.95)
    )


async def _changes(shop: Shop, times: int) -> list[float]:
    store = open_store(shop.url)
    await store.open()
    taken = []
    with page(shop.url) as served:
        for number in range(times):
            job = (await store.enqueue([NewJob(task="shop.task1", delay=3_600.0)]))[0].job_id
            tab = Tab(served.port, f"/jobs/{job}", f"job:{job} workers refusals")
            tab.start()
            await asyncio.to_thread(tab.shows, b"scheduled", 20)
            await asyncio.sleep(0.5 + number / times)  # at any time between two looks
            began_at = time.perf_counter()
            await store.cancel([job])
            if await asyncio.to_thread(tab.shows, b"cancelled</", 20):
                taken.append((time.perf_counter() - began_at) * 1e3)
            tab.close()
    await store.close()
    return taken


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("pages", "the page on a large store")
    rows = min(options.rows, 100_000) if options.quick else options.rows
    times = 5 if options.quick else WARM
    kinds = [options.store] if options.store else ["postgres", "sqlite"]
    with ground() as place, tell("pages", len(kinds) * 8, 60) as step:
        shops = [make_shop(kind, place.folder, rows) for kind in kinds]
        for shop in shops:
            step(f"{shop.kind}: {shop.rows:,} jobs, made in {shop.seconds:.0f} s")
        wait_for(options.after)
        for shop in shops:
            for what, measure in parts(shop, series, times, place.folder, options).items():
                series.attempt(shop.kind, what, "", measure)
                step(f"{shop.kind}: {what}")
        for shop in shops:
            if shop.server is not None:
                shop.server.dispose()
    return series.finish(whole=not (options.quick or options.store))


def make_shop(kind: str, folder: Path, rows: int) -> Shop:
    """Return a filled store."""
    server = None
    if kind == "postgres":
        careless = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "8GB"}
        server = PostgresServer(settings={**SETTINGS, **careless})
        server.start()
    made = Shop(kind, folder, rows, server)
    if server is not None:
        server.settings |= SETTINGS
        server.restart()
    return made


def wait_for(path: Path | None) -> None:
    """Return once this file exists."""
    while path is not None and not path.exists():
        time.sleep(0.5)


def parts(
    shop: Shop, series: Series, times: int, folder: Path, options: Any
) -> dict[str, Callable[[], None]]:
    """Return what is measured, in its order."""
    seconds = 1.0 if options.quick else DRAIN_SECONDS
    return {
        "warm": lambda: warm(shop, series, times),
        "a scrape": lambda: scrape(shop, series, times),
        "bytes": lambda: weigh(shop, series),
        "statements": lambda: plans(shop, series, folder),
        "changes": lambda: changes(shop, series, 3 if options.quick else CHANGES),
        "open pages": lambda: tabs(shop, series, seconds, 1 if options.quick else PAIRS),
        "cold": lambda: cold(shop, series, 1 if options.quick else COLD),
    }
