"""Counts the signals from outside that asked this runner to end.

The runner does not obey them, since its worker decides when it ends. But if a service manager
signals the whole group, they also reach the processes that its attempts have started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_heard = 0
_watchers: list[Callable[[], None]] = []


def watch(tell: Callable[[], None]) -> None:
    """Call ``tell`` at each signal, within its handler."""
    _watchers.append(tell)


def note(number: int, frame: Any) -> None:
    """Count a signal and call the watchers. As its handler, do nothing else."""
    global _heard
    _heard += 1
    for tell in _watchers:
        tell()


def count_interruptions() -> int:
    """Return how many signals have asked this process to end so far."""
    return _heard
