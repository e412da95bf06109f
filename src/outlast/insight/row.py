"""Show a job to programs: plain values and aware times, read from the store."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from outlast.errors import BadArguments
from outlast.model.kinds import is_of
from outlast.payload.payloads import PLAIN, Payloads, describe_encoded, is_encoded
from outlast.store.rows import JobFields, StoredJob

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


class JobRow(JobFields[datetime, Any, str], frozen=True, kw_only=True):
    """A job as read from the store. It does not change; read it again with ``job.refresh()``.

    Times are aware datetimes in UTC. ``msgspec.json.encode(row)`` and ``json.dumps(row.to_dict())``
    write it as JSON.

    Attributes:
        id, task, queue, key, tenant, priority: as enqueued.
        args: the arguments by name; ``checkpoint``, ``result``: the saved and the returned value.
            All are plain JSON values (dict, list, str, int, float, bool, None); ``await
            job.result()`` is of the task's return type.
        policy: its limits: retries, timeouts and so on.
        state: ``queued``, ``blocked`` (waits for other jobs), ``running``, ``completed``, ``dead``
            or ``cancelled``; also a ``str``.
        waiting: whether it is queued, and not due before ``run_at``.
        attempt_count: how many attempts have begun; ``failures``, ``losses``: how much of its two
            budgets is used.
        token: the token of the running or last attempt; None before the first.
        worker_id, worker, host: the worker that runs it or has completed it.
        enqueued_at, run_at, started_at, ended_at: when it was stored, when it is or was due, when
            the attempt that runs or ended it was claimed, and when it ended.
        requeued_at: when it was last requeued after its end; None if it never was.
        expires_at: when it is cancelled unless it has begun; ``reason`` is then ``expired``. None
            again once it has begun and gone back to the queue.
        reason: why it was cancelled, if not by a person or its task: ``expired``, or ``upstream``:
            a job that it waited for did not end as required.
        hard_deadline: when its timeout ends the running attempt.
        cancel_requested: whether it was asked to stop.
        progress: what the attempt last reported; ``checkpoint_at``: when the checkpoint was saved.
        solo: 1: it must run alone in a runner; 2: alone in a worker. ``incident``
            names the shared death of which it is suspected.
        stack: the stack of an attempt from the last answer of its worker (``outlast stack``), at
            ``stack_at``; not in lists.
        held_back: ``limited`` or ``throttled``: it is due, and waits for a limit: room under its
            count, its rate, or the end of a hold.
        limits: the names of the limits that it was enqueued under, sorted.
        event: the name of the event for which it waits (``attempt.wait_event``), if it does.
        malformed: columns that cannot be read, and are shown as empty.
    """

    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as values that ``json.dumps`` takes; times are texts in ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def row_of(stored: StoredJob, payloads: Payloads = PLAIN) -> JobRow:
    """Return a job of the store as a program sees it. Payloads that ``payloads`` cannot read are
    shown by their encoding."""
    values = msgspec.structs.asdict(stored)
    values |= {
        name: read_payload(name, values[name], payloads)
        for name in ("args", "checkpoint", "result")
    }
    values |= {name: moment(values[name]) for name in _times()}
    values["stack"] = None if stored.stack is None else stored.stack.text
    return JobRow(**values, reason=stored.reason)


@cache
def _times() -> list[str]:
    return [each.name for each in msgspec.structs.fields(JobRow) if is_of(each.type, datetime)]


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a datetime in UTC. A time that no datetime can hold (a database
    has years above 9999, and infinity) becomes the first or last datetime."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return _EARLIEST if seconds < 0 else _LATEST


def read_payload(kind: str, text: str | None, payloads: Payloads) -> Any:
    """As ``plain``, after decoding with ``payloads``. A payload that they cannot read, or refuse,
    is shown by its encoding: ``{"encoded": [], "bytes": 70}`` for a plain payload where encryption
    is required."""
    if text is None:
        return None
    try:
        return plain(payloads.decode(kind, text))
    except BadArguments:
        return describe_encoded(text) or {"encoded": [], "bytes": len(text.encode())}


def plain(text: str | None) -> Any:
    """Return stored JSON as plain values; the text itself if it is not JSON (a damaged row). An
    encoded payload is shown by its codecs and size: ``{"encoded": ["zlib"], "bytes": 70}``."""
    if text is None:
        return None
    if is_encoded(text) and (described := describe_encoded(text)) is not None:
        return described
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
