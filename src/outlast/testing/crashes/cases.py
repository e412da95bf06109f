"""Points of a task, the fates that an attempt meets there, and what the runs have shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

SHOWN_MAX = 8  # cases in one row of the table


class Fate(StrEnum):
    """What happens to an attempt at a point, or, delivered twice, at its end."""

    KILLED = "killed"
    LEASE_LOST = "lease lost"
    DRAINED = "drained"
    CANCELLED = "cancelled"
    TWICE = "delivered twice"


class Point(msgspec.Struct, frozen=True):
    """Where an attempt is about to do something that lasts. ``line``: FILE:LINE of the user."""

    number: int
    kind: str
    what: str
    line: str

    def __str__(self) -> str:
        return f"{self.what}  {self.line}" if self.line else self.what


class Case(msgspec.Struct, frozen=True):
    """One run: a fate just before a point. ``point`` is 0 for an attempt that has returned."""

    fate: Fate
    point: int = 0

    def __str__(self) -> str:
        return f"{self.fate} at {self.point}" if self.point else str(self.fate)


class CrashFinding(msgspec.Struct):
    """An effect that a fate changes: how often, in which cases, at which lines, and the remedy."""

    effect: str
    times: str
    line: str
    remedy: str
    cases: list[Case] = []


class CrashReport(msgspec.Struct, kw_only=True):
    """What the runs of one call have shown.

    Attributes:
        task: the name of the task.
        seed: of ``random`` in each run, and of the choice of points.
        points: all points of the run without a crash, in order.
        runs: how many runs there were, including the ones without a crash.
        findings: what a crash breaks. ``is_clean``: nothing.
        notes: what was not compared, and cases that did not happen.
    """

    task: str
    seed: int
    points: list[Point] = []
    runs: int = 0
    findings: list[CrashFinding] = []
    notes: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether each run has ended as the one without a crash."""
        return not self.findings

    def check(self) -> None:
        """Raise AssertionError, with the table, unless it is clean."""
        if self.findings:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        lines = [f"{self.task}: {len(self.points)} points, {self.runs} runs, seed {self.seed}"]
        lines += [f"{point.number:>4}  {point}" for point in self.points]
        lines += (
            self._findings() if self.findings else ["each run ended like the one without a crash"]
        )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _findings(self) -> Iterable[str]:
        yield "depends on a crash (at a point: just before it):"
        rows = [("EFFECT", "HOW OFTEN", "WHEN", "LINE")]
        rows += [(f.effect, f.times, describe_cases(f.cases), f.line) for f in self.findings]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row, finding in zip(rows, [None, *self.findings], strict=True):
            yield "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            if finding is not None:
                yield f"    fix: {finding.remedy}"
        first = self.findings[0].cases[0]
        if first.point:
            yield f"repeat one: --point {first.point} --seed {self.seed}"

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {"schema": 1, "clean": self.is_clean, **plain}


def describe_cases(cases: Sequence[Case]) -> str:
    """Return cases for people, cases of one fate together: ``killed at 2, 3; delivered twice``."""
    told = []
    for fate in Fate:
        at = sorted({case.point for case in cases if case.fate is fate})
        shown = ", ".join(str(each) for each in at[:SHOWN_MAX] if each)
        more = f" and {len(at) - SHOWN_MAX} more" if len(at) > SHOWN_MAX else ""
        if at:
            told.append(f"{fate} at {shown}{more}" if shown else str(fate))
    return "; ".join(told)
