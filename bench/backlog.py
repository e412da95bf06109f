"""The first jobs of a backlog of 1,000,000 against those of one of 10,000.

A worker starts and drains 8,000 jobs of the one, then another one 8,000 of the other, in turns. The
short backlog is filled up again in between. Such a drain takes half a second, so there are many.

python -m bench backlog [--only NAME,…] [--rounds N]
"""

from __future__ import annotations

from typing import Any

from bench.contenders import ALL_ENTRIES, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import tell
from bench.rates import fill
from bench.series import Figure, Series

NAMES = ("outlast postgres in process", "pgqueuer")
SHORT, LONG = 10_000, 1_000_000
FIRST = 8_000
DRAINS = 5  # of each backlog, in a round
FILL_SECONDS, PAIR_SECONDS = 50.0, 10.0


def first(one: Stand, jobs: int) -> float:
    """Return the rate at which a new worker runs the first jobs of those that wait."""
    one.settle()
    before = one.done()
    one.start_worker()
    if not one.wait(before + jobs, 120):
        raise RuntimeError(f"only {one.done() - before} of {jobs} ran: {one.tail()}")
    one.stop_workers()
    one.without_clients()
    marks = one.marks(before)[:jobs]
    return len(marks) / (marks[-1].at - marks[0].at)


def compare(
    place: Ground, entry: Entry, short: Figure, long: Figure, *, pairs: int, scale: int
) -> None:
    """Note the rates of both backlogs, in turns."""
    jobs = FIRST // scale
    with stand(entry, place, "short") as few, stand(entry, place, "long") as many:
        fill(few, SHORT // scale)
        fill(many, LONG // scale)
        for _ in range(pairs):
            ran = few.done()
            short.values.append(first(few, jobs))
            fill(few, few.done() - ran)
            long.values.append(first(many, jobs))


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("backlog", f"rate of the first {FIRST:,} jobs")
    entries = chosen(options.only or NAMES, ALL_ENTRIES)
    entries = [entry for entry in entries if entry.bulk and not entry.batch]
    entries = [entry for entry in entries if options.only or "plain" not in entry.name]
    pairs, scale = (1, 100) if options.quick else (DRAINS * options.rounds, 1)
    make_environments(entries)
    cost = FILL_SECONDS + pairs * PAIR_SECONDS
    with ground() as place, tell("backlog", len(entries), cost) as step:
        for entry in entries:

            def measure(entry: Entry = entry) -> None:
                short, long = (
                    series.figure(entry.name, f"{backlog // scale:,} waiting", "jobs/s")
                    for backlog in (SHORT, LONG)
                )
                compare(place, entry, short, long, pairs=pairs, scale=scale)
                step(f"{entry.name}: {short.shown()}/s and {long.shown()}/s")

            series.attempt(entry.name, f"{LONG // scale:,} waiting", "jobs/s", measure)
    return series.finish(whole=not (options.only or options.quick))
