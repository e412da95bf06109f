"""Decide which exceptions of a task are worth another attempt, and after how long: ``retry_on``,
``dead_on`` and ``backoff``.

The rules come from the code that runs the attempt, not from the row: a class cannot be stored. They
judge each exception that leaves an attempt, including its ``around`` functions. They do not apply
where an attempt ends without an exception (a limit, a death, a drain) or by the task's own verdict.
``runner/outcomes.py`` applies them. The usual delay is ``delay_seconds`` in ``model/lifecycle.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from outlast.base.config import check_seconds
from outlast.errors import ConfigError, StoreUnavailable, Verdict, describe

Seconds = float | timedelta
"""A span of time, as a number of seconds or a timedelta."""

Errors = type[BaseException] | Collection[type[BaseException]]
"""An exception's class, or several."""

Backoff = Seconds | Sequence[Seconds] | Callable[[BaseException, int], Seconds | None]
"""The delay before a retry: always the same, one for each failure, or a function of the exception
and the number of failures with it."""

Pause = Callable[[BaseException, int], float | None]
OPTIONS = ("retry_on", "dead_on", "backoff")


class ErrorRules(NamedTuple):
    """The rules of a task. ``retry_on`` None means every error; ``pause`` None means the usual
    delay. ``limits``: the names of the task's limits; None: not known."""

    retry_on: tuple[type[BaseException], ...] | None = None
    dead_on: tuple[type[BaseException], ...] = ()
    pause: Pause | None = None
    limits: frozenset[str] | None = None

    def refuse(self, error: BaseException) -> str | None:
        """Return why this error is not worth another attempt, or None. A group of errors is worth
        one only if each error in it is."""
        if self.retry_on is None and not self.dead_on:
            return None
        reasons = (self._refuse_one(leaf) for leaf in leaves_of(error))
        return next((reason for reason in reasons if reason is not None), None)

    def _refuse_one(self, error: BaseException) -> str | None:
        """Judge one error by the listed class nearest to its own."""
        for kind in type(error).__mro__:
            if kind in self.dead_on:
                return f"dead_on names {kind.__name__}"
            if self.retry_on is not None and kind in self.retry_on:
                return None
        # an error that ends a program, a cancellation, a verdict among other errors and an
        # unreachable store are refused only where a list names them
        is_apart = isinstance(error, StoreUnavailable) or not isinstance(error, Exception)
        if self.retry_on is None or is_apart:
            return None
        return f"retry_on does not name {type(error).__name__}"

    def find_pause(self, error: BaseException, failures: int) -> float | None:
        """Return the seconds until the next attempt after the ``failures``-th failure; None means
        the usual delay. Raises what the task's own function raises, and ConfigError unless it
        returns a span of time."""
        return None if self.pause is None else self.pause(error, failures)


EVERY_ERROR = ErrorRules()
"""The rules of a task without any: every error is worth another attempt while retries are left."""


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group, in their order; an error that is not a group yields itself."""
    waiting: list[BaseException] = [error]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(reversed(error.exceptions))
        else:
            yield error


def make_error_rules(options: Mapping[str, Any]) -> ErrorRules:
    """Return the rules that a task's options make. Raises ConfigError for options that cannot
    work."""
    given = {name: options.get(name) for name in OPTIONS}
    if all(value is None for value in given.values()):
        return EVERY_ERROR
    retry_on, dead_on = given["retry_on"], given["dead_on"]
    retried = None if retry_on is None else _check_classes("retry_on", retry_on)
    dead = () if dead_on is None else _check_classes("dead_on", dead_on)
    if both := sorted(kind.__name__ for kind in set(retried or ()) & set(dead)):
        raise ConfigError(f"retry_on and dead_on both name {', '.join(both)}: name it in only one")
    backoff = given["backoff"]
    return ErrorRules(retried, dead, None if backoff is None else _make_pause(backoff, options))


def _check_classes(what: str, errors: object) -> tuple[type[BaseException], ...]:
    kinds = (errors,) if isinstance(errors, type) else errors
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        raise ConfigError(f"{what} must be classes of exceptions, such as (OSError,)")
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigError(f"{what} must be classes of exceptions, not {ascii(kind)[:80]}")
        if issubclass(kind, Verdict):
            raise ConfigError(
                f"{what}: leave out {kind.__name__}, which itself decides about the job"
            )
        if issubclass(kind, BaseExceptionGroup):
            raise ConfigError(f"{what}: name the errors in a group instead of {kind.__name__}")
    return tuple(dict.fromkeys(kinds))


def _make_pause(backoff: Any, options: Mapping[str, Any]) -> Pause:
    if {"backoff_first", "backoff_max"} & options.keys():
        raise ConfigError("give backoff, or backoff_first and backoff_max, not both")
    if callable(backoff):
        return lambda error, failures: _check_pause(backoff(error, failures))
    if isinstance(backoff, Sequence) and not isinstance(backoff, str):
        pauses = [check_seconds("backoff", each) for each in backoff]
        if not pauses:
            raise ConfigError("backoff needs at least one pause, such as [1, 10, 60]")
        return lambda _, failures: pauses[min(failures, len(pauses)) - 1]
    pause = check_seconds("backoff", backoff)
    return lambda *_: pause


def _check_pause(answer: Any) -> float | None:
    return None if answer is None else check_seconds("backoff", answer)


def describe_refused(error: BaseException, reason: str) -> str:
    """Return why a job is dead with retries left, for its page and for ``why``."""
    return f"{describe(error)} (no further attempt: {reason})"
