"""Tells listeners of attempts whose process has died.

The process that runs a task makes its traces and error reports. If it is killed, the worker that
ends the attempt in its place tells the listeners.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from outlast.model.crash import Crash
from outlast.model.lifecycle import OutcomeKind


class ForeignEnd(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was ended by a process other than its own.

    Attributes:
        number: the number of the attempt, counted from 1 for the job.
        outcome: the kind of its crash report, else how it was ended: ``released``, ``cancelled``.
        seconds: how long it ran, or None if that is not known here.
        resumed: whether it resumed from a checkpoint, or None if that is not known here.
        meta: the notes on the job, a JSON object as text, or None.
        crash: its crash report, redacted as in the store.
        is_dead: whether its job died of it.
    """

    job_id: int
    token: int
    task: str
    queue: str
    number: int
    outcome: str
    message: str
    seconds: float | None = None
    resumed: bool | None = None
    meta: str | None = None
    crash: Crash | None = None
    is_dead: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether it failed. A report alone does not show that: a cancelled one may have one."""
        return self.crash is not None and self.outcome != OutcomeKind.CANCELLED


Listener = Callable[[ForeignEnd], object]

_lock = threading.Lock()
_listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` with each such end in this process; return a function that ends that."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)

    def stop() -> None:
        global _listeners
        with _lock:
            _listeners = tuple(other for other in _listeners if other is not listener)

    return stop


def tell(make: Callable[[], ForeignEnd]) -> None:
    """Tell all listeners, if there are any. A listener that fails never makes this fail."""
    if not _listeners:
        return
    ended = make()
    for listener in _listeners:
        try:
            listener(ended)
        except Exception:
            logging.getLogger("outlast").exception(
                "a listener failed at the end of job %s", ended.job_id
            )
