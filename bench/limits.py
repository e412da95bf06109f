"""A backlog of jobs under limits, against the same without: one key, 1,000 keys, 100,000 keys, and
1,000 keys beside jobs that are parked behind a full one; by one worker, and one key by three. Also
what it costs to enqueue them, or jobs of 1,000 tenants, the same one key under the own limits of
PgQueuer and DBOS, how soon the jobs of 100 tenants start beside the flood of another one, and those
of a limit that is raised.

Each round measures all of them in turns, and the ratios are those of neighbours: what slows the
whole machine for minutes cancels out. Costs are processor time of the database a job, and of worker
and runners.

    python -m bench limits [--only NAME,…] [--jobs N] [--rows PARKED] [--rounds N] [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from bench.contenders import DEFAULTS, OUTLAST, PEERS, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Mark, Stand, stand
from bench.kit import tell
from bench.lanes import with_variables
from bench.rates import DRAIN_SECONDS, MANY, MANY_JOBS, Round, drain, enqueue
from bench.series import Series

OURS = (*(each.name for each in DEFAULTS), "postgres in process", "sqlite in process")
THEIRS = ("PgQueuer", "DBOS")
ONE_KEY = {"BENCH_LIMIT_KEYS": "1", "BENCH_LIMIT_RUNNING": "100"}
KEYS = {"BENCH_LIMIT_KEYS": "1000", "BENCH_LIMIT_RUNNING": "2"}
PARKED = "1,000 keys, beside 100,000 jobs of a full one"
FLOOD, OTHERS, ROOM = 100_000, 2000, 40
REST_SECONDS = 2.0  # until a worker that has nothing to do has gone to rest
FIGURES = {"database, us a job": "database_us", "worker and runners, us a job": "client_us"}


class Case(msgspec.Struct, frozen=True):
    """One line. ``to``: the line that its cost is compared with; ``workers``: 0: it enqueues;
    ``alike``: a peer has such a limit, too."""

    what: str
    variables: dict[str, str]
    to: str = "no limit"
    workers: int = 1
    alike: bool = False

    def measure(self, entry: Entry, place: Ground, jobs: int) -> Round:
        """Measure once."""
        with stand(with_variables(entry, self.variables), place) as one:
            if not self.workers:
                return enqueue(one, MANY, min(MANY_JOBS, jobs))
            return drain(one, entry.jobs(jobs), self.workers)


CASES = [
    Case("no limit", {}, alike=True),
    Case("1 key, 100 at once", ONE_KEY, alike=True),
    Case("1 key, 100 at once, 3 workers", ONE_KEY, to="1 key, 100 at once", workers=3, alike=True),
    Case("1,000 keys, 2 at once", KEYS),
    Case(
        PARKED,
        KEYS | {"BENCH_PARKED": "100000"},
        to="1,000 keys, 2 at once",
    ),
    Case("100,000 keys, 1 at once", {"BENCH_LIMIT_KEYS": "100000"}),
    Case("enqueue many, no limit", {}, to="", workers=0),
    Case("enqueue many, 1,000 keys", KEYS, to="enqueue many, no limit", workers=0),
    Case(
        "enqueue many, 1,000 tenants",
        {"BENCH_TENANTS": "1000"},
        to="enqueue many, no limit",
        workers=0,
    ),
]


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("limits", "backlogs under limits")
    entries = [
        each
        for each in chosen(options.only or (*OURS, *THEIRS), (*OUTLAST, *DEFAULTS, *PEERS))
        if "plain" not in each.name and not (options.quick and each.environment)
    ]
    make_environments(entries)
    todo = [
        (each, case)
        for each in entries
        for case in cases(options)
        if case.alike or not each.environment
    ]
    own = [each for each in entries if not each.environment]
    steps = (len(todo) + len(own) * len(SOON)) * options.rounds
    with ground() as place, tell("limits", steps, 10) as step:
        for _ in range(options.rounds):
            found: dict[tuple[str, str], Round] = {}
            for entry, case in todo:

                def measure(entry: Entry = entry, case: Case = case) -> None:
                    one = case.measure(entry, place, options.jobs)
                    found[entry.name, case.what] = one  # noqa: B023  # called at once
                    series.figure(entry.name, case.what, "jobs/s").values.append(one.rate)
                    step(f"{entry.name}, {case.what}: {one.rate:,.0f}/s")

                series.attempt(entry.name, case.what, "jobs/s", measure)
            for entry, case in todo:
                _note(series, entry.name, case, found)
            for entry in own:
                for what, (variables, look) in SOON.items():

                    def watch(
                        entry: Entry = entry,
                        variables: dict[str, str] = variables,
                        look: Callable[[Stand], dict[tuple[str, str], float]] = look,
                    ) -> None:
                        with stand(with_variables(entry, variables), place) as one:
                            for (shown, unit), value in look(one).items():
                                series.figure(entry.name, shown, unit).values.append(value)

                    series.attempt(entry.name, what, "", watch)
                    step(f"{entry.name}, {what}")
    return series.finish(whole=not (options.only or options.quick))


def cases(options: Any) -> list[Case]:
    """Return the lines, with the number of parked jobs that is asked for."""
    if not options.rows:
        return CASES
    what = PARKED.replace("100,000", f"{options.rows:,}")
    more = {"BENCH_PARKED": str(options.rows)}
    return [
        msgspec.structs.replace(each, what=what, variables=each.variables | more)
        if each.what == PARKED
        else each
        for each in CASES
    ]


def beside_a_flood(one: Stand) -> dict[tuple[str, str], float]:
    """Let 100 tenants enqueue 20 jobs each while a worker is busy with the 100,000 of another."""
    one.client("many", FLOOD)
    one.start_worker()
    if not one.wait(1, DRAIN_SECONDS):
        raise RuntimeError(f"nothing ran: {one.tail()}")
    begun = one.done()
    one.client("timed", OTHERS, 0, OTHERS)

    def others() -> list[Mark]:
        return [each for each in one.marks(begun) if each.waited]

    if not one.wait_for(lambda: len(others()) >= OTHERS, DRAIN_SECONDS):
        raise RuntimeError(f"{len(others())} of {OTHERS} started")
    mine = others()
    among = [each for each in one.marks(begun) if mine[0].at <= each.at <= mine[-1].at]
    if one.done() == FLOOD + OTHERS:
        raise RuntimeError("the flood was over too soon")
    return {
        ("beside a flood: until the first job of another tenant starts", "ms"): 1e3
        * min(each.waited for each in mine),
        ("beside a flood: its starts among the 2,000 of others", ""): len(among) - len(mine),
    }


def after_a_raise(one: Stand) -> dict[tuple[str, str], float]:
    """Raise a limit behind which jobs wait for a worker that rests."""
    one.start_worker()
    one.client("many", 1)
    if not one.wait(1, DRAIN_SECONDS):
        raise RuntimeError(f"nothing ran: {one.tail()}")
    one.client("cap", 0)
    one.client("many", ROOM)
    time.sleep(REST_SECONDS)
    if one.done() != 1:
        raise RuntimeError("jobs started under a limit of 0")
    raised_at = one.client("cap", ROOM)["at"]
    one.wait(1 + ROOM, DRAIN_SECONDS)
    starts = [1e3 * (each.at - raised_at) for each in one.marks(1)]
    return {("a raised limit: until the last of 40 jobs starts", "ms"): starts[ROOM - 1]}


SOON: dict[str, tuple[dict[str, str], Callable[[Stand], dict[tuple[str, str], float]]]] = {
    "beside a flood": ({"BENCH_FAIR": "1"}, beside_a_flood),
    "a raised limit": (ONE_KEY, after_a_raise),
}


def _note(series: Series, name: str, case: Case, found: dict[tuple[str, str], Round]) -> None:
    """Note what a case costs, and the ratios to the one that it is compared with, of this round."""
    one, other = found.get((name, case.what)), found.get((name, case.to))
    if one is None:
        return
    for shown, figure in FIGURES.items():
        if value := getattr(one, figure):  # SQLite has no process of its own
            series.figure(name, f"{case.what}: {shown}", "us").values.append(value)
            if other is not None and other is not one and getattr(other, figure):
                line = series.figure(name, f"{case.what}: {shown}, to {case.to}", "times", 2)
                line.values.append(value / getattr(other, figure))
    if case.workers > 1 and other is not None:
        line = series.figure(name, f"{case.what}: jobs/s, to {case.to}", "times", 2)
        line.values.append(one.rate / other.rate)
