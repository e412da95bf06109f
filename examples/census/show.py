"""The output of the demo: events line by line and, on a terminal, a live view below.

The lines are the same everywhere; in a pipe and in CI a line of progress now and then stands in
for the live view.
"""

from __future__ import annotations

import os
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.census.watch import Observation
from outlast.base.clock import SYSTEM
from outlast.base.text import span
from outlast.insight.documents import Document
from outlast.model.job import State

COLOURS = {"amber": "dark_orange", "violet": "medium_purple1"}
"""The workers' names, and how each is shown wherever it is named."""
PANEL, BAR, GANTT = 80, 44, 26
"""Columns of the live view, of its progress bar, and of the attempts' bars at the end."""
WIDE = 104
"""Columns of a terminal from which on attempts are drawn, too."""
STEPS = 5
"""Lines of progress, at most, where there is no live view."""
QUIET_SECONDS = 3.0
"""A beat that is late by so much is shown as late."""


class Show(Protocol):
    """Tells people what happens. A context manager."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Leave the terminal as it was."""
        ...

    def say(self, text: str, style: str = "") -> None:
        """Tell of something that has happened, just now."""
        ...

    def update(self, look: Observation, killed: dict[str, float]) -> None:
        """Show how things stand; ``killed``: worker -> when it was, in boot seconds."""
        ...


def show_on(console: Console) -> Show:
    """Return the live view for a terminal, plain lines for anything else."""
    plain = os.environ.get("CI") or not console.is_terminal or console.is_dumb_terminal
    return PlainShow(console) if plain else LiveShow(console)


class PlainShow:
    """Lines alone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = SYSTEM.boot()
        self._step: tuple[int | None, int] = (None, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, text: str, style: str = "") -> None:
        """Print a line with the time since the beginning."""
        since = f"{SYSTEM.boot() - self._begun:5.1f} s  "
        line = Text.assemble((since, "dim"), coloured(text, style))
        self._console.print(line, soft_wrap=not self._console.is_terminal, highlight=False)

    def update(self, look: Observation, killed: dict[str, float]) -> None:
        """Print a line when a further part of the job is done."""
        if look.job is None or look.state is not State.RUNNING:
            return
        step = (look.job.token, look.done * STEPS // max(look.goal, 1))
        if step != self._step and step[0] == self._step[0]:
            self.say(f"{look.done} of {look.goal} commits, {look.saved} of them saved")
        self._step = step


class LiveShow(PlainShow):
    """Lines, and below them a panel with the workers and the job."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, look: Observation, killed: dict[str, float]) -> None:
        """Redraw the panel."""
        self._live.update(panel(look, killed), refresh=True)


def panel(look: Observation, killed: dict[str, float]) -> Panel:
    """Return the live view: the workers, and the job that one of them runs."""
    body = Group(_workers(look, killed), Text(), *_job(look))
    return Panel(body, box=ROUNDED, border_style="dim", padding=(1, 2), width=PANEL)


def _workers(look: Observation, killed: dict[str, float]) -> Table:
    table = Table.grid(padding=(0, 3))
    for _ in range(5):
        table.add_column(no_wrap=True)
    table.add_row(*(Text(head, "dim") for head in ("worker", "pid", "status", "last beat", "runs")))
    for name, colour in COLOURS.items():
        row = look.workers.get(name)
        if row is None:
            table.add_row(Text(f"● {name}", "dim"), "", Text("starting", "dim"))
            continue
        dead = name in killed
        runs = f"attempt {look.job.attempt_count}" if look.holder == name and look.job else "—"
        table.add_row(
            Text(f"{'✗' if dead else '●'} {name}", f"strike {colour}" if dead else colour),
            str(row.pid),
            _status(row.status.value, look.at - killed[name] if dead else None),
            _beat(look.silence[name], dead=dead),
            Text(runs, colour if look.holder == name else "dim"),
        )
    return table


def _status(status: str, killed_ago: float | None) -> Text:
    """The store's word; and, as long as that is wrong about a dead worker, the truth."""
    if killed_ago is None:
        return Text(status, "green")
    if status in {"active", "draining"}:
        return Text(f"killed {killed_ago:.1f} s ago, unnoticed", "red")
    return Text(status, "bold red")


def _beat(silence: float, *, dead: bool) -> Text:
    return Text(f"{silence:4.1f} s ago", "red" if dead or silence > QUIET_SECONDS else "")


def _job(look: Observation) -> list[RenderableType]:
    job = look.job
    if job is None:
        return [Text("no job yet", "dim")]
    colour = COLOURS.get(look.holder or "", "green" if look.state is State.COMPLETED else "")
    stage = "" if look.state is State.COMPLETED else look.stage
    head = Text.assemble(
        f"job {job.id} ", (job.state.value, f"bold {colour}"), f"  attempt {job.attempt_count}",
        f"  token {job.token}" if job.token else "", (f"   {stage}", "dim"),
    )  # fmt: skip
    count = f"  {look.done} of {look.goal} commits"
    return [head, Text.assemble(bar(look), count), pointer(look)]


def bar(look: Observation, width: int = BAR) -> Text:
    """Return the progress: what is saved, what would have to be done again, what is left."""
    saved, done = (width * n // max(look.goal, 1) for n in (look.saved, look.done))
    saved = done if look.state is State.COMPLETED else min(saved, done)
    return Text.assemble(
        ("━" * saved, "green"), ("━" * (done - saved), "yellow"), ("─" * (width - done), "dim")
    )


def pointer(look: Observation, width: int = BAR) -> Text:
    """Return the line that points at the checkpoint on the bar above it."""
    if look.state is State.COMPLETED or not look.saved:
        return Text()
    place = max(min(width * look.saved // max(look.goal, 1), width) - 1, 0)
    return Text(" " * place + f"▲ checkpoint: commit {look.saved}", "green")


def timeline(look: Observation, *, width: int) -> Table:
    """Return the attempts as a table, and in a wide terminal drawn to scale beside it."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("no", "token", "worker", "outcome", "started", "took", "from"):
        table.add_column(name, no_wrap=True)
    attempts = look.timeline()
    begun = _time(look.job.enqueued_at if look.job else None)
    spans = [
        (_time(each["started_at"]) - begun, _time(each["ended_at"]) - begun) for each in attempts
    ]
    if width >= WIDE:
        table.add_column("", no_wrap=True)
    for each, (start, end) in zip(attempts, spans, strict=True):
        drawn = [_gantt(each, start, end, spans[-1][1])] if width >= WIDE else []
        table.add_row(*_attempt(each, look.starts.get(each["token"], 0), start, end), *drawn)
    return table


def _attempt(each: Document, begin: int, start: float, end: float) -> list[RenderableType]:
    return [
        str(each["number"]),
        str(each["token"]),
        coloured(each["worker"] or ""),
        Text(each["outcome"], "green" if each["outcome"] == "completed" else "red"),
        f"+{start:.2f} s",
        span(end - start),
        f"commit {begin}" if begin else "the beginning",
    ]


def _gantt(each: Document, start: float, end: float, whole: float) -> Text:
    left, right = (round(GANTT * at / max(whole, 0.001)) for at in (start, end))
    return Text(" " * left + "━" * max(right - left, 1), COLOURS.get(each["worker"] or "", ""))


def _time(at: float | str | None) -> float:
    """Seconds since 1970 of a row's time or of a document's ISO 8601."""
    if isinstance(at, str):
        return datetime.fromisoformat(at).timestamp()
    return at or 0.0


def coloured(text: str, style: str = "") -> Text:
    """Return the text with each worker's name in that worker's colour."""
    whole = Text(text, style)
    for name, colour in COLOURS.items():
        whole.highlight_words([name], f"bold {colour}")
    return whole
