"""Counts the signals from outside that asked this runner to end.

The runner does not obey them, since its worker decides when it ends. But a signal to the whole
group also reaches processes that its attempts have started: a failure after it is excused.
"""

from __future__ import annotations

from typing import Any

_heard = 0


def note(number: int, frame: Any) -> None:
    """Count a signal. As its handler, do nothing else."""
    global _heard
    _heard += 1


def count_interruptions() -> int:
    """Return how many signals have asked this process to end so far."""
    return _heard
