"""Pages that are open in browsers: what they ask for, and how soon they show a change."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from bench import size
from bench.page_process import Shop, page, quantile
from bench.series import Series
from outlast.store import open_store
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewJob

TABS = 50


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
    shares, looks, used = [], [], []
    for _ in range(pairs):
        alone = asyncio.run(drain(shop.url, seconds))
        with page(shop.url) as served:
            with open_tabs(served.port):
                before, began_at = (served.looks(), served.processor_seconds()), time.monotonic()
                beside = asyncio.run(drain(shop.url, seconds))
                passed = time.monotonic() - began_at
                looks.append((served.looks() - before[0]) / passed * 2)
                used.append((served.processor_seconds() - before[1]) / passed * 1e3)
            before_end = served.looks()
            time.sleep(4)
            unwatched = served.looks() - before_end
            memory = served.memory()
        shares.append(beside / alone)
    series.figure(shop.kind, f"{TABS} open pages: looks in 2 s", "", 1).values.extend(looks)
    series.figure(shop.kind, "no open page: looks in 4 s", "").values.append(unwatched)
    what = f"a drain beside {TABS} open pages, as a share of one alone"
    series.figure(shop.kind, what, "", 3).values.append(statistics.median(shares))
    what = f"processor time of the page's process beside {TABS} open pages, in a second"
    series.figure(shop.kind, what, "ms", 1).values.extend(used)
    what = f"memory of the page's process with {TABS} open pages, at most"
    series.figure(shop.kind, what, "MiB", 1).values.append(memory)


@contextlib.contextmanager
def open_tabs(port: int) -> Iterator[None]:
    """Hold TABS pages open while the block runs: by a process of their own, since what follows
    them here would take its turns from the worker that is measured."""
    command = [sys.executable, "-m", "bench.open_tabs", str(port), "/", "stats workers", str(TABS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


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
