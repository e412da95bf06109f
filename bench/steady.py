"""Enqueue and drain together for minutes: does the rate hold?

``steady``: a client keeps 5,000 jobs waiting, a worker runs them. ``held``: the same, and after a
while another session holds a transaction open for two minutes, so that no dead row can be removed.
Beside the rates stands what the host has taken from this machine meanwhile: a rate that falls
because its processors were lent to others says nothing about queues.

    python -m bench steady [--minutes N]
    python -m bench held [--only NAME,…]
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import psutil
import psycopg

from bench.contenders import ALL_ENTRIES, POSTGRES, Entry, chosen
from bench.environment import Missing, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import clock, keep, tell, why

BACKLOG = 5_000
MINUTE = 60.0
STEP = 10.0  # seconds of a point
BEFORE, HELD = 30.0, 120.0  # seconds undisturbed, and with the transaction open
FIRST = 5.0  # seconds of the start that do not count
LAST = 30.0  # seconds at the end of the hold: the worst of it
STEADY = ("outlast postgres in process",)
BOTH = (*STEADY, "pgqueuer")
THOROUGH = 3  # rounds from which on there is time to hold one open for a peer, too
DEAD = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables"


class Flow(msgspec.Struct, kw_only=True):
    """The rates of one entry over time: jobs a second in steps of 10 s, from the first job on.

    ``first`` and ``last`` are what is compared: of ``steady`` the second and the last minute, of
    ``held`` the undisturbed rate and that of the last 30 s of the open transaction.
    ``dead_rows``: not yet removed at the end. ``stolen``: by such steps, the share of the
    processors that the host gave to other machines while something was ready to run on this one.
    """

    name: str
    what: str
    steps: list[float] = []
    stolen: list[float] = []
    first: float = 0.0
    last: float = 0.0
    dead_rows: int = 0
    failed: list[str] = []

    def share(self) -> float:
        """Return the last rate as a share of the first."""
        return self.last / self.first if self.first else 0.0


class Host:
    """Notes, step by step, what the host of this machine takes of its processors."""

    def __init__(self) -> None:
        self.begun_at = time.monotonic()
        self.stolen: list[float] = []
        self._before = psutil.cpu_times()

    def wait(self, seconds: float) -> None:
        """Wait until this many seconds after the start."""
        while (left := self.begun_at + seconds - time.monotonic()) > 0:
            end_of_step = self.begun_at + STEP * (len(self.stolen) + 1) - time.monotonic()
            time.sleep(max(0.0, min(left, end_of_step)))
            if end_of_step <= left:
                self._note()

    def _note(self) -> None:
        before, now = self._before, psutil.cpu_times()
        lost = getattr(now, "steal", 0.0) - getattr(before, "steal", 0.0)  # Linux tells
        self.stolen.append(round(lost / max(sum(now) - sum(before), STEP / 100), 3))
        self._before = now


def flow(one: Stand, seconds: float, hold: Sequence[float] = ()) -> tuple[list[float], list[float]]:
    """Keep the load on for so long, with a transaction held open from ``hold[0]`` on.

    Returns the times at which jobs began, in seconds since the first, and what was stolen.
    """
    feeder = one.start("keep", BACKLOG, seconds + FIRST)
    one.start_worker()
    if not one.wait(1, 60):
        raise RuntimeError(f"nothing ran: {one.tail()}")
    host = Host()
    try:
        if hold:
            host.wait(hold[0])
            with held_open(one.url):
                host.wait(seconds)
        else:
            host.wait(seconds)
    finally:
        feeder.kill()
        feeder.wait()
    marks = one.marks()
    return [mark.at - marks[0].at for mark in marks], host.stolen


@contextlib.contextmanager
def held_open(url: str) -> Iterator[None]:
    """Hold a transaction open that has seen the database and has an id of its own."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id(), count(*) FROM pg_class")
        yield
        connection.rollback()


def between(times: Sequence[float], begin: float, end: float) -> float:
    """Return jobs a second between two times; ``times`` rise."""
    return (bisect_left(times, end) - bisect_left(times, begin)) / (end - begin)


def play(one: Stand, line: Flow, seconds: float, hold: Sequence[float]) -> None:
    """Measure one entry."""
    times, line.stolen = flow(one, seconds, hold)
    line.dead_rows = int(one.sql(DEAD))
    count = int(seconds // STEP)
    line.steps = [round(between(times, n * STEP, (n + 1) * STEP)) for n in range(count)]
    if hold:
        line.first = between(times, FIRST, hold[0])
        line.last = between(times, seconds - LAST, seconds)
    else:
        minute = min(MINUTE, seconds / 3)
        line.first = between(times, minute, 2 * minute)
        line.last = between(times, seconds - minute, seconds)


def measure(
    part: str, entries: Sequence[Entry], seconds: float, hold: Sequence[float], *, whole: bool
) -> int:
    """Measure, print and keep; return how many have failed."""
    lines = [Flow(name=entry.name, what=part) for entry in entries]
    make_environments(entries)
    with ground() as place, tell(part, len(entries), seconds + 5) as step:
        for entry, line in zip(entries, lines, strict=True):
            try:
                with stand(entry, place) as one:
                    play(one, line, seconds, hold)
            except Missing as missing:
                line.failed.append(f"not here: {missing}")
            except Exception as error:
                line.failed.append(why(error))
            step(f"{line.name}: {told(line)}")
    keep(part, lines, whole=whole)
    return sum(bool(line.failed) for line in lines)


def told(line: Flow) -> str:
    """Return the line in words."""
    if line.failed:
        return f"FAILED: {line.failed[-1][:300]}"
    steps = " ".join(f"{each:,.0f}" for each in line.steps)
    return (
        f"{line.first:,.0f}/s, at the end {line.last:,.0f}/s: {line.share():.2f} of it,"
        f" {line.dead_rows:,} dead rows left; each 10 s: {steps};"
        f" taken by the host: {' '.join(f'{each:.0%}' for each in line.stolen)}"
    )


def steady(options: Any) -> int:
    """Measure the steady load."""
    entries = _entries(options.only or STEADY)
    seconds = 30.0 if options.quick else options.minutes * MINUTE
    print(f"steady load for {clock(seconds)}", flush=True)
    return measure("steady", entries, seconds, (), whole=not (options.only or options.quick))


def held(options: Any) -> int:
    """Measure with a transaction held open."""
    entries = _entries(options.only or (BOTH if options.rounds >= THOROUGH else STEADY))
    scale = 0.1 if options.quick else 1.0
    seconds, hold = (BEFORE + HELD) * scale, (max(BEFORE * scale, FIRST * 2),)
    return measure("held", entries, seconds, hold, whole=not (options.only or options.quick))


def _entries(only: Sequence[str]) -> list[Entry]:
    among = [
        each for each in ALL_ENTRIES if each.store == POSTGRES and each.bulk and not each.batch
    ]
    return [each for each in chosen(only, among) if "plain" not in each.name]
