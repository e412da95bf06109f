"""Show the attempts of a job as cells of a table, and a crash report as short facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from outlast.base.text import ago, cut, line, size, span
from outlast.cli.grid import Row
from outlast.cli.show import format_progress, word
from outlast.model.crash import Charge, Crash, MemoryEvidence
from outlast.model.fingerprint import find_line
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
    message = crash.message or attempt.message
    told = {
        "at": line(find_line(crash), 300),
        "message": line(message, MESSAGE_MAX),
        "exception": crash.exception and line(crash.exception, 300),
        "exit code": None if crash.exit_code is None else str(crash.exit_code),
        "signal": crash.signal and line(crash.signal, 60),
        "used": _used(crash),
        "memory": _memory(crash.memory),
        "progress": format_progress(crash.progress, 200) or _fraction(crash),
        "checkpoint": _age(crash, attempt),
        "beside it": _neighbours(crash),
        "where": _where(crash, attempt),
        "versions": _release(crash),
    }
    yield from ((label, text) for label, text in told.items() if text)


def _used(crash: Crash) -> str:
    parts = []
    if crash.rss_peak_bytes is not None:
        parts.append(f"memory {size(crash.rss_peak_bytes)} at its peak")
    if crash.cpu_seconds is not None:
        parts.append(f"CPU {span(crash.cpu_seconds)}")
    return ", ".join(parts)


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


def _fraction(crash: Crash) -> str:
    fraction = crash.progress.fraction if crash.progress else None
    return "" if fraction is None else f"{int(fraction * 100)}%"


def _age(crash: Crash, attempt: AttemptRow) -> str:
    age = crash.checkpoint_age_seconds
    age = attempt.checkpoint_age if age is None else age
    return "" if age is None else f"{span(age)} old at the end"


def _neighbours(crash: Crash) -> str:
    if not crash.neighbours:
        return ""
    return cut("shared its runner with " + ", ".join(map(str, crash.neighbours)), 120)


def _where(crash: Crash, attempt: AttemptRow) -> str:
    worker, host = crash.worker or attempt.worker, crash.host or attempt.host
    pid = crash.pid if crash.pid is not None else attempt.pid
    parts = [
        f"worker {line(worker, 80)}" if worker else "",
        f"host {line(host, 60)}" if host else "",
        f"pid {pid}" if pid is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _release(crash: Crash) -> str:
    parts = [line(crash.release, 80) if crash.release else ""]
    parts.append(f"Python {line(crash.python, 80)}" if crash.python else "")
    parts.append(f"Outlast {line(crash.outlast, 80)}" if crash.outlast else "")
    return ", ".join(part for part in parts if part)
