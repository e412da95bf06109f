"""How many jobs a second are enqueued and drained, and what each costs, against peers and floor.

The handlers do nothing but one small append to a file in memory, by which they are counted. A drain
is timed from the first start of a handler to the last, so that no start-up counts; processor
time, WAL and transactions are read after the last end has reached the database.

    python -m bench rates [--only NAME,…] [--jobs N] [--rounds N] [--quick]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.table import Table

from bench.contenders import ALL_ENTRIES, DEFAULTS, Entry, chosen
from bench.environment import Ground, Missing, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import clock, keep, screen, why

ONE, MANY = "enqueue one", "enqueue many"
DRAIN_SECONDS = 60.0
SETTLE_SECONDS = 1.2  # until ends that a peer keeps back are in the database
ONE_JOBS, MANY_JOBS = 1500, 20_000
OVERHEAD = {ONE: 1.5, MANY: 1.5, "drain": 5.5}  # seconds of a round beside the work


class Round(msgspec.Struct, kw_only=True):
    """One round. ``rate`` in jobs per second; the rest is per job: microseconds of processor time,
    bytes of WAL, transactions, row versions that died."""

    jobs: int
    rate: float
    client_us: float
    database_us: float = 0.0
    wal: float = 0.0
    transactions: float = 0.0
    dead: float = 0.0


class Line(msgspec.Struct, kw_only=True):
    """What all rounds have shown of one entry in one respect."""

    name: str
    what: str
    store: str
    settings: str
    rounds: list[Round] = []
    failed: list[str] = []

    def median(self, figure: str = "rate") -> float:
        """Return the median of one figure; 0 where there is none."""
        values = [getattr(each, figure) for each in self.rounds]
        return statistics.median(values) if values else 0.0

    def spread(self) -> str:
        """Return the rates as people read them."""
        if not self.rounds:
            return ""
        rates = [each.rate for each in self.rounds]
        low_to_high = f" ({min(rates):,.0f} to {max(rates):,.0f})" if rates[1:] else ""
        return f"{self.median():,.0f}{low_to_high}"


# --- one round ----------------------------------------------------------------------------------


def enqueue(one: Stand, what: str, jobs: int) -> Round:
    """Let one client enqueue a number of jobs."""
    one.settle()
    before, used = one.counters(), one.database_cpu()
    said = one.client("one" if what == ONE else "many", jobs)
    used = one.database_cpu() - used
    one.without_clients()
    return per_job(one, jobs, said["seconds"], said["cpu"], used, before)


def drain(one: Stand, jobs: int, workers: int) -> Round:
    """Let workers run a backlog of a given size to its end."""
    fill(one, jobs)
    one.settle()
    before = one.counters()
    if one.entry.batch:
        used = one.database_cpu()
        said = one.client("drain", jobs, one.entry.batch)
        used = one.database_cpu() - used
        return per_job(one, jobs, said["seconds"], said["cpu"], used, before)
    for _ in range(workers):
        one.start_worker()
    if not one.wait(1, DRAIN_SECONDS):
        raise RuntimeError(f"{one.entry.name}: nothing ran: {one.tail()}")
    missed, client, database = one.done(), one.client_cpu(), one.database_cpu()
    one.wait(jobs, DRAIN_SECONDS)
    time.sleep(SETTLE_SECONDS)
    marks = one.marks()
    done = len(marks) - missed
    client, database = one.client_cpu() - client, one.database_cpu() - database
    one.kill_workers()
    one.without_clients()
    seconds = marks[-1].at - marks[0].at
    result = per_job(one, len(marks), seconds, client, database, before)
    share = len(marks) / max(done, 1)  # what ran before the first look at the processor time
    result.client_us *= share
    result.database_us *= share
    return result


def fill(one: Stand, jobs: int) -> None:
    """Enqueue the backlog by the entry's fastest way."""
    one.client("many" if one.entry.bulk else "one", jobs)


def per_job(
    one: Stand, jobs: int, seconds: float, client: float, database: float, before: Any
) -> Round:
    """Return the figures of a round."""
    after = one.counters()
    return Round(
        jobs=jobs,
        rate=jobs / max(seconds, 1e-6),
        client_us=client / jobs * 1e6,
        database_us=database / jobs * 1e6,
        wal=(after.wal - before.wal) / jobs,
        transactions=(after.transactions - before.transactions) / jobs,
        dead=(after.dead - before.dead) / jobs,
    )


# --- all rounds ---------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True):
    """One entry in one respect."""

    entry: Entry
    what: str
    jobs: int
    workers: int = 0

    def seconds(self) -> float:
        """Return how long a round takes, about."""
        if self.workers:
            fill_rate = 15_000 if self.entry.bulk else 1500
            work = self.jobs / self.entry.speed + self.jobs / fill_rate
            return work + OVERHEAD["drain"] * (0.5 if self.entry.batch else 1)
        return self.jobs / (1500 if self.what == ONE else 15_000) + OVERHEAD[self.what]

    def play(self, one: Stand) -> Round:
        """Measure once."""
        if self.workers:
            return drain(one, self.jobs, self.workers)
        return enqueue(one, self.what, self.jobs)


def steps(entries: Sequence[Entry], jobs: int, what: Sequence[str]) -> Iterator[Step]:
    """Return what is measured in a round, in its order."""
    wanted = what or ("one", "many", "drain")
    for entry in entries:
        # one floor and one Outlast of each store say how fast enqueuing is
        enqueues = entry.batch in {0, 100} and "plain" not in entry.name
        enqueues = enqueues and "runners" not in entry.name and entry not in DEFAULTS
        if enqueues and "one" in wanted:
            yield Step(entry, ONE, min(ONE_JOBS, jobs))
        if enqueues and entry.bulk and "many" in wanted:
            yield Step(entry, MANY, min(MANY_JOBS, jobs))
        if "drain" in wanted:
            for workers in entry.workers:
                plural = "worker" if workers == 1 else "workers"
                yield Step(entry, f"drain, {workers} {plural}", entry.jobs(jobs), workers)


def measure(place: Ground, todo: Sequence[Step], rounds: int) -> list[Line]:
    """Play all rounds, interleaved; who fails is noted, and the next one played."""
    lines = [
        Line(name=s.entry.name, what=s.what, store=s.entry.store, settings=s.entry.settings)
        for s in todo
    ]
    total = sum(step.seconds() * (1 if step.entry.seldom else rounds) for step in todo)
    print(f"{len(todo)} measurements, {rounds} rounds: about {clock(total)}", flush=True)
    began_at = time.monotonic()
    for number in range(1, rounds + 1):
        for step, line in zip(todo, lines, strict=True):
            if number > 1 and step.entry.seldom:
                continue
            one_round(place, step, line)
            print(
                f"{clock(time.monotonic() - began_at)} of {clock(total)}, round {number}: "
                f"{line.name}, {line.what}: {told(line)}",
                flush=True,
            )
    return lines


def one_round(place: Ground, step: Step, line: Line) -> None:
    """Play one round; note what went wrong."""
    try:
        with stand(step.entry, place) as one:
            line.rounds.append(step.play(one))
    except Missing as missing:
        line.failed.append(f"not here: {missing}")
    except Exception as error:
        line.failed.append(why(error))


def told(line: Line) -> str:
    """Return the last round in a line."""
    if line.failed and len(line.rounds) + len(line.failed) and not line.rounds:
        return f"FAILED: {line.failed[-1][:300]}"
    last = line.rounds[-1]
    return (
        f"{last.rate:,.0f}/s, client {last.client_us:,.0f} us, database {last.database_us:,.0f} us,"
        f" WAL {last.wal:,.0f} B, {last.transactions:.3f} transactions"
    )


def show(lines: Sequence[Line]) -> None:
    """Print the table."""
    for what in dict.fromkeys(line.what for line in lines):
        table = Table(title=f"{what}: jobs/s, median (and range); the rest per job, medians")
        table.add_column("who", no_wrap=True)
        for column in ("jobs/s", "jobs", "client us", "database us", "WAL B", "commits"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("dead rows", justify="right", no_wrap=True)
        for line in (each for each in lines if each.what == what):
            figures = ("client_us", "database_us", "wal", "transactions", "dead")
            digits = (0, 0, 0, 3, 2)
            cells = [f"{line.median(name):,.{n}f}" for name, n in zip(figures, digits, strict=True)]
            jobs = f"{line.median('jobs'):,.0f}"
            table.add_row(line.name, line.spread() or line.failed[-1][:60], jobs, *cells)
        screen().print(table)


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    entries = chosen(options.only, ALL_ENTRIES)
    if options.quick and not options.only:
        entries = [each for each in entries if not each.environment and each.batch in {0, 100}]
    make_environments(entries)
    with ground() as place:
        todo = list(steps(entries, options.jobs, options.what))
        lines = measure(place, todo, options.rounds)
    show(lines)
    keep("rates", lines, whole=not (options.only or options.quick or options.what))
    return sum(bool(line.failed) for line in lines)
