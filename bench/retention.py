"""Does a worker that prunes hold the size of the store, and its rate, under load?

A client enqueues 2,000 jobs a second for minutes (``--minutes``), a worker runs them. Two ways:
``kept for 60 s``: the worker was started with ``--keep-completed 60s``. ``keep=0``: the rows of
these jobs go in the commit of their end. With ``--keep TIME`` only the first, and for that time.

What is compared:
- jobs completed in the last minute with those of the third, in which no row is pruned yet where
  they are kept for longer;
- the size at the end with that in the middle: level where the middle is later than the time kept
  and a minute, since pruning begins then. So ``--minutes`` is at least twice that;
- the rows, at most, with those that run in the time kept and the minute between two prunings: at
  most 1.1 of them where the pruner keeps up.

    python -m bench retention [--minutes N] [--keep TIME] [--only postgres,sqlite] [--quick]
    python -m bench retention --minutes 30 --keep 10m --only postgres
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.contenders import POSTGRES, SQLITE
from bench.environment import Ground, ground
from bench.kit import tell
from bench.schedules import worker
from bench.series import Series
from harness.stores import opened
from outlast.base.config import parse_seconds
from outlast.model.job import Policy
from outlast.store.protocol import Store
from outlast.store.values import NewJob

RATE, RATE_QUICK = 2_000, 200  # jobs a second
BATCH_SECONDS = 0.25
LOOK_SECONDS = 10.0
MINUTE = 60.0
MEGABYTE = 1e6
PARTS = 4  # into which a run of less than three minutes is cut, for the rates
QUICK_SECONDS = 20.0


class Way(msgspec.Struct, frozen=True):
    """How old jobs go: by a pruner with this setting, in seconds, or with their end."""

    name: str
    keep: float
    policy: Policy = Policy()

    def flags(self) -> list[str]:
        """Return what the worker is told."""
        return [] if self.policy.keep == 0.0 else ["--keep-completed", f"{self.keep:g}s"]


WAYS = (Way("kept for 60 s", 60.0), Way("keep=0", 0.0, Policy(keep=0.0)))


class Look(msgspec.Struct, frozen=True):
    """Seconds since the start, jobs that have ended by then, rows of jobs, and bytes of their table
    with its indexes, or of the file."""

    at: float
    ended: int
    rows: int
    size: int


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("retention", "retention, 1 worker")
    stores = [each for each in (POSTGRES, SQLITE) if not options.only or each in options.only]
    seconds = QUICK_SECONDS if options.quick else options.minutes * MINUTE
    rate = RATE_QUICK if options.quick else RATE
    ways = [Way(f"kept for {options.keep}", parse_seconds(options.keep))] if options.keep else WAYS
    if not options.quick and max(way.keep for way in ways) + MINUTE > seconds / 2:
        sys.exit("--minutes is to be twice --keep and a minute: the size is compared from there on")
    with ground() as place, tell("retention", len(ways) * len(stores), seconds + 10) as step:
        for kind in stores:
            for way in ways:

                def run(kind: str = kind, way: Way = way) -> None:
                    with place.store(kind) as address:
                        url = f"sqlite:///{address}" if kind == SQLITE else address
                        looks = asyncio.run(hold(place, url, way, rate, seconds))
                    for line, value in figures(way, looks, rate):
                        series.figure(f"Outlast {kind}", *line).values.append(value)

                series.attempt(f"Outlast {kind}", way.name, "", run)
                step(f"{kind}, {way.name}")
    return series.finish(whole=not (options.only or options.quick or options.keep))


def figures(way: Way, looks: Sequence[Look], rate: int) -> list[tuple[tuple[str, str, int], float]]:
    """Return what is shown of the looks, the last of which was made at the end."""
    middle, end = looks[len(looks) // 2], looks[-1]
    span = MINUTE if end.at >= 3 * MINUTE else end.at / PARTS
    part = "minute" if span == MINUTE else f"{span:.0f} s"
    third, last = completed(looks, 2 * span, 3 * span), completed(looks, end.at - span, end.at)
    rows = max(look.rows for look in looks)
    shown = [
        ((f"{way.name}: completed, third {part}", "jobs/s", 0), third),
        ((f"{way.name}: completed, last {part}", "jobs/s", 0), last),
        ((f"{way.name}: last {part} / third", "", 2), last / third if third else 0.0),
        ((f"{way.name}: rows, at most", "rows", 0), rows),
        ((f"{way.name}: size in the middle", "MB", 1), middle.size / MEGABYTE),
        ((f"{way.name}: size at the end", "MB", 1), end.size / MEGABYTE),
        ((f"{way.name}: size at the end / in the middle", "", 2), end.size / middle.size),
    ]
    if way.policy.keep != 0.0:
        due = rate * min(way.keep + MINUTE, end.at)
        shown.append(((f"{way.name}: rows, at most / those of that time", "", 2), rows / due))
    return shown


def completed(looks: Sequence[Look], begin: float, end: float) -> float:
    """Return how many jobs have ended in a second, between the looks next to these times."""
    first, last = (min(looks, key=lambda look: abs(look.at - at)) for at in (begin, end))
    return (last.ended - first.ended) / (last.at - first.at) if last.at > first.at else 0.0


async def hold(place: Ground, url: str, way: Way, rate: int, seconds: float) -> list[Look]:
    """Keep the load on for this long; return a look for each 10 s, and one for the start."""
    async with opened(url) as store:
        with worker(place, url, "retention", *way.flags()):
            fed = Fed()
            feeding = asyncio.create_task(feed(store, way.policy, rate, fed))
            looks = [Look(0.0, 0, 0, 1)]
            began_at = time.monotonic()
            pause = min(LOOK_SECONDS, seconds / (2 * PARTS))
            while (now := time.monotonic() - began_at) < seconds and not feeding.done():
                await asyncio.sleep(min(pause, seconds - now))
                at, jobs = time.monotonic() - began_at, fed.jobs
                looks.append(await asyncio.to_thread(look, url, at, jobs))
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding  # raises what has ended it early
    return looks


class Fed:
    """How many jobs were enqueued so far."""

    jobs = 0


async def feed(store: Store, policy: Policy, rate: int, fed: Fed) -> None:
    """Enqueue this many jobs a second, until this is cancelled."""
    jobs = [NewJob(task="noop", policy=policy)] * int(rate * BATCH_SECONDS)
    at = time.monotonic()
    while True:
        await store.enqueue(jobs)
        fed.jobs += len(jobs)
        at += BATCH_SECONDS
        await asyncio.sleep(max(0.0, at - time.monotonic()))


COUNTED = "SELECT count(*), count(*) FILTER (WHERE ended_at IS NULL)"


def look(url: str, at: float, enqueued: int) -> Look:
    """Return how large the table is, or the file with its log."""
    if url.startswith("sqlite"):
        import sqlite3

        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as file:
            rows, living = file.execute(f"{COUNTED} FROM outlast_jobs").fetchone()
        there = (Path(f"{path}{end}") for end in ("", "-wal"))
        size = sum(each.stat().st_size for each in there if each.exists())
        return Look(at, enqueued - living, rows, size)
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute(
            f"{COUNTED}, pg_total_relation_size('outlast_jobs') FROM outlast_jobs"
        ).fetchone()
    assert found is not None
    rows, living, size = found
    return Look(at, enqueued - living, rows, size)
