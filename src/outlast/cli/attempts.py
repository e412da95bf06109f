"""Show the attempts of a job as cells of a table, and a crash report as short facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.text import Text

from outlast.base.text import ago, cut, line, size, span
from outlast.cli.grid import Row
from outlast.cli.show import format_progress, word
from outlast.model.crash import Charge, Crash, MemoryEvidence, find_line
from outlast.model.job import ENDED, State
from outlast.store.rows import AttemptRow, StoredJob

MESSAGE_MAX = 600  # characters of a crash report's message
GAP = "…"  # in place of an attempt's number: some attempts are not kept individually


def timeline(row: StoredJob, attempts: Sequence[AttemptRow], now: float) -> list[Row]:
    """Return all attempts as rows of a table: the kept closed attempts, with a row for each gap
    between them, then the running or completed one."""
    entries: list[Row] = []
    for before, one in zip((None, *attempts), attempts, strict=False):
        missing = one.number - before.number - 1 if before else 0
        entries += [_gap(missing)] if missing > 0 else []
        entries.append(_closed(one, now))
    is_open = row.state in {State.RUNNING, State.COMPLETED} and row.token is not None
    if is_open and all(one.token != row.token for one in attempts):
        entries.append(_open(row, now))
    return entries


def _gap(missing: int) -> Row:
    return {"NO": GAP, "OUTCOME": Text(f"{missing:,} more", style="dim")}


def _closed(one: AttemptRow, now: float) -> Row:
    charged = "" if one.charge == Charge.NONE else line(one.charge, 60)
    return {
        "NO": str(one.number),
        "TOKEN": str(one.token),
        "OUTCOME": Text(line(one.outcome, 60), style="red" if charged else "yellow"),
        "CHARGED": charged,
        "CLAIMED": ago(one.started_at, now),
        "CLAIM TO END": span(one.ended_at - one.started_at),
        "WORKER": line(one.worker, 60),
        "HOST": line(one.host, 60),
        "PID": "" if one.pid is None else str(one.pid),
    }


def _open(row: StoredJob, now: float) -> Row:
    started = row.started_at if row.started_at is not None else now
    ended = row.ended_at if row.ended_at is not None and row.state in ENDED else now
    return {
        "NO": str(row.attempt_count),
        "TOKEN": str(row.token),
        "OUTCOME": word(row.state.value),
        "CLAIMED": ago(started, now),
        "CLAIM TO END": span(ended - started),
        "WORKER": line(row.worker, 60),
        "HOST": line(row.host, 60),
    }


def evidence(crash: Crash, attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    """Yield the label and text of each known short fact of a crash report."""
    progress = format_progress(crash.progress, 200)
    if crash.progress is not None and crash.progress.fraction is not None:
        progress = progress or f"{int(crash.progress.fraction * 100)}%"
    age = crash.checkpoint_age_seconds
    age = attempt.checkpoint_age if age is None else age
    beside = ", ".join(map(str, crash.neighbours))
    told = {
        "at": line(find_line(crash), 300),
        "message": line(crash.message or attempt.message, MESSAGE_MAX),
        "exception": line(crash.exception, 300),
        "exit code": _told("", crash.exit_code),
        "signal": line(crash.signal, 60),
        "used": _join(
            _told("memory ", crash.rss_peak_bytes, size, " at its peak"),
            _told("CPU ", crash.cpu_seconds, span),
        ),
        "memory": _memory(crash.memory),
        "progress": progress,
        "checkpoint": _told("", age, span, " old at the end"),
        "beside it": cut(f"shared its runner with {beside}", 120) if beside else "",
        "where": _join(
            _told("worker ", crash.worker or attempt.worker or None, _name),
            _told("host ", crash.host or attempt.host or None, _name),
            _told("pid ", attempt.pid if crash.pid is None else crash.pid),
        ),
        "versions": _join(
            line(crash.release, 80),
            _told("Python ", crash.python, _name),
            _told("Outlast ", crash.outlast, _name),
        ),
    }
    yield from ((label, text) for label, text in told.items() if text)


def _told(before: str, value: Any, shown: Callable[[Any], str] = str, behind: str = "") -> str:
    """Return a value with the words around it; "" if it is not known."""
    return "" if value is None else f"{before}{shown(value)}{behind}"


def _name(text: str) -> str:
    return line(text, 80)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _memory(seen: MemoryEvidence | None) -> str:
    if seen is None:
        return ""
    limit = "" if seen.limit_bytes is None else f"; limit {size(seen.limit_bytes)}"
    if seen.source != "cgroup":
        given = "" if seen.limit_bytes is None else f" of {size(seen.limit_bytes)}"
        had = f"its runner had {size(seen.rss_bytes or 0)}"
        return f"{had}, far above its max_rss{given}; killed by its worker"
    peak = "" if seen.peak_bytes is None else f", peak {size(seen.peak_bytes)}"
    return (
        f"the kernel has killed in its cgroup {line(seen.cgroup, 120)}:"
        f" {seen.oom_kills_before} times before, {seen.oom_kills_after} after{limit}{peak}"
        " (evidence, not proof: the cgroup is shared)"
    )
