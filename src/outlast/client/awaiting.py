"""Let the modules of jobs and limits find the attempt that runs in this context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol

from outlast.errors import LostLease, UsageError


class RunningHere(Protocol):
    """The part of the running attempt that jobs and limits use."""

    job_id: int
    token: int

    def _awaits(self, job_id: int) -> None: ...
    def _awaits_no_more(self, job_id: int) -> None: ...
    def _lost(self, what: str) -> LostLease: ...


running: ContextVar[RunningHere] = ContextVar("outlast_attempt")
"""The attempt that ``current()`` returns in this context. The executor sets it: it gives each
attempt its own asyncio task, and so its own context."""


@contextmanager
def awaiting(job_id: int) -> Iterator[Callable[[], None]]:
    """Yield a function that reports that the current attempt, if there is one, waits for a job. The
    end of the block withdraws the report."""
    attempt = running.get(None)
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
