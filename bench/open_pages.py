"""Pages that are open in browsers, and their cost to the store and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from bench import size
from bench.page_process import Shop, page
from bench.series import Series
from outlast.store import open_store
from outlast.store.rows import WorkerStatus

TABS = 50


def tabs(shop: Shop, series: Series, seconds: float, pairs: int) -> None:
    """Note how often 50 open pages cause a look at the store, and how they slow a worker."""
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
    """Hold TABS pages open while the block runs, by a process of their own: in this one they would
    take time from the worker that is measured."""
    command = [sys.executable, "-m", "bench.open_tabs", str(port), "/", str(TABS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


async def drain(url: str, seconds: float) -> float:
    """Drain and refill the store for some seconds; return the jobs a second."""
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
