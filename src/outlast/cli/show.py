"""Format output for people: a console that suits its stream, and the tables.

A table has no frame, one line per row, and only long texts are cut. Rich shortens all columns alike
on a narrow terminal; here, numbers, states and times are fixed, the columns of long texts are cut,
and if even that is not enough, the last of them are left out. Numbers and whole texts are never
cut: half of an id, or of a name that a command takes, would name something else.

Rich takes longer to load than a list of jobs takes to read, so what a pipe gets is written without
it, to the same letters, wherever nothing has to be cut.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import msgspec

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, due, line, percent, rough
from outlast.insight.availability import health, proof_of_life, silent
from outlast.insight.calls import describe_call
from outlast.insight.facts import format_progress
from outlast.insight.queries import JobList
from outlast.model.crash import Progress
from outlast.model.job import SHELL_TASK, State
from outlast.store.rows import StoredJob, WorkerRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

GAP = 2  # characters between columns
FLEXIBLE_LEAST = 6  # characters: a narrower flexible column is not worth showing


class Styled(str):
    """A text in rich's style, such as "bold red"."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str = "") -> Self:
        """Return the text."""
        made = super().__new__(cls, text)
        made.style = style
        return made

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(str(self), style=self.style)


Cell: TypeAlias = "str | Text"
Row = Mapping[str, Cell]
"""Header -> cell. The sets below name the columns of a special kind; all others are flexible."""
NUMBERS = {"ID", "NO", "TOKEN", "PID", "JOB", "JOBS", "jobs", "TRIES", "REFUSED"}
NUMBERS |= {"FIRED", "SKIPPED", "MISSED", "CLAIM TO END"}
NUMBERS |= {"DUE", "OLDEST", "PAUSED", "SCHEDULED", "SUSPECTS", "RUNNING"}
NUMBERS |= {"COMPLETED", "CANCELLED", "DEAD", "KEYS", "WAITING", "OF"}
FIXED = {"STATE", "STATUS", "OUTCOME", "CHARGED", "PROGRESS", "VERB", "FROM"}
FIXED |= {"WHEN", "NEXT", "LAST", "last", "DIED", "CLAIMED", "BEAT", "STARTED"}
WHOLE = {"NAME", "LIMIT", "group", "as in"}


def table(rows: Sequence[Row], width: int, fixed: Collection[str] = FIXED) -> Grid:
    """Return a table, ``width`` characters wide. The first row has all headers; columns that are
    empty are left out."""

    def least(header: str) -> int:
        natural = max(len(header), *(len(row.get(header, "")) for row in rows))
        return GAP + (min(natural, FLEXIBLE_LEAST) if header in flexible else natural)

    kept = [header for header in rows[0] if any(len(row.get(header, "")) for row in rows)]
    flexible = [header for header in kept if header not in {*NUMBERS, *WHOLE, *fixed}]
    while flexible and sum(map(least, kept)) > width + GAP:
        kept.remove(flexible.pop())
    fits = sum(map(least, kept)) <= width + GAP
    whole = {
        header for header in kept if header in {*NUMBERS, *WHOLE} or (fits and header in fixed)
    }
    return Grid(kept, [[row.get(header, "") for header in kept] for row in rows], whole)


class Grid(msgspec.Struct, frozen=True):
    """A table: its headers, its rows, and the headers of the columns that are never cut."""

    headers: list[str]
    rows: list[list[Cell]]
    whole: set[str]

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
        for header in self.headers:
            made.add_column(
                Text(header, no_wrap=True),
                justify="right" if header in NUMBERS else "left",
                no_wrap=header in self.whole,
                overflow="ellipsis",
            )
        for row in self.rows:
            made.add_row(*map(_one_line, row))
        return made

    def lines(self, width: int) -> list[str] | None:
        """Return its lines as rich would print them; None if that has to cut or measure a text."""
        texts = [self.headers, *(list(map(str, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        if sum(widths) + GAP * (len(widths) - 1) > width or not all(
            each.isascii() and each.isprintable() for row in texts for each in row
        ):
            return None
        return [
            (" " * GAP).join(
                text.rjust(most) if header in NUMBERS else text.ljust(most)
                for header, text, most in zip(self.headers, row, widths, strict=True)
            )
            for row in texts
        ]


def _one_line(cell: Cell) -> Text:
    from rich.text import Text

    text = cell if isinstance(cell, Text) else Text(str(cell), style=getattr(cell, "style", ""))
    text.no_wrap = True
    return text


PROGRESS_SECONDS = 2.0  # between two lines of progress
PIPED_COLUMNS = 240  # a pipe has no width: this one is wide enough to cut nothing
BAR_CELLS = 8
NAME_MAX = 60  # characters of a name in a table
BEATS_LATE = 3
ARGUMENTS_MAX = 60

STYLES = {
    "cyan": ("queued", "blocked", "scheduled", "waiting", "in line"),
    "yellow": ("retrying", "suspect", "stopping", "paused", "draining"),
    "magenta": ("unservable", "no workers", "lacks tags", "queue not served", "undeclared"),
    "red": ("overdue", "silent"),
    "bold red": ("orphaned", "dead", "malformed", "lost"),
    "bold blue": ("running",),
    "green": ("completed", "active"),
    "dim": ("cancelled", "stopped"),
}
STYLE_OF = {word: style for style, words in STYLES.items() for word in words}


class PipedConsole:
    """Stands for rich's console where no terminal is, and loads rich only for what needs it."""

    width = PIPED_COLUMNS
    is_terminal = False

    def print(self, *parts: Any, sep: str = " ", end: str = "\n", **how: Any) -> None:
        """Print texts, or one table."""
        text = self._plain(parts, sep, soft_wrap=how.get("soft_wrap", False))
        if text is None:
            self._console.print(*parts, sep=sep, end=end, **how)
        else:
            sys.stdout.write(text + end)
            sys.stdout.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._console, name)

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False, width=self.width)

    def _plain(self, parts: Sequence[Any], sep: str, *, soft_wrap: bool) -> str | None:
        """Return what rich would print; None if that has to cut, wrap or measure a text."""
        if [*map(type, parts)] == [Grid]:
            lines = parts[0].lines(self.width)
            return None if lines is None else "\n".join(lines)
        if not all(isinstance(each, str) for each in parts):
            return None
        text = sep.join(parts)
        is_short = soft_wrap or (text.isascii() and len(text) <= self.width)
        return text if is_short and text.replace("\n", "").isprintable() else None


def console() -> Console:
    """Return a console on stdout: as wide as the terminal, or wide and plain in a pipe."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    piped = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    if piped and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return cast("Console", PipedConsole())
    from rich.console import Console

    width = PIPED_COLUMNS if piped else None
    return Console(highlight=False, markup=False, emoji=False, width=width)


def print_table(rows: Sequence[Row], none: str, fixed: Collection[str] = FIXED) -> None:
    """Print rows as a table, or the text ``none`` if there are none."""
    out = console()
    out.print(table(rows, out.width, fixed) if rows else none, soft_wrap=not rows)


def now_and_then(describe: Callable[[Any], str], *, json: bool) -> Callable[[Any], None]:
    """Return a function that prints how far a long read has got, at most once in PROGRESS_SECONDS;
    with ``json``, never."""
    shown_at = SYSTEM.boot()

    def tell(progress: Any) -> None:
        nonlocal shown_at
        if not json and SYSTEM.boot() - shown_at >= PROGRESS_SECONDS:
            shown_at = SYSTEM.boot()
            console().print(describe(progress), style="dim")

    return tell


def print_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document to stdout, in ASCII, which every reader can decode."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()


class JsonList:
    """Writes ``{"schema": 1, "jobs": […], …}`` to stdout job by job, however long the list is.

    The output equals that of ``print_json`` for the whole document.
    """

    def __init__(self) -> None:
        self._started = False

    def add(self, document: Mapping[str, Any]) -> None:
        """Write one job."""
        start = "," if self._started else self._head() + "["
        sys.stdout.write(f"{start}\n{indent(json.dumps(document, indent=2), '    ')}")
        self._started = True

    def end(self, **rest: Any) -> None:
        """Write the end of the list, and the fields after it."""
        sys.stdout.write("\n  ]" if self._started else self._head() + "[]")
        for name, value in rest.items():
            sys.stdout.write(f',\n  "{name}": {json.dumps(value)}')
        sys.stdout.write("\n}\n")
        sys.stdout.flush()

    def _head(self) -> str:
        from outlast.insight.resource import SCHEMA

        return f'{{\n  "schema": {SCHEMA},\n  "jobs": '


def word(phase: str) -> Styled:
    """Return a state or phase in its colour."""
    return Styled(phase, STYLE_OF.get(phase, ""))


def bar(progress: Progress | None, *, cells: int = BAR_CELLS, ascii_only: bool = False) -> Text:
    """Return a fraction as a bar with its percentage; an empty text if there is no fraction."""
    from rich.text import Text

    if progress is None or progress.fraction is None:
        return Text("")
    fraction = min(1.0, max(0.0, progress.fraction))
    full = int(fraction * cells)
    done, left = ("#", "-") if ascii_only else ("━", "─")
    return Text.assemble(
        (done * full, "blue"), (left * (cells - full), "dim"), f" {percent(fraction):>4}"
    )


def jobs_table(out: Console, found: JobList, now: float) -> Grid:
    """Return the list of jobs."""
    rows: list[Row] = [
        {
            "ID": str(row.id),
            "STATE": word(found.phase_of(row)),
            "TASK": "a command" if row.task == SHELL_TASK else line(row.task, NAME_MAX),
            "ARGUMENTS": line(describe_call(row.task, row.args), ARGUMENTS_MAX),
            "QUEUE": line(row.queue, NAME_MAX),
            "TENANT": line(row.tenant, NAME_MAX),
            "PROGRESS": bar(row.progress, ascii_only=out.options.ascii_only) if _shows(row) else "",
            "TRIES": str(row.attempt_count),
            "WHEN": when(row, now),
            "DOING": _doing(row),
        }
        for row in found.rows
    ]
    return table(rows, out.width)


def _shows(row: StoredJob) -> bool:
    return _moves(row) and row.progress is not None and row.progress.fraction is not None


def _doing(row: StoredJob) -> Styled:
    if row.malformed is not None:
        return Styled(f"malformed: {line(row.malformed)}", "red")
    if row.event is not None:
        return Styled(f"waits for {line(row.event, NAME_MAX)}", "dim")
    return Styled(format_progress(row.progress, 60) if _moves(row) else "", "dim")


def _moves(row: StoredJob) -> bool:
    return row.state is State.RUNNING or (row.state is State.QUEUED and row.progress is not None)


def dead_table(out: Console, dead: Sequence[tuple[StoredJob, str | None]], now: float) -> Grid:
    """Return the list of dead jobs, each with its cause of death."""
    rows: list[Row] = [
        {
            "ID": str(row.id),
            "TASK": line(row.task, NAME_MAX),
            "QUEUE": line(row.queue, NAME_MAX),
            "DIED": ago(row.ended_at, now),
            "TRIES": str(row.attempt_count),
            "WHY": Styled(line(why, 120), "red"),
        }
        for row, why in dead
    ]
    return table(rows, out.width)


def workers_table(
    out: Console, workers: Sequence[WorkerRow], refused: Mapping[str, int], now: float
) -> Grid:
    """Return the list of present workers; a worker that was asked to drain is shown as draining."""
    rows: list[Row] = [
        {
            "NAME": line(row.name, NAME_MAX),
            "STATUS": _status(row),
            "HOST": line(row.host, NAME_MAX),
            "PID": str(row.pid),
            "RELEASE": line(row.release, NAME_MAX),
            "QUEUES": line(", ".join(row.queues), NAME_MAX) or "all",
            "TAGS": line(", ".join(row.tags), NAME_MAX),
            "JOBS": str(row.running),
            "REFUSED": str(refused.get(row.name) or ""),
            "BEAT": _beat(row, now),
            "STARTED": ago(row.started_at, now),
            "PRESENCE": _presence(row),
            "TASKS": line(", ".join(row.tasks), 120),
        }
        for row in workers
    ]
    return table(rows, out.width)


def gone_table(
    out: Console, workers: Sequence[WorkerRow], refused: Mapping[str, int], now: float
) -> Grid:
    """Return the list of workers that are gone and, for a lost one, how its loss was detected."""
    rows: list[Row] = [
        {
            "NAME": line(row.name, NAME_MAX),
            "STATUS": word(row.status.value),
            "WHEN": ago(row.stopped_at, now),
            "FOUND BY": line(row.cause or row.failing, NAME_MAX),
            "REFUSED": str(refused.get(row.name) or ""),
            "HOST": line(row.host, NAME_MAX),
            "PID": str(row.pid),
            "RELEASE": line(row.release, NAME_MAX),
        }
        for row in workers
    ]
    return table(rows, out.width)


def describe_workers(counts: Mapping[str, int], ill: Mapping[str, int]) -> str:
    """Return how many workers have each status, and how many of these are ill."""
    told = [f"{ill[word]} {word}" for word in ("dead", "silent", "failing") if ill[word]]
    counted = ", ".join(f"{number} {status}" for status, number in counts.items())
    return counted + (f" (of these {', '.join(told)})" if told else "")


def _status(row: WorkerRow) -> Styled:
    if (standing := health(row)) != "well":
        return Styled(standing, "bold red")
    if row.malformed is not None:
        return Styled("malformed", "bold red")
    return word("draining" if row.drain_requested else row.status.value)


def _presence(row: WorkerRow) -> Styled:
    """Return what would prove this worker's death, and why the database would not."""
    words = {"advisory_lock": "database", "lock_file": "lock file", None: "none"}
    proof = words[proof_of_life(row)]
    if row.presence_off is None:
        return Styled(proof)
    return Styled(line(f"{proof}; database: {row.presence_off}", NAME_MAX * 2), "yellow")


def _beat(row: WorkerRow, now: float) -> Styled:
    style = ""
    if row.unheard > BEATS_LATE * row.heartbeat:
        style = "red" if silent(row) else "yellow"
    return Styled(ago(now - row.unheard, now), style)


def when(row: StoredJob, now: float) -> str:
    """Return the time that matters now: how long the job has run, when it is due, or its end."""
    if row.state is State.RUNNING and row.started_at is not None:
        lasts = rough(now - row.started_at)
        return "for a moment" if lasts == "0 s" else f"for {lasts}"
    if row.ended_at is not None:
        return ago(row.ended_at, now)
    return f"due {due(row.run_at, now)}" if row.waiting else ago(row.enqueued_at, now)
