"""Signals from outside that asked this runner to end.

It does not obey them, since its worker decides when it ends; but where a service manager signals
the whole group they reach what its attempts have started as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_heard = 0
_watchers: list[Callable[[], None]] = []


def watch(tell: Callable[[], None]) -> None:
    """Call this at each signal, within its handler."""
    _watchers.append(tell)


def note(number: int, frame: Any) -> None:
    """Count a signal and tell of it; as its handler, do nothing else."""
    global _heard
    _heard += 1
    for tell in _watchers:
        tell()


def count_interruptions() -> int:
    """Return how many signals have asked this process to end so far."""
    return _heard
