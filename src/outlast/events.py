"""Everything that happens is an event: logs, metrics, traces and tests listen here.

The code that does a thing says so once, with ``emit``; what becomes of it (a line of log, a
counter, nothing) is decided by whoever subscribes. A process that does not opt in gets no
output at all: importing Outlast into somebody's program must not touch its logging.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

CATALOGUE: dict[str, str] = {
    "worker_registered": "A worker has its row in the store, and a lease.",
    "worker_started": "A worker is ready and takes work.",
    "worker_draining": "A worker takes no new work and waits for what it runs.",
    "worker_stopped": "A worker has ended.",
    "worker_reaped": "A worker was found gone, and its row marked lost.",
    "lease_lost": "A worker can no longer trust its lease and stops its attempts.",
    "runner_started": "A child process was started to run attempts.",
    "runner_ready": "A runner has imported the application and announced its tasks.",
    "runner_stopped": "A runner has ended as it was asked to.",
    "runner_died": "A runner has ended without having been asked to.",
    "runner_restart_delayed": "Runners die at birth, so the next one is started later.",
    "application_failed": "The application has never been imported by a runner: the worker ends.",
    "attempt_started": "A job is being run under a new token.",
    "attempt_ended": "An attempt has ended; its outcome is handed in to the store.",
    "attempt_refused": "The store refused a write about an attempt that is no longer current.",
    "claim_reconciled": "A claim that its worker had never heard of was released.",
    "orphaned_jobs_detected": "Running jobs were found whose worker is not alive.",
    "job_reenqueued": "An orphan's attempt was closed, with a reason, and its job decided on.",
    "store_unavailable": "The store cannot be reached, or broke off.",
    "store_recovered": "The store can be reached again.",
    "jobs_pruned": "Old rows were deleted.",
    "attempt_stopping": "An attempt has reached a limit and is asked to stop.",
    "result_rejected": "The store refused the values of an attempt's end.",
    "progress_rejected": "The store refused a report of progress.",
    "duty_failed": "A duty of the worker raised an error; it is tried again.",
    "tether_restarted": "The process that ends runners in their worker's stead was started anew.",
    "lock_file_missing": "There can be no lock file here: a death is proven by the lease alone.",
    "frame_rejected": "A malformed or oversized frame came from a runner.",
}
"""Name of the event -> one sentence on what has happened."""

_WARNINGS = frozenset(
    {
        "worker_reaped",
        "lease_lost",
        "lock_file_missing",
        "tether_restarted",
        "runner_died",
        "runner_restart_delayed",
        "attempt_stopping",
        "result_rejected",
        "progress_rejected",
        "attempt_refused",
        "claim_reconciled",
        "orphaned_jobs_detected",
        "job_reenqueued",
        "store_unavailable",
        "frame_rejected",
    }
)
_ERRORS = frozenset({"application_failed", "duty_failed"})


class Subscriber(Protocol):
    """Whoever listens: called in the thread that emits, so it must be quick."""

    def __call__(self, name: str, fields: dict[str, Any], /) -> object:
        """Take one event. What it raises does not reach the emitter."""
        ...


_lock = threading.Lock()
_subscribers: tuple[Subscriber, ...] = ()


def emit(name: str, **fields: Any) -> None:
    """Tell all subscribers that ``name`` (of the catalogue) has happened. Never fails for them."""
    assert name in CATALOGUE, f"{name!r} is not in outlast.events.CATALOGUE"
    for subscriber in _subscribers:
        try:
            subscriber(name, fields)
        except Exception:
            logging.getLogger("outlast").exception("a subscriber failed on event %s", name)


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call ``subscriber(name, fields)`` at each event from now on; return what ends that."""
    global _subscribers
    with _lock:
        _subscribers = (*_subscribers, subscriber)

    def unsubscribe() -> None:
        global _subscribers
        with _lock:
            _subscribers = tuple(other for other in _subscribers if other is not subscriber)

    return unsubscribe


def level_of(name: str) -> str:
    """Return ``info``, ``warning`` or ``error``."""
    if name in _ERRORS:
        return "error"
    return "warning" if name in _WARNINGS else "info"


def log_to_structlog() -> Callable[[], None]:
    """Opt in: write each event to the structlog logger ``outlast``; return what ends that.

    How structlog renders, and where to, is the caller's business.
    """
    import structlog

    logger = structlog.get_logger("outlast")

    def write(name: str, fields: dict[str, Any]) -> None:
        getattr(logger, level_of(name))(name, **fields)

    return subscribe(write)
