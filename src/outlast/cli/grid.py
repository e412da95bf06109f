"""Draw a table in the house style: no frame, one line per row, and only long texts are cut.

Rich shortens all columns alike on a narrow terminal; here, numbers, states and times are fixed, the
columns of long texts are cut, and if even that is not enough, the last of them are left out.
Numbers and whole texts are never cut: half of an id, or of a name that a command takes, would name
something else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rich.table import Table
from rich.text import Text

GAP = 2  # characters between columns
FLEXIBLE_LEAST = 6  # characters: a narrower flexible column is not worth showing

Cell = str | Text
Kind = Literal["fixed", "number", "whole", "flexible"]


@dataclass
class Grid:
    """Headers with the kinds of their columns, and rows of as many cells."""

    columns: dict[str, Kind]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        """Add a row."""
        self.rows.append(cells)

    def table(self, width: int) -> Table:
        """Return rich's table, ``width`` characters wide. Empty columns are left out."""
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
        kept = self._kept(width)
        fits = sum(map(self._least, kept)) <= width + GAP
        for at in kept:
            header, kind = list(self.columns.items())[at]
            table.add_column(
                Text(header, no_wrap=True),
                justify="right" if kind == "number" else "left",
                no_wrap=kind in {"number", "whole"} or (fits and kind == "fixed"),
                overflow="ellipsis",
            )
        for row in self.rows:
            table.add_row(*(_one_line(row[at]) for at in kept))
        return table

    def _kept(self, width: int) -> list[int]:
        """Return the columns that have content and fit."""
        kinds = list(self.columns.values())
        kept = [at for at in range(len(kinds)) if any(len(row[at]) for row in self.rows)]
        while sum(map(self._least, kept)) > width + GAP:
            flexible = [at for at in kept if kinds[at] == "flexible"]
            if not flexible:
                break
            kept.remove(flexible[-1])
        return kept

    def _least(self, at: int) -> int:
        """Return the least width of a column in characters, with its gap."""
        header, kind = list(self.columns.items())[at]
        natural = max(len(header), *(len(row[at]) for row in self.rows))
        return GAP + (min(natural, FLEXIBLE_LEAST) if kind == "flexible" else natural)


def _one_line(cell: Cell) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    text.no_wrap = True
    return text
