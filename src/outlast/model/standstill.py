"""Finds the time in which a process did not run, by ticks that come late.

Nothing tells a process that its machine was suspended, its container paused, or its group stopped.
The limits of attempts leave out the time in which both the runner and its worker stood still, on
their host's boot clock. A worker stopped alone gives its runner no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from math import inf

TICK_SECONDS = 0.5
LATE_SECONDS = 1.0  # a shorter standstill is not noticed
SPANS_MAX = 100  # remembered

Span = tuple[float, float]


class Standstill:
    """The spans in which one process did not run: each tick promises another in TICK_SECONDS."""

    def __init__(self) -> None:
        self.spans: deque[Span] = deque(maxlen=SPANS_MAX)
        self._due = inf
        self._used = 0.0

    def tick(self, now: float, used: float = 0.0) -> None:
        """Take a tick. ``used``: the processor time of this process: if there is some, it has run,
        and C code that holds the interpreter's lock has delayed the tick."""
        late = now - self._due
        if late >= LATE_SECONDS and used - self._used < late / 2:
            self.spans.append((self._due, now))
        self._due, self._used = now + TICK_SECONDS, used


def find_shared(ours: Iterable[Span], theirs: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans in which neither of two processes ran."""
    theirs = list(theirs)
    for since, until in ours:
        for begin, end in theirs:
            if (first := max(since, begin)) < (last := min(until, end)):
                yield first, last
