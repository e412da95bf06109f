"""How long from the enqueuing of a job to the start of its handler, in another process.

``idle``: one job at a time, 20 to 50 ms apart, on a worker that has nothing to do; the time to
enqueue it is in it. The floor is an INSERT with NOTIFY in one process, and in another one statement
that claims when that is heard. ``half of the peak``: jobs at half of the rate at which the same
worker drained a backlog a moment before.

    python -m bench latency [--only NAME,…] [--rounds N] [--quick]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.table import Table

from bench.contenders import ALL_ENTRIES, Entry, chosen
from bench.environment import Ground, Missing, ground, make_environments
from bench.harness import Mark, Stand, stand
from bench.kit import keep, screen, tell, why
from bench.peers.common import WARM
from bench.rates import drain

IDLE, HALF = "idle", "half of the peak"
FLOOR = "floor asyncpg 1"
IDLE_JOBS, IDLE_GAP = 120, 0.035
HALF_SECONDS, HALF_TICK = 6.0, 0.02
REST_SECONDS = 10.0  # for the last jobs to start


class Sample(msgspec.Struct, kw_only=True):
    """One round: milliseconds; ``rate``: of the jobs that came, a second."""

    jobs: int
    p50: float
    p99: float
    rate: float = 0.0


class Line(msgspec.Struct, kw_only=True):
    """All rounds of one entry."""

    name: str
    what: str
    store: str
    samples: list[Sample] = []
    failed: list[str] = []

    def median(self, figure: str) -> float:
        """Return the median over the rounds."""
        values = [getattr(each, figure) for each in self.samples]
        return statistics.median(values) if values else 0.0


def idle(one: Stand, place: Ground, jobs: int) -> Sample:
    """Measure on a worker that waits."""
    begin(one)
    one.settle()
    place.calm()
    before = one.done()
    one.client("timed", jobs, IDLE_GAP)
    one.wait(before + WARM + jobs, REST_SECONDS)
    return sample(one.marks(before))


def half(one: Stand, jobs: int) -> Sample:
    """Measure at half of the rate of a drain."""
    peak = drain(one, jobs, 1).rate
    begin(one)
    before = one.done()
    batch = max(1, round(peak / 2 * HALF_TICK))
    sent = batch * round(HALF_SECONDS / HALF_TICK)
    one.client("timed", sent, HALF_TICK, batch)
    one.wait(before + WARM + sent, REST_SECONDS)
    taken = sample(one.marks(before))
    taken.rate = batch / HALF_TICK
    return taken


def begin(one: Stand) -> None:
    """Start a worker, and let it run a first job, which is not counted."""
    before = one.done()
    one.start_worker()
    one.client("timed", 1, 0)
    if not one.wait(before + WARM + 1, 30):
        raise RuntimeError(f"nothing ran: {one.tail()}")
    time.sleep(1)  # for what a worker does at its start


def sample(marks: Sequence[Mark]) -> Sample:
    """Return the percentiles."""
    waits = sorted(mark.waited * 1000 for mark in marks if mark.waited)

    def at(share: float) -> float:
        return waits[min(len(waits) - 1, int(share * len(waits)))]

    return Sample(jobs=len(waits), p50=at(0.5), p99=at(0.99))


def play(place: Ground, entry: Entry, line: Line, quick: bool) -> None:
    """Measure one round; note what went wrong."""
    try:
        with stand(entry, place) as one:
            if line.what == IDLE:
                line.samples.append(idle(one, place, 10 if quick else IDLE_JOBS))
            else:
                line.samples.append(half(one, 300 if quick else entry.jobs(10_000)))
    except Missing as missing:
        line.failed.append(f"not here: {missing}")
    except Exception as error:
        line.failed.append(why(error))


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    entries = [e for e in chosen(options.only, ALL_ENTRIES) if is_measured(e)]
    if options.quick and not options.only:
        entries = [each for each in entries if not each.environment]
    todo = [
        (entry, Line(name=entry.name, what=what, store=entry.store))
        for what in (IDLE, HALF)
        for entry in entries
        if what == IDLE or entry.name.startswith(("Outlast", "PgQueuer"))
    ]
    make_environments(entries)
    once = [entry.seldom or line.what == HALF for entry, line in todo]
    steps = sum(1 if alone else options.rounds for alone in once)
    with ground() as place, tell("latency", steps, 9) as step:
        for number in range(options.rounds):
            for (entry, line), alone in zip(todo, once, strict=True):
                if number and alone:
                    continue
                play(place, entry, line, options.quick)
                step(f"{line.name}, {line.what}: {told(line)}")
    lines = [line for _, line in todo]
    show(lines)
    keep("latency", lines, whole=not (options.only or options.quick))
    return sum(bool(line.failed) for line in lines)


def is_measured(entry: Entry) -> bool:
    """Whether an entry has a line: of the floors only the one that a worker stands on."""
    return "plain" not in entry.name and (not entry.batch or entry.name == FLOOR)


def told(line: Line) -> str:
    """Return the medians so far."""
    if not line.samples:
        return f"FAILED: {line.failed[-1][:300]}"
    return f"p50 {line.median('p50'):.1f} ms, p99 {line.median('p99'):.1f} ms"


def show(lines: Sequence[Line]) -> None:
    """Print the table."""
    table = Table(title="from enqueuing to the start of the handler: ms, medians of the rounds")
    for column in ("who", "load"):
        table.add_column(column, no_wrap=True)
    for column in ("p50", "p99", "jobs/s", "jobs"):
        table.add_column(column, justify="right")
    for line in lines:
        p50, p99 = (f"{line.median(name):.1f}" for name in ("p50", "p99"))
        came = f"{line.median('rate'):,.0f}" if line.what == HALF else ""
        table.add_row(line.name, line.what, p50, p99, came, f"{line.median('jobs'):,.0f}")
    screen().print(table)
