"""Find the attempt to which the running code belongs: ``outlast.current()``."""

from __future__ import annotations

from typing import cast

from outlast.client.attempt import Attempt
from outlast.client.awaiting import running
from outlast.errors import NotInAttempt


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
    return cast("Attempt | None", running.get(None))


def current_token() -> int | None:
    """Return the token of the attempt that runs in this context, if any does."""
    attempt = find_current()
    return None if attempt is None else attempt.token


def set_current(attempt: Attempt) -> None:
    """Make ``attempt`` the one that ``current()`` returns in this context. For the executor, which
    gives each attempt its own asyncio task, and so its own context."""
    running.set(attempt)
