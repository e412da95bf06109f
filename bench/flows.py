"""Compares flows with plain jobs: many to one, chains, children, kept steps, and jobs that wait.

Each round drains the same number of jobs of each kind in turns, and the ratios are those of
neighbours. Then two workers run a wide flow, in which one job waits for all others: undisturbed,
and while both are killed again and again. Last, the statements of a worker at rest beside jobs that
wait are counted. DBOS, Absurd and Celery run the same kinds as far as they have them.

    python -m bench flows [--only NAME,…] [--jobs N] [--rounds N] [--quick]
"""

from __future__ import annotations

from typing import Any

from bench.contenders import DEFAULTS, OUTLAST, PEERS, Entry, chosen
from bench.environment import Ground, ground, make_environments
from bench.harness import Stand, stand
from bench.idle import idle, logging_statements
from bench.kit import tell
from bench.lanes import with_variables
from bench.rates import DRAIN_SECONDS, Round, drain, fill
from bench.series import Series

NAMES = (*(each.name for each in DEFAULTS), "postgres in process", "sqlite in process")
PLAIN, SAVE, STEP = "plain jobs", "ten saves a job", "ten steps a job"
KINDS = {  # -> BENCH_FLOW, and what its costs are compared with
    PLAIN: ("", ""),
    "10 to 1": ("group", PLAIN),
    "chains of 5": ("chain", PLAIN),
    "children of one job": ("spawn", PLAIN),
    SAVE: ("save", PLAIN),
    STEP: ("step", SAVE),
}
ALIKE = {"DBOS": {"", "group", "chain", "step"}}
ALIKE |= {"Absurd": ALIKE["DBOS"], "Celery": ALIKE["DBOS"] - {"step"}}
FIGURES = {"database, us a job": "database_us", "worker and runners, us a job": "client_us"}
KILLS = 5  # of all workers, in a wide flow
REST_SECONDS, QUICK_REST_SECONDS = 20.0, 3.0


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("flows", "flows, 1 worker; a wide one: 2 workers")
    entries = [
        each
        for each in chosen(options.only or (*NAMES, *ALIKE), (*OUTLAST, *DEFAULTS, *PEERS))
        if "plain" not in each.name and not (options.quick and each.environment)
    ]
    make_environments(entries)
    rest = QUICK_REST_SECONDS if options.quick else REST_SECONDS
    steps = sum(len(ALIKE.get(each.name, KINDS)) for each in entries)
    steps = (steps + 4 * sum(not each.environment for each in entries)) * options.rounds
    with ground() as place, tell("flows", steps, 12) as step:
        for _ in range(options.rounds):
            for entry in entries:
                jobs = entry.jobs(options.jobs) // 55 * 55
                _drain_each(series, place, entry, jobs, step)
                if entry.environment:
                    continue
                for kills in (0, KILLS):
                    _drain_wide(series, place, entry, jobs, kills, step)
                _rest(series, place, entry, jobs, rest, step)
    return series.finish(whole=not (options.only or options.quick))


def _drain_each(series: Series, place: Ground, entry: Entry, jobs: int, step: Any) -> None:
    costs: dict[str, Round] = {}
    alike = ALIKE.get(entry.name)
    for what, (flow, base) in KINDS.items():
        if alike is not None and flow not in alike:
            continue

        def measure(what: str = what, flow: str = flow, base: str = base) -> None:
            with stand(with_variables(entry, {"BENCH_FLOW": flow}), place) as one:
                found = costs[what] = drain(one, jobs, 1)
            series.figure(entry.name, what, "jobs/s").values.append(found.rate)
            step(f"{entry.name}, {what}: {found.rate:,.0f}/s")
            for shown, name in FIGURES.items():
                value = getattr(found, name)
                if not value:
                    continue  # SQLite has no process of its own
                series.figure(entry.name, f"{what}: {shown}", "us").values.append(value)
                if base in costs:
                    ratio = series.figure(entry.name, f"{what}: {shown}, to {base}", "times", 2)
                    ratio.values.append(value / getattr(costs[base], name))

        series.attempt(entry.name, what, "jobs/s", measure)


def _drain_wide(
    series: Series, place: Ground, entry: Entry, jobs: int, kills: int, step: Any
) -> None:
    """Measure when the job that waits for all others begins; fail if it begins twice."""
    what = f"all to 1, all workers killed {kills} times" if kills else "all to 1"

    def measure() -> None:
        with stand(with_variables(entry, {"BENCH_FLOW": "wide"}), place) as one:
            fill(one, jobs)
            _work(one, jobs, kills)
            marks = one.marks()
        runs = [mark.at for mark in marks if mark.waited]
        late = runs[0] - max(mark.at for mark in marks if not mark.waited)
        if len(runs) != 1 or late < 0:
            raise RuntimeError(f"the last job has begun {len(runs)} times, {late:.3f} s late")
        series.figure(entry.name, f"{what}: it begins after", "s", 3).values.append(late)
        series.figure(entry.name, what, "s", 2).values.append(runs[0] - marks[0].at)
        step(f"{entry.name}, {what}: {late:.3f} s after the last of {len(marks)} starts")

    series.attempt(entry.name, what, "s", measure)


def _work(one: Stand, jobs: int, kills: int) -> None:
    """Run all jobs, with two workers at a time, until the last one has begun."""
    for kill in range(1, kills + 2):
        for _ in range(2):
            one.start_worker()
        if kill <= kills:
            one.wait(jobs * kill // (kills + 2), DRAIN_SECONDS)
            one.kill_workers()
    if not one.wait_for(lambda: any(mark.waited for mark in one.marks()), 2 * DRAIN_SECONDS):
        raise RuntimeError(f"the last job never began: {one.tail()}")
    one.stop_workers()


def _rest(
    series: Series, place: Ground, entry: Entry, jobs: int, seconds: float, step: Any
) -> None:
    """Measure the statements of a worker at rest, without jobs and beside jobs that wait."""
    for what, flow in (("at rest", ""), ("at rest, beside jobs that wait", "wait")):

        def measure(what: str = what, flow: str = flow) -> None:
            with stand(with_variables(entry, {"BENCH_FLOW": flow}), place) as one:
                if flow:
                    fill(one, jobs)
                with logging_statements(place):
                    found = idle(one, place, seconds)
            for shown, (value, unit, digits) in found.items():
                figure = series.figure(entry.name, f"{what}: {shown}", unit, digits)
                figure.values.append(value)
            step(f"{entry.name}, {what}: {found}")

        series.attempt(entry.name, what, "", measure)
