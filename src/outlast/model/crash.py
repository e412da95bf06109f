"""Defines the crash report: structured evidence of why an attempt ended badly.

A report is bounded and sanitised here: the output of dying processes may contain NULs and lone
surrogates, which no store accepts. The fingerprint of similar deaths contains no line numbers, and
no folders above the last one: a new release moves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, StrEnum
from functools import cache
from hashlib import blake2b
from itertools import takewhile
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

TEXT_MAX = 16_384  # characters of a traceback or of the stacks
LINE_MAX = 2_000  # characters of a message or of one line of output
CUT_BYTES = 7_900  # a line of output of this length may have lost its beginning
OUTPUT_LINES_MAX = 50
NEIGHBOURS_MAX = 50
ITEMS_MAX = 50  # of any other list
REDACTED = "[redacted]"


C = TypeVar("C", bound="Crash")
S = TypeVar("S", bound=msgspec.Struct)
FINGERPRINT_BYTES = 8
NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/outlast/runner/")
_FRAME = r'(?m)^[ |]*File "([^"\n]+)", line (\d+),? in ([^\n]+)$'
_PATH = r'(?m)^[ |]*File "([^"\n]+)", line '
_TRACEBACK = "Traceback (most recent call last)"
_FATAL, _CURRENT = "Fatal Python error", "Current thread "
_ATTEMPT = " in outlast_attempt_"  # the frame that names an attempt (``runner.stacks``)


class CrashKind(StrEnum):
    """The name of a death. The kind alone decides the charge."""

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
"""Kinds in which the process went away, so that the first retry need not wait."""


LIMITS = frozenset({CrashKind.TIMEOUT, CrashKind.STALLED, CrashKind.UNRESPONSIVE})
"""Kinds in which the attempt has reached a limit: their reports say where it was."""


def charge_of(kind: CrashKind) -> Charge:
    """Return the budget that a death of this kind is charged to."""
    if kind is CrashKind.UNDECODABLE:
        return Charge.NONE
    return Charge.LOSS if kind in _LOSSES else Charge.FAILURE


class Kept(msgspec.Struct, frozen=True):
    """How a field of a report is kept, where it differs from the defaults.

    Attributes:
        characters: the most characters of a text, or of each text in a list.
        items: the most items of a list; ``last``: keep those at its end, not at its beginning.
        end: a text that is too long keeps only its end, not its beginning and its end: the text
            before it was cut off unseen, and the beginning may be a piece of a secret.
        own: the text comes from Outlast or its operator, not from user code, and is not redacted.
    """

    characters: int = LINE_MAX
    items: int = ITEMS_MAX
    last: bool = False
    own: bool = False
    end: bool = False


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task last said about itself. ``fraction`` is 0 to 1. ``waits_for``: the job whose
    result it waits for, while it holds its slot."""

    fraction: float | None = None
    stage: str | None = None
    message: str | None = None
    waits_for: int | None = None


class MemoryEvidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was measured of memory around a death. Evidence, not proof: others share the cgroup.

    Attributes:
        source: what says that memory ran out: ``cgroup`` (its count of kills rose) or ``max_rss``.
        rss_bytes: of the runner and its children, when last measured.
        limit_bytes: the limit that was hit, the cgroup's or the worker's ``max_rss``.
        peak_bytes: of the whole cgroup, since it was created.
        oom_kills_before, oom_kills_after: the kernel's count of kills in that cgroup.
    """

    source: str
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills_before: int | None = None
    oom_kills_after: int | None = None
    cgroup: str | None = None


class Crash(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The evidence of how one attempt failed or was lost. All fields but ``kind`` may be unknown.

    Attributes:
        kind: how it ended.
        message: one line about it; ``exception``: the type of the exception that the task raised.
        traceback: of that exception; ``stacks``: of all threads, which show where the attempt was.
        exit_code, signal: how the process ended.
        rss_peak_bytes, cpu_seconds: what the process used in its lifetime.
        memory: what was measured of memory, if it may have run out.
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


# The type of a field decides how it is edited; a type without a rule is refused (_edit_of). The
# table lists only the fields that are kept differently.
_OWN = Kept(own=True)
_TEXT = Kept(characters=TEXT_MAX)
_KEPT: dict[type, dict[str, Kept]] = {
    Crash: {
        "traceback": _TEXT,
        "stacks": _TEXT,
        "output": Kept(items=OUTPUT_LINES_MAX, last=True, end=True),
        "neighbours": Kept(items=NEIGHBOURS_MAX),
        **dict.fromkeys(["signal", "worker", "host", "release", "python", "outlast"], _OWN),
    },
    MemoryEvidence: {"source": _OWN, "cgroup": _OWN},
}


def clean(text: str, limit: int = LINE_MAX) -> str:
    """Return ``text`` without NULs and lone surrogates, cut in its middle to ``limit``."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def bound(crash: C) -> C:
    """Return the report with every text sanitised and every text and list within its limit."""

    def change(text: str, kept: Kept) -> str:
        return clean(text[-kept.characters :] if kept.end else text, kept.characters)

    return _edit(crash, change)


def hiding(patterns: Sequence[str]) -> Callable[[str], str]:
    """Return a function that replaces all matches of the patterns by ``[redacted]``."""
    compiled = [re.compile(pattern) for pattern in patterns]

    def hide(text: str) -> str:
        for pattern in compiled:
            text = pattern.sub(REDACTED, text)
        return text

    return hide


def redact(crash: C, hide: Callable[[str], str]) -> C:
    """Return the report with ``hide`` applied to texts of user code, and its lists bounded."""

    def change(text: str, kept: Kept) -> str:
        if kept.own:
            return text
        return _hide_in_line(text, hide) if kept.end else hide(text)

    return _edit(crash, change)


def rewrite(struct: S, change: Callable[[str], str]) -> S:
    """Return the report, or a part of it, with ``change`` applied to every text."""
    return _edit(struct, lambda text, _: change(text))


def _hide_in_line(line: str, hide: Callable[[str], str]) -> str:
    """Redact a line of output. One that may have been cut keeps only the text of its last bytes:
    its beginning may be a piece of a secret that no pattern matches."""
    hidden = hide(line)
    whole = line.encode(errors="replace")
    if len(whole) < CUT_BYTES:
        return hidden
    end = hide(whole[-LINE_MAX:].decode(errors="ignore"))
    pairs = zip(reversed(hidden), reversed(end), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return f"... {hidden[len(hidden) - common :]}"


Change = Callable[[str, Kept], str]
Edit = Callable[[Any, Change], Any]


def _edit(struct: S, change: Change) -> S:
    edits = _edits_of(type(struct))
    changed = {name: edit(getattr(struct, name), change) for name, edit in edits.items()}
    return msgspec.structs.replace(struct, **changed)


@cache
def _edits_of(kind: type[msgspec.Struct]) -> dict[str, Edit]:
    """Return the edit of each field of a struct. Raises TypeError for a type without a rule."""
    hints = get_type_hints(kind)
    kept = {name: how for base in kind.__mro__ for name, how in _KEPT.get(base, {}).items()}
    return {name: _edit_of(hints[name], kept.get(name, Kept())) for name in kind.__struct_fields__}


def _edit_of(hint: Any, kept: Kept) -> Edit:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType} and set(arguments) == {arguments[0], NoneType}:
        edit = _edit_of(arguments[0], kept)
        return lambda value, change: None if value is None else edit(value, change)
    if origin is list:
        edit, part = _edit_of(arguments[0], kept), slice(kept.items)
        part = slice(-kept.items, None) if kept.last else part
        return lambda values, change: [edit(value, change) for value in values[part]]
    if hint is str:
        return lambda text, change: change(text, kept)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        _edits_of(hint)  # raises TypeError now for a field without a rule
        return _edit
    if isinstance(hint, type) and issubclass(hint, (int, float, Enum)):
        return lambda value, _: value
    raise TypeError(f"no rule says how {hint} is bounded and redacted in a report")


def fingerprint_of(task: str, outcome: str, crash: Crash | None) -> str:
    """Return 16 hexadecimal digits. ``outcome``: the word on the attempt's row."""
    told = ("", "") if crash is None else (crash.exception or "", find_place(crash) or "")
    text = "\0".join((task, outcome, *told))
    return blake2b(text.encode("utf-8", "replace"), digest_size=FINGERPRINT_BYTES).hexdigest()


def find_place(crash: Crash) -> str | None:
    """Return the innermost frame of the user's own code, ``shop/jobs.py in render``, else the
    innermost of a library: from the exception's traceback, else from the attempt's stack."""
    frame = _decisive_frame(crash)
    return None if frame is None else f"{_short(frame[0])} in {frame[2]}"


def find_line(crash: Crash) -> str | None:
    """Return the same frame with its line, for people: ``shop/jobs.py:41 in render``."""
    frame = _decisive_frame(crash)
    return None if frame is None else f"{_short(frame[0])}:{frame[1]} in {frame[2]}"


def find_line_of_death(crash: Crash | None) -> str | None:
    """Return that line for a process that died: its message does not say where it was."""
    is_death = crash is not None and crash.kind in PROCESS_DEATHS
    return find_line(crash) if crash is not None and is_death else None


def own_stack(stacks: str) -> tuple[str, int]:
    """Return the stack of a death, less Outlast's frames, and the number of other threads."""
    own, ours, _ = _decisive_stack(stacks).partition(_ATTEMPT)
    others = sum(bool(re.search(_FRAME, part)) for part in stacks.split("\n\n")) - bool(own)
    return own.rpartition("\n")[0] if ours else own, others


def _decisive_frame(crash: Crash) -> tuple[str, str, str] | None:
    if crash.traceback:
        frames = re.findall(_FRAME, crash.traceback.rpartition(_TRACEBACK)[2])[::-1]
    else:
        frames = re.findall(_FRAME, _decisive_stack(crash.stacks or ""))
    return next((one for one in frames if _is_users(one[0])), frames[0] if frames else None)


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _decisive_stack(stacks: str) -> str:
    """Return the stack of the thread that received a fatal signal, if it runs the user's code; else
    the attempt's (the main thread gets a signal to the process, whichever thread caused it)."""
    parts = [part for part in stacks.split("\n\n") if re.search(_FRAME, part)]
    met = [part for part in parts if part.startswith(_CURRENT)] if _FATAL in stacks else []
    ranked = [*met, *(part for part in parts if _ATTEMPT in part), *parts]
    users = (part for part in ranked if any(map(_is_users, re.findall(_PATH, part))))
    return next(users, (ranked or [""])[0])


def _is_users(path: str) -> bool:
    return not path.startswith("<") and not any(part in path for part in NOT_THE_USERS)
