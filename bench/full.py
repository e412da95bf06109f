"""At what rate one PostgreSQL is full on this machine, and what fills it.

Clients enqueue as fast as they can, workers at their defaults run the jobs, which do nothing, and
all of them share the machine with the server. ``in bulk``: one client keeps 5,000 jobs waiting, so
the workers set the rate. ``one by one``: eight clients, each of which commits one job at a time.
Nothing is extrapolated: run it where your server runs.

python -m bench full [--quick]
"""

from __future__ import annotations

import time
from typing import Any

import psutil

from bench.contenders import ALL_ENTRIES, chosen
from bench.environment import cpu, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import tell
from bench.series import Series

NAME = "postgres, default settings"
BACKLOG, CLIENTS, WORKERS = 5_000, 8, (1, 2, 4)
WARM, SECONDS, QUICK_SECONDS = 5.0, 20.0, 2.0
MANY = 1e9  # jobs: more than there is time for
MEGABYTE = 1e6


def measure(one: Stand, series: Series, what: str, workers: int, seconds: float) -> str:
    """Keep the store full for so long; note the rate and what was used. Return it in words."""
    bulk = what == "in bulk"
    clients = [
        one.start("keep", BACKLOG, MANY) if bulk else one.start("one", MANY)
        for _ in range(1 if bulk else CLIENTS)
    ]
    try:
        for _ in range(workers):
            one.start_worker()
        if not one.wait(1, 60):
            raise RuntimeError(f"nothing ran: {one.tail()}")
        time.sleep(WARM)
        before = read(one, clients)
        began = time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - began
        after = read(one, clients)
    finally:
        for client in clients:
            client.kill()
            client.wait()
    name = f"{what}, {workers} workers" if workers > 1 else f"{what}, 1 worker"
    names = "jobs", "server", "workers", "clients", "machine", "commits", "WAL"
    units = "/s", "cores", "cores", "cores", "cores", "/s", "MB/s"
    rates = [(last - first) / lasted for first, last in zip(before, after, strict=True)]
    for each, unit, rate in zip(names, units, rates, strict=True):
        digits = 0 if unit == "/s" else 2
        series.figure(name, each, unit, digits).values.append(rate)
    return f"{name}: " + ", ".join(
        f"{each} {rate:,.2f} {unit}" for each, unit, rate in zip(names, units, rates, strict=True)
    )


def read(one: Stand, clients: list[Any]) -> tuple[float, ...]:
    """Return how much of each has been done and used so far."""
    counters, times = one.counters(), psutil.cpu_times()
    return (
        one.done(),
        one.database_cpu(),
        one.client_cpu(),
        cpu(*(client.pid for client in clients)),
        sum(times) - times.idle - times.iowait,
        counters.transactions,
        counters.wal / MEGABYTE,
    )


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("full", "one PostgreSQL, kept as busy as it can be")
    entry = chosen((NAME,), ALL_ENTRIES)[0]
    make_environments([entry])
    seconds = QUICK_SECONDS if options.quick else SECONDS
    todo = [(what, workers) for what in ("in bulk", "one by one") for workers in WORKERS]
    with ground() as place, tell("full", len(todo), seconds + WARM + 5) as step:
        for what, workers in todo:
            with stand(entry, place) as one:
                step(measure(one, series, what, workers, seconds))
    return series.finish(whole=not options.quick)
