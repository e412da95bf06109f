"""How soon schedules fire: one on an idle worker, 10,000 at once, and what idle ones cost.

``from the tick to the start``: a schedule of one tick a second; the handler compares the clock with
its tick. ``due at once``: the time from the tick until the last job is stored, in a queue that the
worker does not serve. ``statements``: of an idle worker, in the server's log, without schedules and
beside 100,000 whose next tick is months away. Workers are ``outlast worker`` with one runner.

    python -m bench schedules [--only postgres,sqlite] [--quick]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.contenders import POSTGRES, SQLITE
from bench.environment import Ground, ground, tree
from bench.idle import STATEMENT, logging_statements
from bench.kit import APP, tell
from bench.series import Series
from harness.stores import opened
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from outlast.store.schedules import NewSchedule
from outlast.store.values import NewJob

STORES = (POSTGRES, SQLITE)
TICKS, TICKS_QUICK = 150, 5
STORM, STORM_QUICK = 10_000, 200
IDLE, IDLE_QUICK = 100_000, 500
BATCH = 500
LEAD_SECONDS, LEAD_QUICK = 45.0, 10.0  # before the tick of many, to put them
REST_SECONDS, COUNTED_SECONDS = 5.0, 20.0
WAIT_SECONDS = 300.0
LOOK = 0.1
START, ONCE = "from the tick to the start", "due at once"


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("schedules", "schedules, 1 worker")
    stores = [each for each in STORES if not options.only or each in options.only]
    seconds = 90 if options.quick else 420
    with (
        ground() as place,
        logging_statements(place),
        tell("schedules", len(stores), seconds) as step,
    ):
        for kind in stores:
            for what, measure in (("punctual", punctual), ("storm", storm), ("idle", idle)):

                def run(kind: str = kind, measure: Any = measure) -> None:
                    with place.store(kind) as address:
                        url = f"sqlite:///{address}" if kind == SQLITE else address
                        for line, value in asyncio.run(measure(place, url, options.quick)):
                            series.figure(f"Outlast {kind}", *line).values.append(value)

                series.attempt(f"Outlast {kind}", what, "", run)
            step(kind)
    return series.finish(whole=not (options.only or options.quick))


Line = tuple[str, str, int]  # what, unit, digits
Figures = list[tuple[Line, float]]


async def punctual(place: Ground, url: str, quick: bool) -> Figures:
    """Measure one schedule with a tick a second."""
    ticks = TICKS_QUICK if quick else TICKS
    async with opened(url) as store:
        with worker(place, url, "punctual"):
            await store.put_schedules([schedule("each second", '{"every":1}', "late")])
            rows = await jobs(store, ticks + 2, ticks + 60)
    waits = sorted(1000 * float(row.result or 0) for row in rows[2:])  # what was planned late
    return [
        ((f"{START}, median", "ms", 1), at(waits, 0.5)),
        ((f"{START}, 99 %", "ms", 1), at(waits, 0.99)),
    ]


async def storm(place: Ground, url: str, quick: bool) -> Figures:
    """Measure many schedules with the same tick."""
    many, lead = (STORM_QUICK, LEAD_QUICK) if quick else (STORM, LEAD_SECONDS)
    tick = (time.time() + lead) // 60 * 60 + 60
    when = f"{datetime.fromtimestamp(tick, UTC):%M %H} * * *"
    async with opened(url) as store:
        await put(store, many, f'{{"cron":"{when}"}}')
        with worker(place, url, "storm", "--queues", "served"):
            await planned(store)
            if time.time() > tick:
                raise RuntimeError("the schedules were not planned before their tick")
            rows = await jobs(store, many, WAIT_SECONDS, queue="unserved")
    last = max(row.enqueued_at for row in rows)
    assert {row.policy.tick for row in rows} == {tick}
    return [((f"{many:,} {ONCE}, until the last job is stored", "s", 2), last - tick)]


async def idle(place: Ground, url: str, quick: bool) -> Figures:
    """Count statements without schedules, and beside many that are not due."""
    if url.startswith("sqlite"):
        return []
    many, seconds = (IDLE_QUICK, 5.0) if quick else (IDLE, COUNTED_SECONDS)
    figures: Figures = []
    async with opened(url) as store:
        for number in (0, many):
            await put(store, number, '{"cron":"@yearly"}')
            with worker(place, url, "idle"):
                await planned(store)
                await asyncio.sleep(REST_SECONDS)
                rate = await asyncio.to_thread(statements, place, url, seconds)
            figures.append(((f"statements, {number:,} idle", "a second", 2), rate))
    return figures


def statements(place: Ground, url: str, seconds: float) -> float:
    """Return how many a second the server logs for this database."""
    before = place.postgres.log.stat().st_size
    time.sleep(seconds)
    name = url.rpartition("/")[2]
    with place.postgres.log.open(errors="replace") as lines:
        lines.seek(before)
        return sum(f" {name} " in each and bool(STATEMENT.search(each)) for each in lines) / seconds


# --- what they have in common ---------------------------------------------------------------------


@contextlib.contextmanager
def worker(place: Ground, url: str, name: str, *options: str) -> Iterator[None]:
    """Run a worker for the length of the block."""
    command = [sys.executable, "-m", "outlast", "worker", APP, "--runners", "1", *options]
    run = {"OUTLAST_RUN_DIR": str(place.folder / "run")}
    with (place.folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[1],
            env={**os.environ, **run, "OUTLAST_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        for each in tree(process.pid):
            with contextlib.suppress(Exception):
                each.kill()
        process.wait()


def schedule(name: str, spec: str, task: str, queue: str = "default") -> NewSchedule:
    """Return a schedule of a task of the benchmarks."""
    return NewSchedule(name=name, call=NewJob(task=task, queue=queue), spec=spec)


async def put(store: Store, number: int, spec: str) -> None:
    """Put this number of schedules, whose jobs no worker takes."""
    made = [schedule(f"s{n:06}", spec, "noop", "unserved") for n in range(number)]
    for begin in range(0, number, BATCH):
        await store.put_schedules(made[begin : begin + BATCH])


async def planned(store: Store) -> None:
    """Wait until the worker has planned all schedules: none is due."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (await store.due_schedules(1)).schedules:
        if time.monotonic() > deadline:
            raise RuntimeError("the schedules were not planned in time")
        await asyncio.sleep(LOOK)


async def jobs(
    store: Store, number: int, seconds: float, queue: str | None = None
) -> list[StoredJob]:
    """Return this many jobs by their ids, once they are there; those of a served queue: ended."""
    deadline = time.monotonic() + seconds
    which = JobFilter(limit=number, queue=queue)
    while True:
        rows = await store.inspector.jobs(which) if await there(store, number, queue) else []
        done = [row for row in rows if queue is not None or row.ended_at is not None]
        if len(done) >= number:
            return sorted(done, key=lambda row: row.id)
        if time.monotonic() > deadline:
            raise RuntimeError(f"there are {len(done)} of {number} jobs")
        await asyncio.sleep(LOOK)


async def there(store: Store, number: int, queue: str | None) -> bool:
    """Whether there are this many jobs, running ones among them."""
    counts = await store.inspector.counts()
    return sum(n for (each, _), n in counts.items() if queue in {None, each}) >= number


def at(values: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]
