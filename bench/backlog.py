"""The first jobs of backlogs of 150,000 and of 1,000,000 against those of one of 20,000.

A worker starts and drains 8,000 jobs of the first, then another one 8,000 of the next, in turns.
The backlogs are filled up again in between. Such a drain takes half a second, so there are many. An
older PostgreSQL than the wheel's shows what the newest one does not: name its folder of programs in
OUTLAST_TEST_PG_BIN.

python -m bench backlog [--only NAME,…] [--rounds N]
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from bench.contenders import ALL_ENTRIES, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import tell
from bench.rates import fill
from bench.series import Figure, Series

NAMES = ("postgres, default settings", "outlast postgres in process", "pgqueuer")
BACKLOGS = 20_000, 150_000, 1_000_000
FIRST = 8_000
DRAINS = 5  # of each backlog, in a round
FILL_SECONDS, TURN_SECONDS = 60.0, 15.0


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
    place: Ground, entry: Entry, figures: dict[int, Figure], *, turns: int, scale: int
) -> None:
    """Note the rates of all backlogs, in turns."""
    with ExitStack() as stack:
        stands = {
            backlog: stack.enter_context(stand(entry, place, f"of_{backlog}"))
            for backlog in figures
        }
        for backlog, one in stands.items():
            fill(one, backlog // scale)
        for _ in range(turns):
            for backlog, one in stands.items():
                ran = one.done()
                figures[backlog].values.append(first(one, FIRST // scale))
                fill(one, one.done() - ran)


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("backlog", f"rate of the first {FIRST:,} jobs")
    entries = chosen(options.only or NAMES, ALL_ENTRIES)
    entries = [entry for entry in entries if entry.bulk and not entry.batch]
    entries = [entry for entry in entries if options.only or "plain" not in entry.name]
    turns, scale = (1, 100) if options.quick else (DRAINS * options.rounds, 1)
    make_environments(entries)
    cost = FILL_SECONDS + turns * TURN_SECONDS
    with ground() as place, tell("backlog", len(entries), cost) as step:
        for entry in entries:

            def measure(entry: Entry = entry) -> None:
                figures = {
                    backlog: series.figure(entry.name, f"{backlog // scale:,} waiting", "jobs/s")
                    for backlog in BACKLOGS
                }
                compare(place, entry, figures, turns=turns, scale=scale)
                rates = ", ".join(f"{figure.shown()}/s" for figure in figures.values())
                step(f"{entry.name}: {rates}")

            series.attempt(entry.name, f"{BACKLOGS[-1] // scale:,} waiting", "jobs/s", measure)
    return series.finish(whole=not (options.only or options.quick))
