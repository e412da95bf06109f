"""A table in the house style: no frame, one line per row, and only what matters gives way.

Rich takes from all columns alike where a terminal is narrow; here, numbers, states and times are
fixed, and the columns of long texts are cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rich.table import Table
from rich.text import Text

Cell = str | Text
Kind = Literal["fixed", "number", "flexible"]


@dataclass
class Grid:
    """Headers with the kinds of their columns, and rows of as many cells."""

    columns: dict[str, Kind]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        """Add a row."""
        self.rows.append(cells)

    def table(self) -> Table:
        """Return it as rich's table. Columns in which all cells are empty are left out."""
        kept = [at for at in range(len(self.columns)) if any(len(row[at]) for row in self.rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        named = list(self.columns.items())
        for at in kept:
            header, kind = named[at]
            table.add_column(
                Text(header, no_wrap=True),
                justify="right" if kind == "number" else "left",
                no_wrap=kind != "flexible",
                overflow="ellipsis",
            )
        for row in self.rows:
            table.add_row(*(_one_line(row[at]) for at in kept))
        return table


def _one_line(cell: Cell) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    text.no_wrap = True
    return text
