"""One worker, two, eight and fifty at once, of Outlast and of peers on PostgreSQL.

All workers are started and come to rest first, so that no start-up counts. Then, for each number of
them: what they cost while there is nothing to do; how long single jobs wait, 35 ms apart, and what
each of those costs; and how fast a backlog is worked off that a client enqueues in bulk, from the
first start of a handler to the last. What something costs is processor time, of the workers and of
the database. No statistics are taken of the tables, which are empty but for single jobs: plans that
some peers keep from such statistics would be wrong for the backlog.

    python -m bench workers [--only NAME,…] [--jobs N] [--rounds N] [--quick]
"""

from __future__ import annotations

import time
from typing import Any

from bench.contenders import ALL_ENTRIES, POSTGRES, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import tell
from bench.latency import IDLE_GAP, sample
from bench.peers.common import WARM
from bench.rates import DRAIN_SECONDS
from bench.series import Series

NAMES = (
    "outlast postgres, default settings",
    "outlast postgres in process",
    "pgqueuer",
    "procrastinate",
    "awa",
)
COUNTS, QUICK_COUNTS = (1, 2, 8, 50), (1, 3)
CONNECTIONS = {"max_connections": "2000"}  # a peer's worker may open twenty
START_SECONDS = 120.0  # fifty Pythons on a small machine
# of a core: workers that use no more for some seconds, or no less than before, are at rest
CALM = 0.05
CALM_SECONDS = 3.0
REST_SECONDS = 15.0
SINGLE_JOBS = 240
FIRST_JOBS = 20  # before them, so that neither the client's start nor its session's counts
STEP_SECONDS = {1: 40.0, 2: 41.0, 8: 53.0, 50: 115.0}  # about


def measure_workers(
    one: Stand, place: Ground, workers: int, jobs: int, rest: float
) -> dict[str, float]:
    """Return the figures of that many workers, by the names in ``UNITS``."""
    for _ in range(workers):
        one.start_worker()
    one.client("timed", 1, 0)
    if not one.wait(WARM + 1, START_SECONDS):
        raise RuntimeError(f"{one.entry.name}: nothing ran: {one.tail()}")
    come_to_rest(one)
    one.sql("CHECKPOINT")
    place.calm()
    figures = at_rest(one, rest)
    figures |= single_jobs(one)
    figures["drain"] = backlog(one, jobs)
    return figures


def come_to_rest(one: Stand) -> None:
    """Wait until the workers have started: until their use of the processors stops falling."""
    deadline, least = time.monotonic() + START_SECONDS, float("inf")
    while time.monotonic() < deadline:
        before = one.client_cpu()
        time.sleep(CALM_SECONDS)
        used = (one.client_cpu() - before) / CALM_SECONDS
        if used < CALM or used > 0.9 * least:
            return
        least = used


def at_rest(one: Stand, seconds: float) -> dict[str, float]:
    """Return what workers without work cost a second."""
    client, database, began_at = one.client_cpu(), one.database_cpu(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began_at
    return {
        "at rest, workers": (one.client_cpu() - client) / took * 1e3,
        "at rest, database": (one.database_cpu() - database) / took * 1e3,
    }


def single_jobs(one: Stand) -> dict[str, float]:
    """Return how long single jobs wait, and what each costs."""
    before = one.done() + WARM + FIRST_JOBS
    producer = one.start("timed", FIRST_JOBS + SINGLE_JOBS, IDLE_GAP)
    one.wait(before, DRAIN_SECONDS)
    database, client = one.database_cpu(), one.client_cpu()
    one.wait(before + SINGLE_JOBS, DRAIN_SECONDS)
    taken = sample(one.marks(before))
    costs = {
        "a single job, workers": (one.client_cpu() - client) / SINGLE_JOBS * 1e3,
        "a single job, database": (one.database_cpu() - database) / SINGLE_JOBS * 1e3,
    }
    producer.wait()
    return {"pickup p50": taken.p50, "pickup p99": taken.p99, **costs}


def backlog(one: Stand, jobs: int) -> float:
    """Return at how many a second a backlog was worked off."""
    before = one.done()
    one.client("many", jobs)
    one.wait(before + jobs, DRAIN_SECONDS)
    marks = one.marks(before)
    return len(marks) / max(marks[-1].at - marks[0].at, 1e-6)


UNITS = {
    "at rest, workers": ("ms of processor a second", 1),
    "at rest, database": ("ms of processor a second", 1),
    "pickup p50": ("ms", 1),
    "pickup p99": ("ms", 1),
    "a single job, workers": ("ms of processor", 2),
    "a single job, database": ("ms of processor", 2),
    "drain": ("jobs/s", 0),
}


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("workers", "one worker, two, eight and fifty")
    entries = [e for e in chosen(options.only or NAMES, ALL_ENTRIES) if is_measured(e)]
    counts = QUICK_COUNTS if options.quick else COUNTS
    rest = 3.0 if options.quick else REST_SECONDS
    make_environments(entries)
    cost = sum(STEP_SECONDS.get(each, 20.0) for each in counts) / len(counts)
    steps = len(entries) * len(counts) * options.rounds
    with ground(CONNECTIONS) as place, tell("workers", steps, cost) as step:
        for _ in range(options.rounds):
            for workers in counts:
                for entry in entries:

                    def measure(entry: Entry = entry, workers: int = workers) -> None:
                        with stand(entry, place) as one:
                            found = measure_workers(
                                one, place, workers, entry.jobs(options.jobs), rest
                            )
                        for what, value in found.items():
                            unit, digits = UNITS[what]
                            line = series.figure(entry.name, told(workers, what), unit, digits)
                            line.values.append(value)
                        step(f"{entry.name}, {workers}: {found}")

                    series.attempt(entry.name, told(workers, "drain"), "jobs/s", measure)
    return series.finish(whole=not (options.only or options.quick))


def told(workers: int, what: str) -> str:
    """Return a figure's name with the number of workers before it."""
    return f"{workers:>2} {'worker' if workers == 1 else 'workers'}: {what}"


def is_measured(entry: Entry) -> bool:
    """Whether an entry has workers of its own, and enqueues in bulk, on PostgreSQL."""
    return entry.store == POSTGRES and entry.bulk and not entry.batch and "plain" not in entry.name
