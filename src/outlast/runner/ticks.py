"""Lets a runner say when it did not run, for the limits of its attempts (``model/standstill.py``).

Their thread starts with the first attempt with a limit: an attempt may block the event loop for
hours. The loop takes one more tick when it answers a ping, so that no standstill is told too late.
"""

from __future__ import annotations

import threading
import time

from outlast.base.clock import Clock
from outlast.model.standstill import TICK_SECONDS, Span, Standstill


class Ticks:
    """The ticks of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._still = Standstill()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Tick from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="outlast-ticks", daemon=True)
            self._tick()  # the process may stand still before the thread runs
            self._thread.start()

    def take(self) -> list[Span]:
        """Return the spans in which this process did not run, each once."""
        if self._thread is None:
            return []
        self._tick()
        with self._lock:
            spans = list(self._still.spans)
            self._still.spans.clear()
            return spans

    def _tick(self) -> None:
        with self._lock:
            self._still.tick(self._clock.boot(), time.process_time())

    def _run(self) -> None:
        pause = threading.Event()  # never set
        while True:
            pause.wait(TICK_SECONDS)
            self._tick()
