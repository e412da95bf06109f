"""Ctrl-C while a command's loop starts."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from outlast.cli.connect import run_in, run_loop


def interrupt_when_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send SIGINT as soon as asyncio has taken over the signal, before it counts them."""
    take_over = signal.signal

    def take_over_interrupted(number: int, handler: Any) -> Any:
        before = take_over(number, handler)
        if handler is not signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return before

    monkeypatch.setattr(signal, "signal", take_over_interrupted)


async def never_ends() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_command_is_interrupted_before_its_loop_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_when_taken_over(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_loop(never_ends)


def test_a_worker_is_interrupted_before_its_loop_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_when_taken_over(monkeypatch)
    with asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        run_in(runner, never_ends())
