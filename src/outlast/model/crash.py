"""The crash report: why an attempt ended badly, as structured evidence.

Built from what is known at the death; bounded and sanitised here, because NULs and lone
surrogates occur exactly in the output of dying processes, and no store may choke on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

TEXT_MAX = 16_384  # characters of a traceback or of the stacks
LINE_MAX = 2_000  # characters of a message or of one line of output
OUTPUT_LINES_MAX = 50
NEIGHBOURS_MAX = 50
REDACTED = "[redacted]"


class CrashKind(StrEnum):
    """The name of a death. The kind alone decides what is charged."""

    ERROR = "error"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    UNRESPONSIVE = "unresponsive"
    EXITED = "exited"
    SIGNALLED = "signalled"
    OUT_OF_MEMORY = "out_of_memory"
    LOST_WORKER = "lost_worker"
    LOST_LEASE = "lost_lease"
    BYSTANDER = "bystander"
    REJECTED_RESULT = "rejected_result"
    UNDECODABLE = "undecodable"
    COMPLETION_NOT_COMMITTED = "completion_not_committed"


class Charge(StrEnum):
    """Which budget an ended attempt is charged to."""

    NONE = "none"
    FAILURE = "failure"
    LOSS = "loss"


_LOSSES = {CrashKind.LOST_WORKER, CrashKind.LOST_LEASE, CrashKind.BYSTANDER}

PROCESS_DEATHS = frozenset(
    {CrashKind.EXITED, CrashKind.SIGNALLED, CrashKind.OUT_OF_MEMORY} | _LOSSES
)
"""Kinds in which the process went away, so that a first re-run at once is worth while."""


LIMITS = frozenset({CrashKind.TIMEOUT, CrashKind.STALLED, CrashKind.UNRESPONSIVE})
"""Kinds in which the attempt has reached a limit: their reports say where it stood."""


def charge_of(kind: CrashKind) -> Charge:
    """Return the budget that a death of this kind is charged to."""
    if kind is CrashKind.UNDECODABLE:
        return Charge.NONE
    return Charge.LOSS if kind in _LOSSES else Charge.FAILURE


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task last said about itself. ``fraction`` is 0 to 1. ``waits_for``: the job whose
    result it waits for, while it holds its slot."""

    fraction: float | None = None
    stage: str | None = None
    message: str | None = None
    waits_for: int | None = None


class MemoryEvidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was seen of memory around a death. Evidence, not proof: others share the cgroup.

    Attributes:
        source: who says that memory ran out: ``cgroup`` (its count of kills rose) or ``max_rss``.
        rss_bytes: of the runner and its children, when they were last looked at.
        limit_bytes: that was hit: of the cgroup, or the worker's ``max_rss``.
        peak_bytes: of the whole cgroup, since it was made.
        oom_kills_before, oom_kills_after: by the kernel, in that cgroup.
    """

    source: str
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills_before: int | None = None
    oom_kills_after: int | None = None
    cgroup: str | None = None


class Crash(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The evidence of one bad end. Everything but ``kind`` only where known.

    Attributes:
        kind: what sort of death it was.
        message: one line on it; ``exception``: the type of what the task raised.
        traceback: of that exception; ``stacks``: of all threads, where the attempt stood.
        exit_code, signal: how the process ended.
        rss_peak_bytes, cpu_seconds: what the process used in its life.
        memory: what was seen of memory, where it may have run out.
        output: the last lines that were printed, the newest last.
        progress: what the attempt had reported last.
        checkpoint_age_seconds: how old the last checkpoint was.
        neighbours: the other jobs in the process.
        worker, host, pid: where it happened; ``pid`` is that of the process that ran the attempt.
        release: of the application; ``python``, ``outlast``: versions.
    """

    kind: CrashKind
    message: str = ""
    exception: str | None = None
    traceback: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    rss_peak_bytes: int | None = None
    cpu_seconds: float | None = None
    memory: MemoryEvidence | None = None
    stacks: str | None = None
    output: list[str] = []
    progress: Progress | None = None
    checkpoint_age_seconds: float | None = None
    neighbours: list[int] = []
    worker: str | None = None
    host: str | None = None
    pid: int | None = None
    release: str | None = None
    python: str | None = None
    outlast: str | None = None


def clean(text: str, limit: int = LINE_MAX) -> str:
    """Return ``text`` without NULs and lone surrogates, cut in its middle to ``limit``."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def _clean_or_none(text: str | None, limit: int = LINE_MAX) -> str | None:
    return None if text is None else clean(text, limit)


def bounded(crash: Crash) -> Crash:
    """Return the report with every text sanitised and every list within its limit."""
    return msgspec.structs.replace(
        crash,
        message=clean(crash.message),
        exception=_clean_or_none(crash.exception),
        traceback=_clean_or_none(crash.traceback, TEXT_MAX),
        signal=_clean_or_none(crash.signal),
        stacks=_clean_or_none(crash.stacks, TEXT_MAX),
        output=[clean(line) for line in crash.output[-OUTPUT_LINES_MAX:]],
        progress=None if crash.progress is None else _bounded(crash.progress),
        neighbours=crash.neighbours[:NEIGHBOURS_MAX],
        worker=_clean_or_none(crash.worker),
        host=_clean_or_none(crash.host),
        release=_clean_or_none(crash.release),
        python=_clean_or_none(crash.python),
        outlast=_clean_or_none(crash.outlast),
    )


def hiding(patterns: Sequence[str]) -> Callable[[str], str]:
    """Return what puts ``[redacted]`` in place of all that matches one of the patterns."""
    compiled = [re.compile(pattern) for pattern in patterns]

    def hide(text: str) -> str:
        for pattern in compiled:
            text = pattern.sub(REDACTED, text)
        return text

    return hide


def redacted(crash: Crash, hide: Callable[[str], str]) -> Crash:
    """Return the report with ``hide`` applied to every text that user code may have written."""
    return msgspec.structs.replace(
        crash,
        message=hide(crash.message),
        exception=crash.exception and hide(crash.exception),
        traceback=crash.traceback and hide(crash.traceback),
        stacks=crash.stacks and hide(crash.stacks),
        output=[hide(line) for line in crash.output],
    )


def _bounded(progress: Progress) -> Progress:
    return msgspec.structs.replace(
        progress, stage=_clean_or_none(progress.stage), message=_clean_or_none(progress.message)
    )
