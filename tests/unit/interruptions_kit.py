"""Calls in the middle of another one of the same thread, as signal handlers and finalizers make."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable

SECONDS = 120.0  # for all of them


def call_at_each_line(outer: Callable[[], object], inner: Callable[[], object]) -> int:
    """Call ``outer`` again and again, in a thread of its own, with a call of ``inner`` in its
    middle: each time one line later. Return how many lines there are; fail where one waits for the
    other."""
    counted: list[int] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            counted.append(next(n for n in itertools.count() if not _call_at(n, outer, inner)))
        except BaseException as error:
            failed.append(error)

    calls = threading.Thread(target=call, daemon=True)
    calls.start()
    calls.join(SECONDS)
    if failed:
        raise failed[0]
    assert counted, "they wait for each other"
    return counted[0]


def _call_at(nth: int, outer: Callable[[], object], inner: Callable[[], object]) -> bool:
    """Return whether there is such a line."""
    lines, called = itertools.count(), []

    def trace(frame: object, event: str, arg: object) -> object:
        if event == "line" and next(lines) == nth:
            called.append(inner())
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        outer()
    finally:
        sys.settrace(None)
    return bool(called)
