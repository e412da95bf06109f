"""Who wants to hear of attempts that could not speak for themselves: their process has died.

Traces and error reports are made in the process that runs a task. Where that is killed, the worker
that has found it dead tells instead, or the one that took over the jobs of a worker that is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from outlast.model.crash import Crash
from outlast.model.lifecycle import OutcomeKind


class ForeignEnd(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that another process than its own has ended.

    Attributes:
        number: counts the job's attempts from 1.
        outcome: the kind of its crash report, else how it was ended: ``released``, ``cancelled``.
        seconds: for how long it ran, or None where that is not known here.
        resumed: whether it went on from a checkpoint, or None where that is not known here.
        meta: what is noted on the job, a JSON object as text, or None.
        crash: its report, redacted as in the store.
        is_dead: whether its job has died of it.
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
        """Whether something went wrong; one that was cancelled and had to be killed has a report,
        too."""
        return self.crash is not None and self.outcome != OutcomeKind.CANCELLED


Listener = Callable[[ForeignEnd], object]

_lock = threading.Lock()
_listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` with each of them from now on, in this process; return what ends that."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)

    def stop() -> None:
        global _listeners
        with _lock:
            _listeners = tuple(other for other in _listeners if other is not listener)

    return stop


def tell(make: Callable[[], ForeignEnd]) -> None:
    """Tell all listeners, if there are any. Never fails for what one of them does."""
    if not _listeners:
        return
    ended = make()
    for listener in _listeners:
        try:
            listener(ended)
        except Exception:
            logging.getLogger("outlast").exception("job %s: its end was not told", ended.job_id)
