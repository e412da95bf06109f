"""What running jobs cost while they only wait: memory, and the renewal of the lease.

``memory``: of a worker and of a runner, and per 1,000 running jobs (memory of their own: what would
be free if the process ended). ``heartbeat``: what the database is asked to write while 5,000 jobs
run, from the counters of its tables.

    python -m bench memory
    python -m bench heartbeat
"""

from __future__ import annotations

import time
from typing import Any

import psutil

from bench.contenders import OUTLAST, Entry
from bench.environment import ground, tree
from bench.harness import LOOK, Stand, stand
from bench.kit import tell
from bench.lanes import with_variables
from bench.series import Series

NAME = "Outlast postgres runners"
WIDE = {"BENCH_CONCURRENCY": "10000"}
FEW, MANY = 1_000, 5_000
FOREVER = 3600
START_SECONDS = 120.0
REST_SECONDS = 3.0
CALM_SECONDS = 12.0  # until the spare runner is there, and idle sessions hand in their counters
WATCH_SECONDS = 20.0
BEATS = "SELECT sum(beat) FROM outlast_workers"
MEGA = 1e6
WRITES = (
    "SELECT relname || ' ' || n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables ORDER BY 1"
)


def start_running(one: Stand, jobs: int) -> None:
    """Enqueue jobs that wait, and see that all of them have begun."""
    before = one.done()
    one.client("sleepers", jobs, FOREVER)
    if not one.wait(before + jobs, START_SECONDS):
        raise RuntimeError(f"only {one.done() - before} of {jobs} run: {one.tail()}")
    time.sleep(REST_SECONDS)


def megabytes(one: Stand) -> dict[str, list[float]]:
    """Return the memory of each process of the worker, by what it is."""
    found: dict[str, list[float]] = {}
    for process in tree(one.workers[0].pid):
        try:
            words, own = " ".join(process.cmdline()), process.memory_full_info().uss / MEGA
        except psutil.NoSuchProcess:
            continue
        kind = "worker" if process.pid == one.workers[0].pid else "other"
        kind = "runner" if "runner" in words and kind == "other" and "tether" not in words else kind
        found.setdefault(kind, []).append(own)
    return found


def remember(one: Stand, series: Series, jobs: int) -> None:
    """Measure the memory at rest, with few and with many running jobs."""
    one.start_worker()
    start_running(one, 1)
    rest = megabytes(one)
    start_running(one, jobs // 5)
    few = sum(map(sum, megabytes(one).values()))
    start_running(one, jobs - jobs // 5)
    many = sum(map(sum, megabytes(one).values()))
    per_thousand = (many - few) / (jobs - jobs // 5) * 1000
    for what, value in (
        ("worker", sum(rest["worker"])),
        ("runner (the mean; a warm spare is one of them)", _mean(rest.get("runner", []))),
        ("everything: worker, 1 runner, its spare", sum(map(sum, rest.values()))),
        ("per 1,000 running jobs, worker and runner", per_thousand),
    ):
        series.figure(NAME, what, "MB", 1).values.append(value)


def _mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


def watch(one: Stand, series: Series, jobs: int, seconds: float) -> None:
    """Watch what is written while the jobs run."""
    one.start_worker()
    start_running(one, jobs)
    time.sleep(min(seconds, CALM_SECONDS))
    first, before = after_a_beat(one)
    counters, cpu, at = one.counters(), one.client_cpu(), time.monotonic()
    time.sleep(seconds)
    now, cpu, took = one.counters(), one.client_cpu() - cpu, time.monotonic() - at
    last, after = after_a_beat(one)
    beats = last - first
    rows = {table: n - before.get(table, 0) for table, n in after.items()}
    for what, value, unit, digits in (
        ("rows written, all tables", sum(rows.values()) / beats, "a beat", 2),
        ("rows of jobs written", rows.get("outlast_jobs", 0) / beats, "a beat", 2),
        ("WAL", (now.wal - counters.wal) / took, "B a second", 0),
        ("transactions", (now.transactions - counters.transactions) / took, "a second", 2),
        ("processor time", 100 * cpu / took, "% of a core", 1),
    ):
        series.figure(f"{NAME}, {jobs:,} jobs", what, unit, digits).values.append(value)


def after_a_beat(one: Stand) -> tuple[int, dict[str, int]]:
    """Return the number of beats and what was written, just after the counters have changed.

    Sessions hand in their counters some time after a commit: looking at the same moment of that
    rhythm at both ends of a span makes the two agree.
    """
    before = rows = written(one)
    while rows == before:
        time.sleep(LOOK)
        rows = written(one)
    return int(one.sql(BEATS)), rows


def written(one: Stand) -> dict[str, int]:
    """Return how many row versions each table has seen written."""
    rows = (line.split() for line in one.sql(WRITES).splitlines())
    return {table: int(count) for table, count in rows}


def memory(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("memory", "memory of its own")
    jobs = 100 if options.quick else MANY

    def play(one: Stand) -> None:
        remember(one, series, jobs)

    return _measure(series, play, 40, whole=not (options.only or options.quick))


def heartbeat(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("heartbeat", "what is written while jobs only run")
    jobs, seconds = (100, 4.0) if options.quick else (MANY, WATCH_SECONDS)

    def play(one: Stand) -> None:
        watch(one, series, jobs, seconds)

    return _measure(series, play, 25 + seconds, whole=not (options.only or options.quick))


def _measure(series: Series, play: Any, seconds: float, *, whole: bool) -> int:
    entry: Entry = with_variables(next(each for each in OUTLAST if each.name == NAME), WIDE)
    with ground() as place, tell(series.part, 1, seconds) as step:

        def measure() -> None:
            with stand(entry, place) as one:
                play(one)
            step("done")

        series.attempt(NAME, series.part, "", measure)
    return series.finish(whole=whole)
