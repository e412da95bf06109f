"""Turns an exception of a task into the end of its attempt, with a crash report.

Reading the exception, which is the user's own, may fail: that is an end, too.
``worker/runners/exits.py`` makes the ends of attempts whose runner has died.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from outlast.base.credentials import hide_logins
from outlast.client.attempt import Attempt, StopReason, Unreadable
from outlast.client.error_rules import EVERY_ERROR, ErrorRules, describe_refused, leaves_of
from outlast.errors import (
    Cancel,
    Dead,
    LostLease,
    NotEncrypted,
    Retry,
    Snooze,
    Stopped,
    Throttled,
    UsageError,
    Verdict,
    describe,
    text_of,
)
from outlast.model.crash import Crash, CrashKind, bound, clean, find_place, redact
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner import stacks
from outlast.runner.shell.command import CommandFailed

_FAILED = {OutcomeKind.CRASHED, OutcomeKind.DEAD}
Hide = Callable[[str], str]
_OURS = {str(Path(__file__).with_name("execute.py")), stacks.__file__}  # frames above the user's
_RELEASES = {
    StopReason.DRAIN: "the worker is stopping",
    StopReason.PAUSE: "it was paused",
    StopReason.BLOCKED: "other attempts kept it from running for too long",
}
_INTERRUPTIONS = {
    StopReason.DRAIN,
    StopReason.LEASE_LOST,
    StopReason.PAUSE,
    StopReason.BLOCKED,
}  # not caused by the job or its owner
SIGNALLED = "its runner received a signal from outside, as its child processes may have"
_RETURNED = (
    "it returned when it was asked to stop, and so runs again;"
    " attempt.finish(result) says that the work is complete"
)


def judge(error: BaseException, attempt: Attempt, rules: ErrorRules = EVERY_ERROR) -> Outcome:
    """Return the end that an exception from a task with these rules means. After a request to stop,
    any exception counts as obeying. A verdict stands, unless the task knows that it is interrupted:
    a deploy neither ends nor charges a job."""
    try:
        return _judge(error, attempt, rules)
    except Exception as broken:
        crash = _report(CrashKind.ERROR, broken, attempt._hide)  # noqa: SLF001
        return Outcome(kind=OutcomeKind.CRASHED, crash=crash)


def cut_short(attempt: Attempt) -> Outcome | None:
    """Return the end of an attempt that returned, knowing of a request to stop: its result may be
    only a part of the work. None if it is finished."""
    reason = attempt._obeys()  # noqa: SLF001
    if reason is None:
        return None
    outcome = _judge_stopped(reason, Stopped(_RETURNED), attempt._hide)  # noqa: SLF001
    if outcome.kind is OutcomeKind.RELEASED:
        outcome = msgspec.structs.replace(outcome, message=_RETURNED)
    return outcome


def excuse(outcome: Outcome) -> Outcome:
    """Return the end of an attempt whose runner was signalled meanwhile: a failure becomes a loss,
    or costs nothing if its worker is stopping: so a job cannot signal its own runner forever."""
    crash = outcome.crash
    if crash is None or crash.kind is not CrashKind.ERROR or outcome.kind not in _FAILED:
        return outcome
    message = clean(f"{SIGNALLED}: {crash.message}")
    crash = bound(msgspec.structs.replace(crash, kind=CrashKind.BYSTANDER, message=message))
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash)


def _judge(error: BaseException, attempt: Attempt, rules: ErrorRules) -> Outcome:
    error, hide = _check_limit(_decisive(error), rules), attempt._hide  # noqa: SLF001
    known = attempt._obeys()  # noqa: SLF001  # before the exception is read below
    overruled = known in _INTERRUPTIONS and not isinstance(error, Snooze)
    if isinstance(error, Verdict) and not overruled:
        outcome = _verdict(error, hide)
        return _delayed(outcome, error, attempt, rules) if isinstance(error, Retry) else outcome
    if isinstance(error, LostLease):
        return Outcome(kind=OutcomeKind.CRASHED, crash=_report(CrashKind.LOST_LEASE, error, hide))
    if attempt.stop_reason is not None:
        return _judge_stopped(attempt.stop_reason, error, hide)
    crash = _report(CrashKind.ERROR, error, hide)
    if isinstance(error, KeyboardInterrupt):  # user code has re-enabled SIGINT
        return excuse(Outcome(kind=OutcomeKind.CRASHED, crash=crash))
    if (reason := rules.refuse(error)) is not None:
        message = clean(hide(describe_refused(error, reason)))
        return Outcome(kind=OutcomeKind.DEAD, message=message, crash=crash)
    return _delayed(Outcome(kind=OutcomeKind.CRASHED, crash=crash), error, attempt, rules)


def _delayed(
    outcome: Outcome, error: BaseException, attempt: Attempt, rules: ErrorRules
) -> Outcome:
    """Return a failure with the delay that its task sets, unless the error itself requests one. A
    failing backoff function leaves the usual delay, and the report says so."""
    if rules.pause is None or outcome.delay is not None or outcome.crash is None:
        return outcome
    try:
        delay = rules.find_pause(error, attempt.failures + 1)
    except Exception as broken:
        message = f"{outcome.crash.message} (its backoff failed: {describe(broken)})"
        whole = msgspec.structs.replace(outcome.crash, message=message)
        crash = bound(redact(whole, attempt._hide))  # noqa: SLF001
        return msgspec.structs.replace(outcome, crash=crash)
    return msgspec.structs.replace(outcome, delay=delay)


def _decisive(error: BaseException) -> BaseException:
    """Return the deciding exception of a group, as a TaskGroup raises: a lost lease, or the first
    verdict if the group holds only verdicts. Else return the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(leaves_of(error))
    lost = [leaf for leaf in leaves if isinstance(leaf, LostLease)]
    if lost or all(isinstance(leaf, Verdict) for leaf in leaves):
        return (lost or leaves)[0]
    return error


def _check_limit(error: BaseException, rules: ErrorRules) -> BaseException:
    """Return the error, or that of a task that holds a limit which it is not under: nothing would
    be held, and the job would never stop snoozing."""
    if not isinstance(error, Throttled) or rules.limits is None or error.limit in rules.limits:
        return error
    told = f"Throttled names the limit {error.limit!r}, which the task is not under"
    own = f": give it limits=[…]; it has {', '.join(sorted(rules.limits)) or 'none'}"
    return UsageError(told + own).with_traceback(error.__traceback__)


def _verdict(error: Verdict, hide: Hide) -> Outcome:
    if isinstance(error, Snooze):
        return Outcome(
            kind=OutcomeKind.SNOOZED,
            delay=float(error.seconds),
            message=_read_message(error, hide),
            throttles=error.limit if isinstance(error, Throttled) else None,
            blocks=error._blocks,  # noqa: SLF001
            event=error._event,  # noqa: SLF001
        )
    if isinstance(error, Unreadable):
        return make_undecodable(error.error, hide)
    if isinstance(error, Cancel):
        return Outcome(kind=OutcomeKind.CANCELLED, message=_read_message(error, hide))
    crash = _report(CrashKind.ERROR, _cause_of(error), hide)
    if isinstance(error, Dead):
        return Outcome(kind=OutcomeKind.DEAD, message=_read_message(error, hide), crash=crash)
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash, delay=_delay(error))


def _cause_of(error: Verdict) -> BaseException:
    """Return the error for which a verdict without words was raised; else the verdict."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    is_mute = isinstance(error, Retry | Dead) and not error.why
    return cause if is_mute and isinstance(cause, Exception) else error


def _delay(error: BaseException) -> float | None:
    after = error.after if isinstance(error, Retry) else None
    return None if after is None else float(after)


def _judge_stopped(reason: StopReason, error: BaseException, hide: Hide) -> Outcome:
    if reason is StopReason.CANCEL:
        place = find_place(_report(CrashKind.ERROR, error, hide))
        message = "it stopped when asked" + (f"; it was in {place}" if place else "")
        return Outcome(kind=OutcomeKind.CANCELLED, message=message)
    if reason in _RELEASES:
        after = _delay(error)
        message = _RELEASES[reason] if after is None else hide(text_of(error))
        return Outcome(kind=OutcomeKind.RELEASED, message=message, delay=after)
    kind = CrashKind.LOST_LEASE if reason is StopReason.LEASE_LOST else CrashKind(reason.value)
    return Outcome(kind=OutcomeKind.CRASHED, crash=_report(kind, error, hide))


_OBEYED = {
    CrashKind.TIMEOUT: "it ran longer than its timeout and was stopped",
    CrashKind.STALLED: "it neither reported nor saved for its stall_timeout and was stopped",
    CrashKind.UNRESPONSIVE: "it kept its runner from answering and was stopped",
}


def _report(kind: CrashKind, error: BaseException, hide: Hide) -> Crash:
    """Return the report, redacted before it is cut: no pattern matches a piece of a secret."""
    words = _OBEYED.get(kind)
    if isinstance(error, CommandFailed):  # a Python traceback would not help
        crash = Crash(
            kind=kind,
            message=words or text_of(error),
            exit_code=error.exit_code,
            signal=error.signal,
            output=error.output,
        )
    else:
        crash = Crash(
            kind=kind,
            message=words or describe(error),
            exception=type(error).__qualname__,
            traceback="".join(_lines(error)),
        )
    return bound(redact(crash, hide))


def _read_message(error: Verdict, hide: Hide) -> str:
    """Return the message of a verdict. Raises what its ``__str__`` raises: that is an error."""
    return clean(hide(format(error))) or hide(text_of(error))


def _lines(error: BaseException) -> list[str]:
    """Return the traceback from the user's first frame on; Outlast's frames would not help."""
    try:
        report = traceback.TracebackException.from_exception(error, limit=-30)
        report.stack = traceback.StackSummary.from_list(
            [frame for frame in report.stack if frame.filename not in _OURS]
        )
        return list(report.format())
    except Exception:
        return [f"{type(error).__name__} (its traceback cannot be formatted)"]


def make_crashed(kind: CrashKind, message: str, hide: Hide = hide_logins) -> Outcome:
    """Return a crashed end with this message."""
    message = clean(hide(message))
    crash = Crash(kind=kind, message=message)
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=message)


def make_unawaited() -> Outcome:
    """Return the end of an attempt whose function has returned a coroutine: no retry can help."""
    message = (
        "its coroutine was never awaited: a decorator for plain functions is around the async def;"
        " write its wrapper as an async def, too, which awaits"
    )
    crash = Crash(kind=CrashKind.ERROR, message=message)
    return Outcome(kind=OutcomeKind.DEAD, crash=crash, message=message)


def make_undecodable(error: Exception, hide: Hide = hide_logins) -> Outcome:
    """Return the end of an attempt that this release cannot begin or continue, but another may:
    no retry helps a payload that is not encrypted where that is required."""
    if not isinstance(error, NotEncrypted):
        return make_crashed(CrashKind.UNDECODABLE, text_of(error), hide)
    message = clean(hide(text_of(error)))
    crash = Crash(kind=CrashKind.UNDECODABLE, message=message, exception=type(error).__qualname__)
    return Outcome(kind=OutcomeKind.DEAD, crash=crash, message=message, began=False)
