"""Ctrl-C while the loop of a command runs, starts and ends."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Iterator

import pytest

from outlast.cli.loop import run_loop


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Hold a test to what it finds: no handler and no mask is left behind."""
    before = signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    assert (signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, [])) == before


def test_an_interrupt_in_a_callback_cancels_after_it() -> None:
    """What the callback has seen of a future stays true until its end."""
    wrong = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def resolve() -> None:
            if not answer.done():
                signal.raise_signal(signal.SIGINT)
                wrong.extend(["cancelled"] if answer.done() else [])

        loop.call_soon(resolve)
        await answer

    with pytest.raises(KeyboardInterrupt):
        run_loop(main)
    assert not wrong


def test_an_interrupt_while_the_loop_is_made_is_not_lost() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    def factory() -> asyncio.AbstractEventLoop:
        signal.raise_signal(signal.SIGINT)  # waits: the loop is being made
        return asyncio.new_event_loop()

    with pytest.raises(KeyboardInterrupt):
        run_loop(main, factory)


def test_cleaning_up_is_awaited_and_a_second_interrupt_ends_it_at_once() -> None:
    came = []

    async def main(second: bool) -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            came.append("cleaned up")
            if second:
                signal.raise_signal(signal.SIGINT)
                came.append("not reached")

    for second in (False, True):
        with pytest.raises(KeyboardInterrupt):
            run_loop(functools.partial(main, second))
    assert came == ["cleaned up", "cleaned up"]


def test_an_ignored_interrupt_stays_ignored() -> None:
    async def main() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does with `command &`
    try:
        assert run_loop(main) == "done"
    finally:
        signal.signal(signal.SIGINT, before)


def test_signals_that_the_parent_has_blocked_reach_the_command() -> None:
    """A worker that a supervisor has started like this would never drain."""
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}

    async def main() -> set[int]:
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])

    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        assert not run_loop(main) & blocked
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) >= blocked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_thread_may_run_a_command() -> None:
    said = []
    thread = threading.Thread(
        target=lambda: said.append(run_loop(lambda: asyncio.sleep(0, "done")))
    )
    thread.start()
    thread.join()
    assert said == ["done"]
