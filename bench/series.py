"""Rates in a special situation: lines of one number a round, with the same table and the same file.

What ``backlog``, ``lanes``, ``idle``, ``memory`` and ``heartbeat`` have in common.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec
from rich.table import Table

from bench.environment import Missing
from bench.kit import keep, screen, why


class Figure(msgspec.Struct, kw_only=True):
    """One number of one entry, in each round. ``digits``: behind the point, for people."""

    name: str
    what: str
    unit: str
    digits: int = 0
    values: list[float] = []
    failed: list[str] = []

    def median(self) -> float:
        """Return the median; 0 where there is no value."""
        return statistics.median(self.values) if self.values else 0.0

    def shown(self) -> str:
        """Return it as people read it."""
        if not self.values:
            return f"FAILED: {self.failed[-1][:200]}" if self.failed else ""
        low, high = min(self.values), max(self.values)
        text = f"{self.median():,.{self.digits}f}"
        if self.values[1:]:
            text += f" ({low:,.{self.digits}f} to {high:,.{self.digits}f})"
        return text


class Series:
    """The figures of one measurement, in the order in which they first came."""

    def __init__(self, part: str, title: str) -> None:
        self.part = part
        self.title = title
        self._figures: dict[tuple[str, str], Figure] = {}

    def figure(self, name: str, what: str, unit: str, digits: int = 0) -> Figure:
        """Return the line, made at its first use."""
        made = Figure(name=name, what=what, unit=unit, digits=digits)
        return self._figures.setdefault((name, what), made)

    def attempt(self, name: str, what: str, unit: str, measure: Callable[[], None]) -> None:
        """Call ``measure``; note in the line what went wrong."""
        try:
            measure()
        except Missing as missing:
            self.figure(name, what, unit).failed.append(f"not here: {missing}")
        except Exception as error:
            self.figure(name, what, unit).failed.append(why(error))

    def finish(self, *, whole: bool) -> int:
        """Print and keep; return how many lines have failed."""
        figures: Sequence[Figure] = list(self._figures.values())
        table = Table(title=f"{self.title}; medians (and range)")
        for column in ("who", "what"):
            table.add_column(column, no_wrap=True)
        table.add_column("measured", justify="right")
        table.add_column("unit")
        for each in figures:
            table.add_row(each.name, each.what, each.shown(), each.unit)
        screen().print(table)
        keep(self.part, figures, whole=whole)
        return sum(bool(each.failed) for each in figures)
