"""Find the attempt to which the running code belongs: ``outlast.current()``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from outlast.client.attempt import Attempt
from outlast.errors import NotInAttempt, UsageError

_current: ContextVar[Attempt] = ContextVar("outlast_attempt")


def current() -> Attempt:
    """Return the attempt that this code runs in; NotInAttempt outside one.

    It works in the task's coroutine or thread, in asyncio tasks started from it and through
    ``asyncio.to_thread``. Hand the attempt to other threads; child processes cannot save or report.
    """
    if (attempt := find_current()) is None:
        raise NotInAttempt
    return attempt


def find_current() -> Attempt | None:
    """Return the attempt that runs in this context, if any does."""
    return _current.get(None)


def current_token() -> int | None:
    """Return the token of the attempt that runs in this context, if any does."""
    attempt = find_current()
    return None if attempt is None else attempt.token


def set_current(attempt: Attempt) -> None:
    """Make ``attempt`` the one that ``current()`` returns in this context. For the executor, which
    gives each attempt its own asyncio task, and so its own context."""
    _current.set(attempt)


@contextmanager
def awaiting(job_id: int) -> Iterator[Callable[[], None]]:
    """Yield a function that reports that the current attempt, if there is one, waits for a job. The
    end of the block withdraws the report."""
    attempt = find_current()
    told = False

    def tell() -> None:
        nonlocal told
        if attempt is not None and not told:
            with suppress(UsageError):  # in a child process of the task
                attempt._awaits(job_id)  # noqa: SLF001
                told = True

    try:
        yield tell
    finally:
        if attempt is not None and told:
            attempt._awaits_no_more(job_id)  # noqa: SLF001
