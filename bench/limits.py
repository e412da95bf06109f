"""A backlog of jobs under limits, against the same without: one key, 1,000 keys, 100,000 keys, and
1,000 keys beside jobs that are parked behind a full one.

Each round measures all of them in turns, and the ratios are those of neighbours: what slows the
whole machine for minutes cancels out. Costs are processor time of the database a job, and of worker
and runners.

    python -m bench limits [--only NAME,…] [--jobs N] [--rounds N] [--quick]
"""

from __future__ import annotations

from typing import Any

from bench.contenders import DEFAULTS, OUTLAST, Entry, chosen
from bench.environment import ground
from bench.harness import stand
from bench.kit import tell
from bench.lanes import with_variables
from bench.rates import drain
from bench.series import Series

NAMES = (*(each.name for each in DEFAULTS), "postgres in process", "sqlite in process")
PLAIN = "no limit"
LIMITS = {
    PLAIN: {},
    "1 key, 100 at once": {"BENCH_LIMIT_KEYS": "1", "BENCH_LIMIT_RUNNING": "100"},
    "1,000 keys, 2 at once": {"BENCH_LIMIT_KEYS": "1000", "BENCH_LIMIT_RUNNING": "2"},
    "1,000 keys, beside 100,000 jobs of a full one": {
        "BENCH_LIMIT_KEYS": "1000",
        "BENCH_LIMIT_RUNNING": "2",
        "BENCH_PARKED": "100000",
    },
    "100,000 keys, 1 at once": {"BENCH_LIMIT_KEYS": "100000"},
}
FIGURES = {"database, us a job": "database_us", "worker and runners, us a job": "client_us"}


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("limits", "drain of a backlog under limits, 1 worker")
    entries = [
        e for e in chosen(options.only or NAMES, (*OUTLAST, *DEFAULTS)) if "plain" not in e.name
    ]
    with ground() as place, tell("limits", len(LIMITS) * len(entries) * options.rounds, 10) as step:
        for _ in range(options.rounds):
            for entry in entries:
                costs: dict[str, dict[str, float]] = {}
                for what, variables in LIMITS.items():

                    def measure(
                        entry: Entry = with_variables(entry, variables),  # noqa: B008
                        what: str = what,
                        costs: dict[str, dict[str, float]] = costs,
                    ) -> None:
                        with stand(entry, place) as one:
                            found = drain(one, entry.jobs(options.jobs), 1)
                        series.figure(entry.name, what, "jobs/s").values.append(found.rate)
                        costs[what] = {
                            shown: float(getattr(found, name)) for shown, name in FIGURES.items()
                        }
                        step(f"{entry.name}, {what}: {found.rate:,.0f}/s")

                    series.attempt(entry.name, what, "jobs/s", measure)
                _note(series, entry.name, costs)
    return series.finish(whole=not (options.only or options.quick))


def _note(series: Series, name: str, costs: dict[str, dict[str, float]]) -> None:
    """Note each cost, and its ratio to that of jobs without limits in the same round."""
    for what, found in costs.items():
        for shown, value in found.items():
            plain = costs.get(PLAIN, {}).get(shown, 0.0)
            if not value:
                continue  # SQLite has no process of its own
            series.figure(name, f"{what}: {shown}", "us").values.append(value)
            if what != PLAIN and plain:
                ratio = series.figure(name, f"{what}: {shown}, to {PLAIN}", "times", 2)
                ratio.values.append(value / plain)
