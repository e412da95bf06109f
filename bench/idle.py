"""The cost of a worker with 4 runners while there is nothing to do.

Statements are counted in the server's log (``log_statement = all``); processor time is that of the
worker with its child processes, and that of the server.

    python -m bench idle [--only NAME,…] [--rounds N]
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.contenders import ALL_ENTRIES, POSTGRES, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Stand, stand
from bench.kit import tell
from bench.lanes import with_variables
from bench.latency import begin
from bench.series import Series

NAMES = ("outlast postgres runners", "outlast sqlite runners", "pgqueuer")
RUNNERS = {"BENCH_RUNNERS": "4", "BENCH_CONCURRENCY": "10"}
REST_SECONDS = 8.0  # until all runners and the spare are there
SECONDS = 20.0
STATEMENT = re.compile(r"LOG:  (?:execute|statement)")


def idle(one: Stand, place: Ground, seconds: float) -> dict[str, tuple[float, str, int]]:
    """Return the costs a second of a worker at rest: name -> value, unit, digits."""
    begin(one)
    time.sleep(min(seconds, REST_SECONDS))
    log = place.postgres.log if one.entry.store == POSTGRES else None
    client, database, at = one.client_cpu(), one.database_cpu(), time.monotonic()
    before = log.stat().st_size if log else 0
    time.sleep(seconds)
    took = time.monotonic() - at
    client, database = one.client_cpu() - client, one.database_cpu() - database
    figures = {"processor time of the worker": (100 * client / took, "% of a core", 2)}
    if log:
        figures["processor time of the database"] = (100 * database / took, "% of a core", 2)
        with log.open(errors="replace") as lines:
            lines.seek(before)
            name = one.url.rpartition("/")[2]
            seen = sum(f" {name} " in line and bool(STATEMENT.search(line)) for line in lines)
        figures["statements"] = (seen / took, "a second", 2)
    return figures


@contextmanager
def logging_statements(place: Ground) -> Iterator[None]:
    """Have the server log every statement while the block runs."""
    for value in ("all", "none"):
        place.postgres.sql(f"ALTER SYSTEM SET log_statement = '{value}'")
        place.postgres.sql("SELECT pg_reload_conf()")
        if value == "all":
            yield


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("idle", "a worker without work; Outlast's with 4 runners")
    entries = [with_variables(e, RUNNERS) for e in chosen(options.only or NAMES, ALL_ENTRIES)]
    entries = [entry for entry in entries if "plain" not in entry.name and not entry.batch]
    seconds = 3.0 if options.quick else SECONDS
    make_environments(entries)
    cost = seconds + REST_SECONDS + 6
    with ground() as place, logging_statements(place), tell("idle", len(entries), cost) as step:
        for entry in entries:

            def measure(entry: Entry = entry) -> None:
                with stand(entry, place) as one:
                    figures = idle(one, place, seconds)
                for what, (value, unit, digits) in figures.items():
                    series.figure(entry.name, what, unit, digits).values.append(value)
                step(f"{entry.name}: {figures}")

            series.attempt(entry.name, "statements", "a second", measure)
    return series.finish(whole=not (options.only or options.quick))
