"""Draw a table in the house style: no frame, one line per row, and only long texts are cut.

Rich shortens all columns alike on a narrow terminal; here, numbers, states and times are fixed, the
columns of long texts are cut, and if even that is not enough, the last of them are left out.
Numbers and whole texts are never cut: half of an id, or of a name that a command takes, would name
something else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.table import Table
from rich.text import Text

GAP = 2  # characters between columns
FLEXIBLE_LEAST = 6  # characters: a narrower flexible column is not worth showing

Cell = str | Text
Row = Mapping[str, Cell]
"""Header -> cell. Cells are of the kinds that these headers name; the others are flexible."""
NUMBERS = {"ID", "NO", "TOKEN", "PID", "JOB", "JOBS", "jobs", "TRIES", "REFUSED"}
NUMBERS |= {"FIRED", "SKIPPED", "MISSED", "CLAIM TO END"}
NUMBERS |= {"DUE", "OLDEST", "PAUSED", "SCHEDULED", "SUSPECTS", "RUNNING"}
NUMBERS |= {"COMPLETED", "CANCELLED", "DEAD", "KEYS", "WAITING", "OF"}
FIXED = {"STATE", "STATUS", "OUTCOME", "CHARGED", "PROGRESS", "VERB", "FROM"}
FIXED |= {"WHEN", "NEXT", "LAST", "last", "DIED", "CLAIMED", "BEAT", "STARTED"}
WHOLE = {"NAME", "LIMIT", "group", "as in"}


def table(rows: Sequence[Row], width: int, fixed: Collection[str] = FIXED) -> Table:
    """Return rich's table, ``width`` characters wide. The first row has all headers; columns that
    are empty are left out."""

    def least(header: str) -> int:
        natural = max(len(header), *(len(row.get(header, "")) for row in rows))
        return GAP + (min(natural, FLEXIBLE_LEAST) if header in flexible else natural)

    kept = [header for header in rows[0] if any(len(row.get(header, "")) for row in rows)]
    flexible = [header for header in kept if header not in {*NUMBERS, *WHOLE, *fixed}]
    while flexible and sum(map(least, kept)) > width + GAP:
        kept.remove(flexible.pop())
    fits = sum(map(least, kept)) <= width + GAP
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for header in kept:
        made.add_column(
            Text(header, no_wrap=True),
            justify="right" if header in NUMBERS else "left",
            no_wrap=header in {*NUMBERS, *WHOLE} or (fits and header in fixed),
            overflow="ellipsis",
        )
    for row in rows:
        made.add_row(*(_one_line(row.get(header, "")) for header in kept))
    return made


def _one_line(cell: Cell) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    text.no_wrap = True
    return text
