"""The targets of bench/results/tables.md against what was measured: nothing by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from bench import latency, rates, schedules, steady
from bench.commands import LARGE, ROWS, SLOWEST
from bench.kit import load
from bench.rates import MANY, ONE
from bench.series import Figure

T = TypeVar("T")
PG, LITE = "Outlast postgres", "Outlast sqlite"
MODES = ("in process", "runners")
DRAIN1, DRAIN2 = "drain, 1 worker", "drain, 2 workers"
FLOOR = "floor asyncpg 100"


class Row(msgspec.Struct, kw_only=True):
    """One line: what, the target as a number, and what was measured; None: it was not.

    ``least``: the measured number has to reach the target; otherwise it may not exceed it.
    """

    measure: str
    target: float
    measured: float | None
    unit: str = ""
    detail: str = ""
    least: bool = True

    @property
    def met(self) -> bool | None:
        """Whether it is met; None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.target if self.least else self.measured <= self.target

    def cells(self) -> list[str]:
        """Return measure, target, measured and verdict as people read them."""
        sign = "≥" if self.least else "≤"
        goal = f"{sign} {self.target:g} {self.unit}".strip()
        if self.measured is None:
            return [self.measure, goal, "", "not measured"]
        shown = f"{_short(self.measured)} {self.unit}".strip()
        return [self.measure, goal, shown + (f" ({self.detail})" if self.detail else ""), self.told]

    @property
    def told(self) -> str:
        """The verdict: met, or by how much it is missed."""
        if self.met or self.measured is None:
            return "met"
        if self.least:
            return f"**missed**: {self.measured / self.target:.0%} of the target"
        return f"**missed**: {self.measured / max(self.target, 1e-9):.2g} times the target"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


FIGURES = (
    "backlog",
    "lanes",
    "idle",
    "memory",
    "heartbeat",
    "schedules",
    "life",
    "fleet",
    "commands",
)


class Results:
    """What was measured, by name; a measurement that was not made has no lines."""

    def __init__(self) -> None:
        self._rates = _keyed("rates", rates.Line)
        self._latency = _keyed("latency", latency.Line)
        self._flows = _keyed("held", steady.Flow) | _keyed("steady", steady.Flow)
        self._figures = {part: _keyed(part, Figure) for part in FIGURES}

    def rate(self, name: str, what: str, figure: str = "rate") -> float | None:
        """Return a median of the rates."""
        return _median(self._rates.get((name, what)), lambda line: line.median(figure))

    def ratio(self, name: str, other: str, what: str) -> tuple[float | None, str]:
        """Return one's rate as a share of another's, and both in words."""
        one, two = self.rate(name, what), self.rate(other, what)
        if not one or not two:
            return None, ""
        return one / two, f"{one:,.0f}/s against {two:,.0f}/s"

    def waits(self, name: str, figure: str) -> float | None:
        """Return a percentile of the pickup on an idle worker, in ms."""
        return _median(self._latency.get((name, latency.IDLE)), lambda line: line.median(figure))

    def flow(self, name: str, what: str) -> tuple[float | None, str]:
        """Return the last rate as a share of the first, and both in words."""
        line = self._flows.get((name, what))
        if line is None or not line.first:
            return None, ""
        return line.share(), f"{line.last:,.0f}/s after {line.first:,.0f}/s"

    def figure(self, part: str, name: str, what: str) -> float | None:
        """Return a median of another measurement."""
        line = self._figures[part].get((name, what))
        return line.median() if line is not None and line.values else None

    def names(self, part: str) -> list[tuple[str, str]]:
        """Return the lines of another measurement."""
        return list(self._figures[part])


def _keyed(part: str, kind: type[T]) -> dict[tuple[str, str], T]:
    found = load(part)
    lines: list[Any] = msgspec.convert(found["values"], list[kind]) if found else []  # type: ignore[valid-type]
    return {(line.name, line.what): line for line in lines}


def _median(line: T | None, take: Callable[[T], float]) -> float | None:
    if line is None:
        return None
    return take(line) or None


def rows(results: Results) -> list[Row]:
    """Return all targets with what was measured."""
    return [*_drains(results), *_enqueues(results), *_costs(results), *_times(results)]


def _against(results: Results, name: str, other: str, what: str, target: float) -> Row:
    measured, detail = results.ratio(name, other, what)
    say = f"{what}: {name.removeprefix('Outlast ')}"
    return Row(measure=say, target=target, measured=measured, unit=f"x {other}", detail=detail)


def _drains(results: Results) -> list[Row]:
    made = [
        _against(results, f"{PG} {mode}", other, what, target)
        for what, other, target in (
            (DRAIN1, "PgQueuer", 2.5),
            (DRAIN1, FLOOR, 0.6),
            (DRAIN2, "PgQueuer", 2.0),
        )
        for mode in MODES
    ]
    made += [_against(results, f"{LITE} {mode}", "Huey", DRAIN1, 5) for mode in MODES]
    made += [
        _against(results, f"{each} plain", each, DRAIN1, 0.8)
        for each in (f"{store} {mode}" for store in (PG, LITE) for mode in MODES)
    ]
    return made


def _enqueues(results: Results) -> list[Row]:
    return [
        _against(results, f"{PG} in process", FLOOR, ONE, 0.6),
        _against(results, f"{PG} in process", "PgQueuer", ONE, 1.5),
        _against(results, f"{PG} in process", FLOOR, MANY, 0.6),
    ]


def _costs(results: Results) -> list[Row]:
    costs = (
        ("database CPU per job", "database_us", 50, "us"),
        ("WAL per job", "wal", 900, "B"),
        ("transactions per job", "transactions", 0.05, ""),
    )
    return [
        Row(
            measure=f"{what}, {DRAIN1}: postgres {mode}",
            target=target,
            measured=results.rate(f"{PG} {mode}", DRAIN1, figure),
            unit=unit,
            least=False,
        )
        for what, figure, target, unit in costs
        for mode in MODES
    ]


def _times(results: Results) -> list[Row]:
    waits = [(f"{PG} {mode}", "p99", 5) for mode in MODES]
    waits.append((f"{LITE} runners", "p50", 8))
    made = [_pickup(results, f"{PG} {mode}") for mode in MODES]
    made += [
        Row(
            measure=f"pickup on an idle queue, {figure}: {name.removeprefix('Outlast ')}",
            target=target,
            measured=results.waits(name, figure),
            unit="ms",
            least=False,
        )
        for name, figure, target in waits
    ]
    # results of before: one of 10,000
    long = results.figure("backlog", f"{PG} in process", "1,000,000 waiting")
    short = results.figure("backlog", f"{PG} in process", "20,000 waiting") or results.figure(
        "backlog", f"{PG} in process", "10,000 waiting"
    )
    share = long / short if long and short else None
    detail = f"{long:,.0f}/s against {short:,.0f}/s" if share else ""
    backlog = "a backlog of 1,000,000 against a short one"
    made.append(Row(measure=backlog, target=0.9, measured=share, detail=detail))
    for what, part, target in (
        ("with a transaction held open for 2 minutes, its last 30 s", "held", 0.8),
        ("steady load, last minute against the second", "steady", 0.9),
    ):
        measured, detail = results.flow(f"{PG} in process", part)
        made.append(Row(measure=what, target=target, measured=measured, detail=detail))
    return [*made, *_rest(results)]


def _pickup(results: Results, name: str) -> Row:
    """Return how long a job waits for an idle worker, beside the bare driver in the same run."""
    ours, floor = results.waits(name, "p50"), results.waits(latency.FLOOR, "p50")
    return Row(
        measure=f"pickup on an idle queue, p50: {name.removeprefix('Outlast ')}",
        target=1.5,
        measured=ours / floor if ours and floor else None,
        unit=f"x {latency.FLOOR}",
        detail=f"{ours:.2f} ms against {floor:.2f} ms" if ours and floor else "",
        least=False,
    )


IDLE = (  # on which store, what is counted, at most, unit, figure
    ("postgres", "statements", 2, "a second", "statements"),
    ("postgres", "processor", 1, "% of a core", "processor time of the worker"),
    ("sqlite", "processor", 1, "% of a core", "processor time of the worker"),
)


def _rest(results: Results) -> list[Row]:
    beats = next((name for name, _ in results.names("heartbeat")), "")
    written = Row(
        measure="rows written a heartbeat, 5,000 running jobs",
        target=1,
        measured=results.figure("heartbeat", beats, "rows written, all tables"),
        least=False,
    )
    return [
        written,
        *(_idle(results, *each) for each in IDLE),
        *_schedules(results),
        *_life(results),
        *_fleet(results),
        _commands(results),
    ]


def _schedules(results: Results) -> list[Row]:
    """Return the targets of schedules: when they start, and what those cost that are not due."""

    def row(store: str, what: str, target: float, unit: str) -> Row:
        measured = results.figure("schedules", f"Outlast {store}", what)
        measure = f"schedules, {what}: {store}"
        return Row(measure=measure, target=target, measured=measured, unit=unit, least=False)

    made = [
        row(store, what, target, unit)
        for what, target, unit in (
            (f"{schedules.START}, 99 %", 50, "ms"),
            (f"{schedules.STORM:,} {schedules.ONCE}, until the last job is stored", 2, "s"),
        )
        for store in ("postgres", "sqlite")
    ]
    none, many = (
        results.figure("schedules", PG, f"statements, {number:,} idle")
        for number in (0, schedules.IDLE)
    )
    more = Row(
        measure=f"statements more, beside {schedules.IDLE:,} idle schedules: postgres",
        target=0.1,
        measured=None if none is None or many is None else many - none,
        unit="a second",
        least=False,
    )
    return [*made, more]


def _life(results: Results) -> list[Row]:
    """Return the targets of the whole life of a job on PostgreSQL."""
    goals = (
        ("whole life", "processor of the database", 75, "us"),
        ("whole life", "WAL", 1200, "B"),
        ("kept", "bytes on disk", 300, "B"),
    )
    return [
        Row(
            measure=f"a job on PostgreSQL, {name}: {what}",
            target=target,
            measured=results.figure("life", name, what),
            unit=unit,
            least=False,
        )
        for name, what, target, unit in goals
    ]


def _fleet(results: Results) -> list[Row]:
    """Return the targets of many idle workers on PostgreSQL."""
    return [
        Row(
            measure=f"{count} without work on PostgreSQL: processor of the database",
            target=target,
            measured=results.figure("fleet", count, "CPU of the database"),
            unit="s a second",
            least=False,
        )
        for count, target in (("100 workers", 0.05), ("1,000 workers", 0.3))
    ]


def _commands(results: Results) -> Row:
    """Return the target of the commands that read, beside a large history."""
    return Row(
        measure=f"{SLOWEST}, {ROWS:,} rows of history on PostgreSQL",
        target=0.5,
        measured=results.figure("commands", LARGE, SLOWEST),
        unit="s",
        least=False,
    )


def _idle(results: Results, store: str, what: str, most: float, unit: str, figure: str) -> Row:
    return Row(
        measure=f"idle worker with 4 runners, {store}: {what}",
        target=most,
        measured=results.figure("idle", f"Outlast {store} runners", figure),
        unit=unit,
        least=False,
    )
