"""Signals from outside that asked this runner to end.

It does not obey them, since its worker decides when it ends; but where a service manager signals
the whole group they reach its commands as well.
"""

from __future__ import annotations

from typing import Any

_heard = 0


def note(number: int, frame: Any) -> None:
    """Count a signal; as its handler, do nothing else."""
    global _heard
    _heard += 1


def count_interruptions() -> int:
    """Return how many signals have asked this process to end so far."""
    return _heard
