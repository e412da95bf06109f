"""A runner tells of each standstill since its first attempt with a limit."""

from __future__ import annotations

import threading

import pytest

from outlast.runner.ticks import Ticks
from tests.manual_clock import ManualClock


def test_a_standstill_before_the_first_turn_of_the_thread_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock(boot=100.0)
    ticks = Ticks(clock)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    ticks.start()
    clock.advance(9.0)
    ((since, until),) = ticks.take()
    assert (since, until) == (100.5, 109.0)
    assert ticks.take() == []
