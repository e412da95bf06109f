"""Wait for a command's job: show its progress, then turn its end into an exit code."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from outlast.base.clock import SYSTEM
from outlast.base.text import safe
from outlast.cli.connect import closing
from outlast.cli.errors import DONE, NOT_SO
from outlast.cli.show import bar, format_progress, word
from outlast.client.app import App
from outlast.errors import JobNotFound
from outlast.insight.documents import phase_of
from outlast.insight.row import plain
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import ENDED, State
from outlast.model.pause import Pauses
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, Served, StoredJob

LOOK_SECONDS = 0.25
TIMED_OUT = 124  # the exit code of timeout(1)
SIGNALLED = 128  # plus the number of the signal, as a shell reports it
MESSAGE_MAX = 60


class JobEnd(msgspec.Struct, frozen=True):
    """How a job ended: an exit code, its last lines, and a message if it has failed."""

    code: int
    output: list[str]
    why: str | None = None


async def end_of(app: App, job_id: int) -> JobEnd:
    """Show on stderr how the job is doing until it has ended; return its end."""
    console = Console(stderr=True, highlight=False, markup=False)
    async with closing(app):
        with Live(console=console, auto_refresh=False, transient=True) as live:
            return await app.stores.ask(lambda store: _watch(store, job_id, live))


async def _watch(store: Store, job_id: int, live: Live) -> JobEnd:
    while True:
        row = await store.inspector.job(job_id)
        if row is None:
            raise JobNotFound(f"job {job_id} is gone")
        if row.state in ENDED:
            return _end(row, await store.inspector.attempts(job_id))
        if live.console.is_terminal:
            served, paused = await store.inspector.served(), await store.inspector.pauses()
            live.update(_standing(row, served, Pauses(paused)), refresh=True)
        await SYSTEM.sleep(LOOK_SECONDS)


def _standing(row: StoredJob, served: Served, pauses: Pauses) -> Text:
    phase = phase_of(row, served, pauses=pauses)
    parts = [Text(f"job {row.id}"), word(phase), bar(row.progress)]
    if phase == "unservable":
        parts.append(Text("no worker with --shell serves its queue", style="dim"))
    elif row.attempt_count > 1:
        parts.append(Text(f"attempt {row.attempt_count}", style="dim"))
    parts.append(Text(format_progress(row.progress, MESSAGE_MAX), style="dim"))
    return Text("  ").join(part for part in parts if part)


def _end(row: StoredJob, attempts: Sequence[AttemptRow]) -> JobEnd:
    if row.state is State.COMPLETED:
        result = plain(row.result)
        output = result.get("output") if isinstance(result, dict) else None
        lines = output if isinstance(output, list) else []
        return JobEnd(DONE, [safe(line) for line in lines if isinstance(line, str)])
    if row.state is State.CANCELLED:
        return JobEnd(NOT_SO, [], "was cancelled")
    last = attempts[-1] if attempts else None
    crash = last.crash if last is not None else None
    if last is None or crash is None:
        return JobEnd(NOT_SO, [], "is dead")
    output = [safe(line) for line in crash.output]
    how = "" if last.outcome == row.state else f", {last.outcome}"
    return JobEnd(_code(crash), output, f"is dead{how}: {last.message}")


def _code(crash: Crash) -> int:
    """Return the exit code that a shell would give; a command may exit with the same code."""
    if crash.kind is CrashKind.TIMEOUT:
        return TIMED_OUT
    if crash.signal is not None:
        return SIGNALLED + _number_of(crash.signal)
    return crash.exit_code or NOT_SO


def _number_of(name: str) -> int:
    """Return a signal's number; a signal without its own name is written ``signal 40``."""
    if unnamed := re.fullmatch(r"signal (\d{1,2})", name, re.ASCII):
        return int(unnamed[1])
    return signal.Signals.__members__.get(name, 0)
