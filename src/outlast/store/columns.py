"""Reads columns that hold Outlast's JSON, and numbers, in the same way for both stores.

A row that another program has written, or a later release, must never stop a claim, a reap or a
page. An unreadable value counts as not given, and its name is passed on: a claimed job whose limits
cannot be read does not run with others (``Claimed.malformed``), and pages show such a row as
malformed. A number is brought into its range as it is read, so that arithmetic, packing and
comparisons are safe.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

import msgspec

from outlast.errors import text_of
from outlast.model.crash import Crash, Progress
from outlast.model.job import JobFacts, Policy
from outlast.model.lease import DeathCause
from outlast.model.pause import Pause, PauseKind
from outlast.store.actions import ActionRow, ActionState, Counts
from outlast.store.stacks import Stack
from outlast.store.values import Orphan

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

COUNT_MAX = 2**31 - 2  # of failures, losses, attempts: one more still fits
SECONDS_MAX = 3.2e9  # a hundred years
END = 1e15  # seconds since 1970: beyond all times that the tables take
ID_MIN, ID_MAX = -(2**63), 2**63 - 1
POLICY_MAX = 20_000  # characters; usual ones have a few hundred, plus notes and labels
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


def policy_of(text: str) -> Policy:
    """Return the policy on a row; the default if it cannot be read."""
    return read_policy(text)[0]


def read_policy(text: str) -> tuple[Policy, str | None]:
    """Return the policy on a row, and why it cannot be read, if it cannot."""
    if len(text) > POLICY_MAX:  # too long for the cache, too
        return Policy(), f"its policy has more than {POLICY_MAX} characters"
    return _policy(text)


@lru_cache(maxsize=1_000)
def _policy(text: str) -> tuple[Policy, str | None]:
    try:
        policy = msgspec.json.decode(text, type=Policy)
    except _UNREADABLE as error:
        return Policy(), f"its policy cannot be read: {text_of(error)}"
    return msgspec.structs.replace(policy, **_bound(msgspec.structs.asdict(policy))), None


def _bound(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers among the limits, each brought into its range."""
    ranges: dict[type, Callable[[Any], Any]] = {int: count_of, float: seconds_of}
    return {name: ranges[type(one)](one) for name, one in limits.items() if type(one) in ranges}


def count_of(number: int) -> int:
    """Return a count brought into the range in which one more still fits."""
    return number if 0 <= number <= COUNT_MAX else min(max(number, 0), COUNT_MAX)


def seconds_of(number: float) -> float:
    """Return a span of time that is finite and not negative."""
    return SECONDS_MAX if math.isnan(number) else min(max(number, 0.0), SECONDS_MAX)


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row's values, with the first or last time for numbers that JSON does not have."""
    return {
        name: (-END if one < 0 else END) if type(one) is float and not math.isfinite(one) else one
        for name, one in values.items()
    }


def struct_of(kind: type[S], row: Mapping[str, Any], **read: Any) -> S:
    """Return a struct from the columns with its names, overridden by ``read``. Some stores have
    numbers for booleans."""
    values = {name: row[name] for name in kind.__struct_fields__ if name in row} | read
    for name in _flags(kind):
        if name in values:
            values[name] = bool(values[name])
    return kind(**values)


@cache
def _flags(kind: type[msgspec.Struct]) -> list[str]:
    annotations = (inspect.get_annotations(each) for each in kind.__mro__)
    return [name for each in annotations for name, told in each.items() if told == "bool"]


def pause_of(row: Sequence[Any]) -> Pause:
    """Return a pause from the first columns of its row."""
    number, kind, name, paused_at, paused_by, reason, stop = row[:7]
    return Pause(
        id=number,
        kind=PauseKind(kind),
        name=name,
        paused_at=paused_at if math.isfinite(paused_at) else 0.0,
        paused_by=paused_by,
        reason=reason,
        stop=bool(stop),
    )


def action_of(values: dict[str, Any]) -> ActionRow:
    """Return an act of a person from the columns of its row."""
    row = finite(values)
    row["counts"] = _read(row["counts"], _counts) or {}
    row["state"] = ActionState(row["state"])
    row["moved_at"] = row["moved_at"] or 0.0
    return ActionRow(**row)


def progress_of(text: str | None) -> Progress | None:
    """Return the progress on a row."""
    progress: Progress | None = _read(text, _progress)
    if progress is None or abs(progress.waits_for or 0) <= ID_MAX:
        return progress
    return msgspec.structs.replace(progress, waits_for=None)


def orphan_of(row: Mapping[str, Any]) -> Orphan:
    """Return an orphan from the columns of its job and its worker."""
    counts = {name: count_of(row[name]) for name in ("failures", "losses")}
    return struct_of(
        Orphan,
        row,
        facts=struct_of(JobFacts, row, policy=policy_of(row["policy"]), **counts),
        attempts=count_of(row["attempts"]),
        progress=progress_of(row["progress"]),
        cause=DeathCause(row["cause"]) if row["cause"] in set(DeathCause) else None,
    )


def crash_of(text: str | None) -> Crash | None:
    """Return the crash report on an attempt's row."""
    return _read(text, _crash)


def stack_of(text: str | None) -> Stack | None:
    """Return the stack on a job's row."""
    return _read(text, _stack)


def names_of(text: str) -> list[str]:
    """Return a list of names; do not change it, since rows with the same text share it."""
    return _read(text, _names) or []


def lacks_of(text: str) -> dict[str, list[str]]:
    """Return the tags that a worker lacks for its tasks."""
    return _read(text, _lacks) or {}


def find_malformed(values: Mapping[str, Any]) -> str | None:
    """Return the names of the columns among these that hold an unreadable text."""
    wrong = [
        name
        for name, reader in _READERS.items()
        if values.get(name) is not None and _read(values[name], reader) is None
    ]
    return ", ".join(wrong) or None


def _read(text: str | None, reader: Callable[[str], T]) -> T | None:
    try:
        return None if text is None else reader(text)
    except _UNREADABLE:
        return None


def _policy_or_none(text: str) -> Policy | None:
    policy, wrong = read_policy(text)
    return policy if wrong is None else None


_progress = msgspec.json.Decoder(Progress).decode
_crash = partial(msgspec.json.decode, type=Crash)
_stack = msgspec.json.Decoder(Stack).decode
_names = lru_cache(maxsize=16)(msgspec.json.Decoder(list[str]).decode)  # alike on many rows
_counts = msgspec.json.Decoder(Counts).decode
_lacks = lru_cache(maxsize=16)(msgspec.json.Decoder(dict[str, list[str]]).decode)
_READERS: dict[str, Callable[[str], object]] = {
    "policy": _policy_or_none,
    "progress": _progress,
    "crash": _crash,
    "stack": _stack,
    "queues": _names,
    "tasks": _names,
    "tags": _names,
    "lacks": _lacks,
}
