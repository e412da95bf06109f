"""A backlog in 10 queues of 5 priorities, and in 1,000 and 10,000 queues, against one queue.

python -m bench lanes [--only NAME,…] [--jobs N] [--rounds N]
"""

from __future__ import annotations

from typing import Any

import msgspec

from bench.contenders import OUTLAST, Entry, chosen
from bench.environment import ground
from bench.harness import stand
from bench.kit import tell
from bench.rates import drain
from bench.series import Series

NAMES = ("postgres in process", "sqlite in process")
SPREAD = {"BENCH_LANES": "10", "BENCH_PRIORITIES": "5"}
LANES = {
    "1 queue, 1 priority": {},
    "10 queues, 5 priorities": SPREAD,
    "1,000 queues": {"BENCH_LANES": "1000"},
    "10,000 queues": {"BENCH_LANES": "10000"},
}


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("lanes", "drain of a backlog, 1 worker")
    entries = [e for e in chosen(options.only or NAMES, OUTLAST) if "plain" not in e.name]
    with ground() as place, tell("lanes", len(LANES) * len(entries) * options.rounds, 9) as step:
        for _ in range(options.rounds):
            for entry in entries:
                for what, variables in LANES.items():
                    laned = with_variables(entry, variables)

                    def measure(entry: Entry = laned, what: str = what) -> None:
                        with stand(entry, place) as one:
                            value = drain(one, entry.jobs(options.jobs), 1).rate
                        series.figure(entry.name, what, "jobs/s").values.append(value)
                        step(f"{entry.name}, {what}: {value:,.0f}/s")

                    series.attempt(entry.name, what, "jobs/s", measure)
    return series.finish(whole=not (options.only or options.quick))


def with_variables(entry: Entry, variables: dict[str, str]) -> Entry:
    """Return the entry with more in its environment."""
    return msgspec.structs.replace(entry, variables=entry.variables | variables)
