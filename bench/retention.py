"""Does a worker that prunes hold the size of the store, under load?

A client enqueues 2,000 jobs a second for minutes (``--minutes``, at least 3 for a statement about
the size), a worker runs them. ``kept for 60 s``: it was started with ``--keep-completed 60s``.
``keep=0``: the rows of these jobs go in the commit of their end. What is compared is the size in
the middle and at the end; pruning begins a minute after the start.

    python -m bench retention [--minutes N] [--only postgres,sqlite] [--quick]
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.contenders import POSTGRES, SQLITE
from bench.environment import Ground, ground
from bench.kit import tell
from bench.schedules import opened, worker
from bench.series import Series
from outlast.model.job import Policy
from outlast.store.protocol import Store
from outlast.store.values import NewJob

RATE, RATE_QUICK = 2_000, 200  # jobs a second
BATCH_SECONDS = 0.25
LOOK_SECONDS = 10.0
MINUTE = 60.0
MEGABYTE = 1e6
WAYS = (
    ("kept for 60 s", Policy(), ("--keep-completed", "60s")),
    ("keep=0", Policy(keep=0.0), ()),
)


class Look(msgspec.Struct, frozen=True):
    """Rows of jobs, and bytes of their table with its indexes, or of the file."""

    rows: int
    size: int


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("retention", "retention, 1 worker")
    stores = [each for each in (POSTGRES, SQLITE) if not options.only or each in options.only]
    seconds = 20.0 if options.quick else options.minutes * MINUTE
    with ground() as place, tell("retention", 2 * len(stores), seconds + 10) as step:
        for kind in stores:
            for name, policy, given in WAYS:

                def run(
                    kind: str = kind,
                    name: str = name,
                    policy: Policy = policy,
                    given: Sequence[str] = given,
                ) -> None:
                    with place.store(kind) as address:
                        url = f"sqlite:///{address}" if kind == SQLITE else address
                        rate = RATE_QUICK if options.quick else RATE
                        looks = asyncio.run(hold(place, url, policy, given, rate, seconds))
                    for line, value in figures(name, looks):
                        series.figure(f"Outlast {kind}", *line).values.append(value)

                series.attempt(f"Outlast {kind}", name, "", run)
                step(f"{kind}, {name}")
    return series.finish(whole=not (options.only or options.quick))


def figures(name: str, looks: Sequence[Look]) -> list[tuple[tuple[str, str, int], float]]:
    """Return what is shown of the looks, the last of which was made at the end."""
    middle, end = looks[len(looks) // 2], looks[-1]
    return [
        ((f"{name}: rows, at most", "rows", 0), max(look.rows for look in looks)),
        ((f"{name}: size in the middle", "MB", 1), middle.size / MEGABYTE),
        ((f"{name}: size at the end", "MB", 1), end.size / MEGABYTE),
    ]


async def hold(
    place: Ground, url: str, policy: Policy, given: Sequence[str], rate: int, seconds: float
) -> list[Look]:
    """Keep the load on for this long; return a look for each 10 s."""
    async with opened(url) as store:
        with worker(place, url, "retention", *given):
            feeding = asyncio.create_task(feed(store, policy, rate))
            looks: list[Look] = []
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(min(LOOK_SECONDS, max(0.0, end - time.monotonic())))
                looks.append(await asyncio.to_thread(look, url))
                if feeding.done():
                    break
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding  # raises what has ended it early
    return looks


async def feed(store: Store, policy: Policy, rate: int) -> None:
    """Enqueue this many jobs a second, until this is cancelled."""
    jobs = [NewJob(task="noop", policy=policy)] * int(rate * BATCH_SECONDS)
    at = time.monotonic()
    while True:
        await store.enqueue(jobs)
        at += BATCH_SECONDS
        await asyncio.sleep(max(0.0, at - time.monotonic()))


def look(url: str) -> Look:
    """Return how large the table is, or the file with its log."""
    if url.startswith("sqlite"):
        import sqlite3

        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as file:
            (rows,) = file.execute("SELECT count(*) FROM outlast_jobs").fetchone()
        there = (Path(f"{path}{end}") for end in ("", "-wal"))
        return Look(rows, sum(each.stat().st_size for each in there if each.exists()))
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*), pg_total_relation_size('outlast_jobs') FROM outlast_jobs"
        ).fetchone()
    assert found is not None
    return Look(*found)
