"""Find the attempt to which the running code belongs: ``outlast.current()``."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import cast

from outlast.client.attempt import Attempt
from outlast.client.awaiting import running
from outlast.errors import NotInAttempt

_batch: ContextVar[tuple[Attempt, ...]] = ContextVar("outlast_batch", default=())


def current() -> Attempt:
    """Return the attempt that this code runs in; NotInAttempt outside one, and in a batch, which
    has many (``current_batch``).

    It works in the task's coroutine or thread, in asyncio tasks started from it and through
    ``asyncio.to_thread``. Hand the attempt to other threads; child processes cannot save or report.
    """
    if (attempt := find_current()) is None:
        raise NotInAttempt(_IN_BATCH if _batch.get() else None)
    return attempt


_IN_BATCH = "this code runs for a batch of jobs: outlast.current_batch() returns their attempts"


def current_batch() -> list[Attempt]:
    """Return the attempts of the batch that this code runs for, in the order of its items;
    NotInAttempt outside one.

    Each can report, and knows its job; ``save``, ``step``, ``spawn`` and the like are refused.
    """
    if not (attempts := _batch.get()):
        raise NotInAttempt("outlast.current_batch() works only in a task with batch=…")
    return list(attempts)


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


def set_batch(attempts: Sequence[Attempt]) -> None:
    """Make these what ``current_batch()`` returns in this context."""
    _batch.set(tuple(attempts))
