"""Define every error that Outlast raises, as one tree.

OutlastError
├── ConfigError            a URL or a setting is wrong
├── ApplicationError       MODULE:APP cannot be imported
├── UsageError             a call that cannot work, refused at the caller
│   ├── BadArguments       arguments do not fit the task, or cannot be encoded
│   │   └── NotEncrypted   a plain payload where encryption is required
│   ├── UnknownTask        no task of that name
│   ├── NotInAttempt       current() outside a running attempt
│   ├── SyncInLoop         NAME_sync() called where a loop is running
│   └── ConnectionMismatch a foreign connection that is not on this store
├── StoreError
│   ├── StoreUnavailable   cannot be reached, or was lost: the outcome is unknown
│   ├── StoreCorrupt       the file is not a database, or is damaged
│   ├── SchemaMismatch     the schema is missing, or of an incompatible release
│   ├── NotPermitted       the role lacks a privilege on the tables
│   └── BadData            the store refuses a value (one row of a batch is bad)
├── KeyInUse               an unfinished job of another task has the key
├── QueueFull              too many jobs of the queue wait
├── JobNotFound
├── ScheduleNotFound
├── LimitNotFound
├── JobFailed              result(): the job is dead; .report has the evidence
├── JobCancelled           result(): the job was cancelled
└── LostLease              this attempt is no longer the current one

Verdict (BaseException)    raised by a task to decide about itself
├── Snooze
│   └── Throttled          and nothing under that limit starts for a while
├── ItemErrors             some items of a batch have failed
├── Retry  ├── Cancel  └── Dead
Stopped (BaseException)    raised by attempt.check() where the attempt is asked to stop
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.model.crash import Crash


_SPAN_MAX, _THROTTLE_MAX = 3_153_600_000.0, 31 * 86_400.0  # seconds


def _in_parts(self: BaseException) -> tuple[Any, ...]:
    """Return how ``pickle`` rebuilds it without calling its class, for process pools."""
    return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[BaseException], args: tuple[Any, ...], own: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(own)
    return error


class OutlastError(Exception):
    """The root of all errors raised by Outlast."""

    __reduce__ = _in_parts


class ConfigError(OutlastError):
    """A URL or a setting is wrong; the message says what to write instead."""


class ApplicationError(OutlastError):
    """``MODULE:APP`` could not be imported, or does not name an ``outlast.App``."""


class UsageError(OutlastError):
    """A call that cannot work. It is refused at once, and nothing is stored."""


class BadArguments(UsageError):
    """Arguments do not fit the task's signature, or cannot be encoded, or are too large."""


class NotEncrypted(BadArguments):
    """A stored payload is not encrypted, and ``Encryption(required=True)`` refuses plain
    payloads."""


class UnknownTask(UsageError):
    """No task of that name is registered with the application."""


class NotInAttempt(UsageError):
    """A call that needs a running attempt, such as ``outlast.current()``, was made outside one."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message
            or "outlast.current() works only while a worker runs your task, and in the task's own"
            " coroutine or thread: call it there, and pass the attempt on to your other threads;"
            " without a worker: outlast.testing.inline_sync(task.call(…)), or `outlast run-task`"
        )


class SyncInLoop(UsageError):
    """A ``NAME_sync`` call was made from a running event loop; await ``NAME`` instead."""


class ConnectionMismatch(UsageError):
    """The given connection is not on the same Outlast schema, or is of an unknown kind."""


class StoreError(OutlastError):
    """The store could not carry out a call."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or the connection was lost; whether the call took effect is
    unknown."""


class StoreCorrupt(StoreError):
    """The file is not a database, or is damaged."""


class SchemaMismatch(StoreError):
    """The schema is missing, or belongs to a release of Outlast that this one cannot work with."""


class NotPermitted(StoreError):
    """The role that the URL names lacks a privilege on the tables of Outlast."""


class BadData(StoreError):
    """The store refused a value; in a batch, at least one row has a bad one."""


class KeyInUse(OutlastError):
    """An unfinished job of another task has the key; nothing of this call was stored, except the
    jobs in ``stored``.

    Attributes:
        key: the key.
        task: the name of the other job's task.
        job_id: the other job's id; None: both jobs are in this call.
        stored: for ``enqueue_many`` with more calls than one statement takes, the jobs of the first
            calls, which are stored; else empty. The other calls are ``calls[len(error.stored):]``.
    """

    key: str
    task: str
    job_id: int | None
    stored: Sequence[Any] = ()

    def __init__(self, message: str, *, key: str, task: str, job_id: int | None = None) -> None:
        super().__init__(message)
        self.key, self.task, self.job_id = key, task, job_id


class QueueFull(OutlastError):
    """As many jobs of a queue wait as ``app.queue(…, waiting_max=…)`` allows; nothing was enqueued.

    Attributes:
        queue: the queue.
        waiting: how many of its jobs wait.
        waiting_max: how many may.
    """

    queue: str
    waiting: int
    waiting_max: int

    def __init__(self, message: str, *, queue: str, waiting: int, waiting_max: int) -> None:
        super().__init__(message)
        self.queue, self.waiting, self.waiting_max = queue, waiting, waiting_max


class JobNotFound(OutlastError):
    """No job has that id."""


class ScheduleNotFound(OutlastError):
    """No schedule has that name."""


class LimitNotFound(OutlastError):
    """No limit has that name."""


class JobFailed(OutlastError):
    """The job is dead. ``report`` is the crash report of its last attempt, where known."""

    report: Crash | None

    def __init__(self, message: str, report: Crash | None = None) -> None:
        super().__init__(message)
        self.report = report


class JobCancelled(OutlastError):
    """The job was cancelled.

    Attributes:
        reason: ``expired`` if it had not begun by the time at which it expires, ``upstream`` if a
            job that it waited for did not end as required, else None.
    """

    reason: str | None

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class LostLease(OutlastError):
    """This attempt is no longer the current one; the store refuses its writes."""


class Verdict(BaseException):
    """A decision that a task makes about its job by raising it.

    A BaseException, so that no ``except Exception`` in the task swallows it.
    """

    __reduce__ = _in_parts


class Snooze(Verdict):
    """Run the job again in ``seconds`` (or a timedelta), uncharged. Less than 0 seconds, NaN and
    more than 100 years are a UsageError, which fails the attempt."""

    seconds: float
    _blocks = False  # until the children that the attempt watches have ended
    _event: str | None = None  # sooner if this event is sent

    def __init__(self, seconds: float | timedelta) -> None:
        self.seconds = _seconds(seconds)
        super().__init__(f"snooze for {self.seconds:g} s")


def wait_without_slot(
    seconds: float, why: str, *, blocks: bool = False, event: str | None = None
) -> Snooze:
    """Return the verdict of an attempt that waits: for some time, until the children that it
    watches have ended (``blocks``), or less long if an event is sent."""
    snooze = Snooze(seconds)
    snooze._blocks, snooze._event, snooze.args = blocks, event, (why,)  # noqa: SLF001
    return snooze


class Throttled(Snooze):
    """The other side refuses more for now, as with a 429: nothing under this limit starts for
    ``after`` seconds (or a timedelta), on any worker; the job then runs again, uncharged.

    ``limit`` is one of the task's limits, as returned by ``app.limit``, or its name; of a limit per
    tenant or key, only the job's own is held. Another limit fails the attempt, and so does an
    ``after`` that is not from 0 seconds to 31 days (UsageError): all workers would wait.
    """

    limit: str

    def __init__(self, limit: object, *, after: float | timedelta) -> None:
        super().__init__(_seconds(after, _THROTTLE_MAX))
        self.limit = str(getattr(limit, "name", limit))
        self.args = (f"throttled by {self.limit} for {self.seconds:g} s",)


class Retry(Verdict):
    """This attempt failed (charged); run the job again ``after`` seconds (or a timedelta; default:
    the back-off). Without ``why``, the crash report is about the error that was being handled."""

    after: float | None
    why: str

    def __init__(self, why: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(why or "retry")
        self.why = why
        self.after = None if after is None else _seconds(after)


def _seconds(span: float | timedelta, most: float = _SPAN_MAX) -> float:
    """Return a span that a job can wait, in seconds; UsageError for any other."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds <= most:
        raise UsageError(
            f"a job can wait for 0 to {most:.0f} seconds, not {seconds:g}; from a point in time,"
            " such as X-RateLimit-Reset, subtract the current time: max(0, reset - time.time())"
        )
    return seconds


class ItemErrors(Verdict):
    """Some items of a batch have failed; the others have completed.

    Each exception ends the job of its item as if that job had raised it alone: the task's rules
    for retries apply, and ``Retry``, ``Snooze``, ``Cancel`` and ``Dead`` mean what they mean
    elsewhere.

    Attributes:
        errors: the exceptions, by the indexes of their items in the list, from 0.
        results: a list as long as the list of items, with the results of the other items; None:
            their result is None.

    Raises UsageError for anything but exceptions by index.
    """

    errors: dict[int, BaseException]
    results: Sequence[Any] | None

    def __init__(
        self, errors: Mapping[int, BaseException], results: Sequence[Any] | None = None
    ) -> None:
        for place, error in errors.items():
            if type(place) is not int or place < 0 or not isinstance(error, BaseException):
                raise UsageError(
                    "ItemErrors takes the exceptions of items that failed, by index, such as"
                    " {3: ValueError('no such page')}"
                )
        self.errors, self.results = dict(errors), results
        super().__init__(f"{len(self.errors)} items of a batch have failed")


class Cancel(Verdict):
    """End this job as ``cancelled``."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why or "cancelled by the task")


class Dead(Verdict):
    """End this job as ``dead``: no retry can help. ``why`` as for ``Retry``."""

    why: str

    def __init__(self, why: str = "") -> None:
        super().__init__(why or "declared dead by the task")
        self.why = why


class Stopped(BaseException):
    """Raised by ``attempt.check()``: the attempt is asked to stop, and ends here; the reason
    decides how.

    A BaseException, so that no ``except Exception`` in the task swallows it.
    """


_PLAIN: tuple[tuple[type[BaseException], str], ...] = (
    (TimeoutError, "no answer in time"),
    (EOFError, "the other end has closed the connection"),
    (ConnectionError, "the connection broke off"),
    (MemoryError, "there is not enough memory"),
    (RecursionError, "nested too deeply"),
    (NotImplementedError, "not implemented"),
)
_NOTHING = " \t\n\r()'\":"  # all that an empty text consists of
_WORD = r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+"


def text_of(error: BaseException) -> str:
    """Return an error's text; if it has none, the meaning of its type in plain words.

    Drivers and the standard library raise errors without a text (a timeout, for example). So use
    this function or ``describe`` to show errors to people, and never show an empty text.
    """
    words = " ".join(re.findall(_WORD, type(error).__name__)).lower()
    return _said(error) or words or "an error without a name"


def describe(error: BaseException) -> str:
    """Return an error's type and text; only the type if it has no text."""
    name, said = type(error).__name__, _said(error)
    return f"{name}: {said}" if said else name


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a user's own error whose text cannot be made
        text = ""
    if text.strip(_NOTHING):
        return text
    return next((words for kind, words in _PLAIN if isinstance(error, kind)), "")
