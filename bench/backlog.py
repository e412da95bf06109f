"""The first 8,000 jobs of a long backlog against those of a short one.

python -m bench backlog [--only NAME,…] [--jobs N] [--rounds N]
"""

from __future__ import annotations

from typing import Any

from bench.contenders import ALL_ENTRIES, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import tell
from bench.rates import fill
from bench.series import Series

NAMES = ("outlast postgres in process", "pgqueuer")
SHORT, LONG = 10_000, 1_000_000
FIRST = 8_000
FILL_SECONDS = 45.0


def first(one: Stand, jobs: int) -> float:
    """Return the rate at which a new worker runs the first jobs of those that wait."""
    before = one.done()
    one.start_worker()
    if not one.wait(before + jobs, 120):
        raise RuntimeError(f"only {one.done() - before} of {jobs} ran: {one.tail()}")
    one.kill_workers()
    one.without_clients()
    marks = one.marks(before)[:jobs]
    return len(marks) / (marks[-1].at - marks[0].at)


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("backlog", f"rate of the first {FIRST:,} jobs")
    entries = chosen(options.only or NAMES, ALL_ENTRIES)
    entries = [entry for entry in entries if entry.bulk and not entry.batch]
    entries = [entry for entry in entries if options.only or "plain" not in entry.name]
    scale = 100 if options.quick else 1
    make_environments(entries)
    cost = (FILL_SECONDS / options.rounds + 2 * 5.0) / 2
    with ground() as place, tell("backlog", len(entries) * options.rounds * 2, cost) as step:
        for entry in entries:
            for backlog in (SHORT // scale, LONG // scale):
                what = f"{backlog:,} waiting"

                def measure(entry: Entry = entry, backlog: int = backlog, what: str = what) -> None:
                    figure = series.figure(entry.name, what, "jobs/s")
                    for value in rates(place, entry, backlog, options.rounds, FIRST // scale):
                        figure.values.append(value)
                        step(f"{entry.name}, {what}: {value:,.0f}/s")

                series.attempt(entry.name, what, "jobs/s", measure)
    return series.finish(whole=not (options.only or options.quick))


def rates(place: Ground, entry: Entry, backlog: int, rounds: int, jobs: int) -> list[float]:
    """Return the rate of each round: the long backlog is filled once, the short one each time."""
    taken: list[float] = []
    while len(taken) < rounds:
        with stand(entry, place) as one:
            fill(one, backlog)
            one.settle()
            taken.append(first(one, jobs))
            while len(taken) < rounds and backlog > SHORT:
                taken.append(first(one, jobs))
    return taken
