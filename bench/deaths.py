"""How long until the job of a killed worker runs again, here and in other queues.

Two workers on one host; the one that runs the job is killed with kill -9, with everything below it;
the other one is idle. Nothing is set but what a line names. Other queues are measured once, side by
side, as they only wait; Outlast in several rounds: what it takes depends on when the other worker
looked last. ``--minutes``: how long a job is waited for until it counts as not run again; Celery on
Redis needs 75.

    python -m bench deaths --minutes 75 --rounds 10 --page
"""

from __future__ import annotations

import contextlib
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.contenders import DEATHS, REDIS, Entry, chosen
from bench.environment import (
    REQUIREMENTS,
    ROOT,
    Ground,
    Missing,
    Redis,
    ground,
    make_environments,
    redis_binary,
)
from bench.harness import Stand
from bench.kit import Row, announce, keep, markdown, put, why

COMPARISON = ROOT / "docs" / "comparison.md"
HEADINGS = ("queue", "version", "settings", "runs again after")
STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "Redis"}
FIRST_SECONDS = 60.0  # until the job has begun
READY_SECONDS = 10.0  # for the second worker to be ready: most do not say when they are
NAP_SECONDS = 4 * 3600
LONG_MINUTES = 75  # longer than any of the waits that are known


def measure(entry: Entry, ground: Ground, minutes: float, rounds: int) -> list[float | None]:
    """Return of each round the seconds from the kill to the second start; None: it did not come."""
    return [once(entry, ground, minutes) for _ in range(1 if entry.environment else rounds)]


def once(entry: Entry, ground: Ground, minutes: float) -> float | None:
    """Play one round on a fresh store."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        if entry.store != REDIS:
            with ground.store(entry.store) as url:
                return play(Stand(entry, ground, url, Path(folder)), minutes)
        redis = Redis(redis_binary(), Path(folder))
        try:
            return play(Stand(entry, ground, redis.url, Path(folder)), minutes)
        finally:
            redis.stop()


def play(stand: Stand, minutes: float) -> float | None:
    """Kill the worker that runs the job, and wait until the other one does."""
    try:
        stand.client("setup")
        stand.start_worker()
        stand.client("nap", NAP_SECONDS)
        if not stand.wait(1, FIRST_SECONDS):
            raise RuntimeError(f"{stand.entry.name}: no worker has begun: {stand.tail()}")
        stand.start_worker()
        time.sleep(READY_SECONDS)
        started = stand.done()
        killed_at = stand.kill_first()
        if not stand.wait(started + 1, minutes * 60):
            return None
        return stand.marks(started)[0].at - killed_at
    finally:
        stand.kill_workers()


def rows_of(values: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the lines of the table, of what was kept."""
    entries = {entry.name: entry for entry in DEATHS}
    return [
        (
            f"{entry.name.partition(',')[0].split()[0]} on {STORES[entry.store]}",
            version(entry),
            entry.settings.partition(":")[0],
            show(each["seconds"], each["watched_minutes"]),
        )
        for each in values
        for entry in [entries[each["name"]]]
    ]


def version(entry: Entry) -> str:
    """Return which version of a queue is measured; ours is that of the page."""
    if not entry.environment:
        return ""
    pins = (REQUIREMENTS / f"{entry.environment}.txt").read_text()
    return re.findall(rf"^{entry.environment}==(\S+)", pins, re.MULTILINE)[0]


def show(seconds: Sequence[float | None], minutes: float) -> str:
    """Return what people read."""
    came = [each for each in seconds if each is not None]
    if len(came) < len(seconds):
        return f"not in {minutes:g} minutes"
    if len(came) == 1:
        return f"{came[0]:,.0f} s"
    return f"{statistics.median(came):.1f} s (at most {max(came):.1f} s in {len(came)} kills)"


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    entries = chosen(options.only, DEATHS)
    announce(f"kills of {len(entries)} workers, side by side: at most", options.minutes * 60)
    make_environments(entries)
    with contextlib.suppress(Missing):
        redis_binary()  # made here, not in several threads at once
    kept: list[dict[str, Any]] = []
    failed = 0
    with ground() as stands, ThreadPoolExecutor(len(entries)) as pool:
        settings = (stands, options.minutes, options.rounds)
        runs = [pool.submit(measure, entry, *settings) for entry in entries]
        for entry, run in zip(entries, runs, strict=True):
            try:
                seconds = run.result()
            except Exception as error:
                failed += 1
                print(f"FAILED: {entry.name}: {why(error)}", flush=True)
                continue
            what = {"name": entry.name, "settings": entry.settings}
            kept.append(what | {"seconds": seconds, "watched_minutes": options.minutes})
    text = markdown(HEADINGS, rows_of(kept))
    print(f"\n{text}\n", flush=True)
    if options.page:
        put(COMPARISON, "deaths", text)
    keep("deaths", kept, whole=not options.only and options.minutes >= LONG_MINUTES)
    return failed
