"""Show everything about one job, for an engineer who has to understand its crash.

From top to bottom: the job's identity, why it is in its state and what happens next, its remaining
budgets, its saved data; then each attempt on one line, and the evidence of the failed attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outlast.base.text import ago, count_of, line, lines, pretty, safe, span, stamp
from outlast.cli.show import Cell, Row, Styled, bar, table, word
from outlast.insight.documents import find_open_attempt
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.facts import MESSAGE_MAX, Fact, facts_of_crash, facts_of_job, format_progress
from outlast.model.crash import Charge, Crash, own_stack
from outlast.payload.payloads import show_stored
from outlast.store.logs import LogRow
from outlast.store.rows import AttemptRow, StoredJob

if TYPE_CHECKING:
    from rich.console import Console

ATTEMPTS_SHOWN, REPORTS_SHOWN = 100, 10
VALUE_LINES = 20  # of arguments, checkpoint, result
TRACE_LINES = 60  # of a traceback, of the stacks
OUTPUT_MAX = 300  # characters of a line of output
INDENT = 2
LABEL = 12  # characters of a label's column
BAR_CELLS = 30
STYLES = {"": "", "care": "yellow", "bad": "bold red"}


class Page:
    """Writes a job's details to a console."""

    def __init__(
        self,
        out: Console,
        details: JobDetails,
        answer: Explanation,
        *,
        stacks: bool = False,
    ) -> None:
        """``answer``: what `why` says; ``stacks``: show all threads of crash reports, not only the
        task's."""
        self._out = out
        self._stacks = stacks
        self._all, self._answer = details, answer
        self._row = details.row

    def write(self) -> None:
        """Write the whole page."""
        self._header()
        self._standing()
        self._values()
        self._timeline()
        self._reports()
        self._refusals()

    # -- what it is and what state it is in ------------------------------------------------------

    def _header(self) -> None:
        row = self._row
        phase = word(self._all.phase)
        title = Styled(f"job {row.id}", "bold"), f"  {line(row.task, 80)}  ", phase
        self._out.print(*title, sep="", end="\n\n")

    def _standing(self) -> None:
        self._field("why", " ".join(self._answer.sentences))
        self._field("next", " ".join(self._answer.moves))
        self._facts(facts_of_job(self._row))
        self._progress()

    def _progress(self) -> None:
        progress, number = self._all.progress
        if progress is None:
            return
        of = "" if number is None else f" (of attempt {number}: this one has reported none yet)"
        text = format_progress(progress, 200) + of
        if progress.fraction is None:
            self._field("progress", text)
            return
        drawn = bar(progress, cells=BAR_CELLS, ascii_only=self._out.options.ascii_only)
        self._field("progress", drawn, f"  {text}" if text else "")

    # -- what it has and has made ----------------------------------------------------------------

    def _values(self) -> None:
        row = self._row
        self._value("args", row.args)
        if row.checkpoint is not None:
            saved = ago(row.checkpoint_at, self._all.now)
            self._value("checkpoint", row.checkpoint, f"saved {saved}" if saved else "")
        if row.result is not None:
            self._value("result", row.result)

    def _value(self, label: str, text: str, note: str = "") -> None:
        shown = pretty(show_stored(text), VALUE_LINES)
        if len(shown) == 1 and not note:
            self._field(label, shown[0])
            return
        self._field(label, Styled(note, "dim"))
        self._block(shown)

    # -- what has happened -----------------------------------------------------------------------

    def _timeline(self) -> None:
        entries = timeline(self._row, self._all.attempts, self._all.now)
        dropped = self._all.attempts[-1].dropped if self._all.attempts else 0
        kept = f", {dropped:,} of them kept as a number only" if dropped else ""
        number = sum(entry["NO"] != GAP for entry in entries) + dropped
        self._heading(count_of(number, "attempt") + kept if entries else "no attempts yet")
        if not entries:
            return
        if len(entries) > ATTEMPTS_SHOWN:
            self._out.print(f"  the last {ATTEMPTS_SHOWN} of them; --json has all", style="dim")
        width = self._out.width - INDENT
        made = table(entries[-ATTEMPTS_SHOWN:], width)
        if self._out.is_terminal or (shown := made.lines(width)) is None:
            from rich.padding import Padding

            self._out.print(Padding(made, (0, 0, 0, INDENT), expand=False))
        else:
            self._block(shown, INDENT)
        for one in self._all.attempts[-ATTEMPTS_SHOWN:]:
            if one.crash is None and one.message:  # else its report shows the message
                said = f"attempt {one.number}, {line(one.outcome, 60)}: "
                self._out.print(f"  {said}{line(one.message, MESSAGE_MAX)}", soft_wrap=True)

    def _reports(self) -> None:
        bad = [one for one in self._all.attempts if one.crash is not None]
        if len(bad) > REPORTS_SHOWN:
            self._heading(f"the last {REPORTS_SHOWN} of {len(bad)} crash reports; --json has all")
        for attempt in bad[-REPORTS_SHOWN:]:
            if attempt.crash is not None:
                self._report(attempt, attempt.crash)

    def _report(self, one: AttemptRow, crash: Crash) -> None:
        self._heading(f"attempt {one.number}, token {one.token}: {line(one.outcome)}", "bold red")
        self._facts(facts_of_crash(crash, one))
        if crash.traceback:
            self._field("traceback", "")
            self._block(lines(crash.traceback.rstrip(), TRACE_LINES))
        if crash.stacks:
            self._show_stacks(crash.stacks)
        if crash.output:
            self._field("output", Styled(f"the last {count_of(len(crash.output), 'line')}", "dim"))
            self._block(line(text, OUTPUT_MAX) for text in crash.output)

    def _show_stacks(self, stacks: str) -> None:
        own, others = own_stack(stacks)
        if self._stacks or not own:
            self._field("stacks", "")
            self._block(lines(stacks.rstrip(), TRACE_LINES))
            return
        more = f"--stacks shows {count_of(others, 'other thread')}"
        self._field("stack", Styled(more if others else "", "dim"))
        self._block(lines(own.strip(), TRACE_LINES))

    def _refusals(self) -> None:
        refusals = self._all.refusals
        if not refusals:
            return
        self._heading(
            f"{count_of(len(refusals), 'refused write')} of attempts that had lost the job"
        )
        for one in refusals:
            late = "" if one.late_by is None else f", {span(one.late_by)} late"
            who = f" of worker {line(one.worker, 80)}" if one.worker else ""
            when = ago(one.at, self._all.now)
            self._out.print(
                f"  {line(one.verb, 60)} by token {one.token}{who}, {when}{late}", soft_wrap=True
            )

    # -- how lines look --------------------------------------------------------------------------

    def _heading(self, text: str, style: str = "bold") -> None:
        self._out.print()
        self._out.print(text, style=style, soft_wrap=True)

    def _facts(self, facts: Iterable[Fact]) -> None:
        for one in facts:
            text = one.text or f"{one.tell(one.at, self._all.now)}, {stamp(one.at)}"
            self._field(one.label, Styled(text, STYLES[one.meaning]))

    def _field(self, label: str, *value: Cell) -> None:
        left = self._out.width - LABEL - 2
        if not self._out.is_terminal or sum(map(len, value)) <= left:
            self._line(label, *value)
            return
        from rich.text import Text

        parts = (each.__rich__() if isinstance(each, Styled) else each for each in value)
        for at, part in enumerate(Text.assemble(*parts).wrap(self._out, left)):
            self._line("" if at else label, part)

    def _line(self, label: str, *value: Cell) -> None:
        head = Styled(f"  {label:<{LABEL}}", "dim")
        self._out.print(head, *value, sep="", soft_wrap=True)

    def _block(self, shown: Iterable[str], indent: int = 2 * INDENT) -> None:
        for one in shown:
            self._out.print(" " * indent + one, soft_wrap=True)


GAP = "…"  # in place of the numbers of attempts that are not kept one by one


def timeline(row: StoredJob, attempts: Sequence[AttemptRow], now: float) -> list[Row]:
    """Return all attempts as rows of a table: the kept closed attempts, with a row for each gap
    between them, then the running or completed one."""
    entries: list[Row] = []
    for before, one in zip((None, *attempts), attempts, strict=False):
        missing = one.number - before.number - 1 if before else 0
        entries += [_gap(missing)] if missing > 0 else []
        entries.append(_closed(one, now))
    if (last := find_open_attempt(row, attempts, now)) is not None:
        entries.append({**_closed(last, now), "OUTCOME": word(last.outcome)})
    return entries


def _gap(missing: int) -> Row:
    return {"NO": GAP, "OUTCOME": Styled(f"{missing:,} more", "dim")}


def _closed(one: AttemptRow, now: float) -> Row:
    charged = "" if one.charge == Charge.NONE else line(one.charge, 60)
    return {
        "NO": str(one.number),
        "TOKEN": str(one.token),
        "OUTCOME": Styled(line(one.outcome, 60), "red" if charged else "yellow"),
        "CHARGED": charged,
        "CLAIMED": ago(one.started_at, now),
        "CLAIM TO END": span(one.ended_at - one.started_at),
        "WORKER": line(one.worker, 60),
        "HOST": line(one.host, 60),
        "PID": "" if one.pid is None else str(one.pid),
    }


def print_new(kept: list[LogRow], printed: dict[int, int]) -> None:
    """Print each line once. ``printed``: token -> lines printed, dropped ones included."""
    for log in kept:
        before = printed.get(log.token, 0)
        if log.token not in printed:
            print(f"attempt {log.number} (token {log.token})")
        if log.dropped > before:
            print(f"… {log.dropped - before} lines before these are not kept")
        for each in log.lines[max(0, before - log.dropped) :]:
            print(f"{stamp(each.at)}  {safe(each.text)}")
        printed[log.token] = log.dropped + len(log.lines)
    print(end="", flush=True)
