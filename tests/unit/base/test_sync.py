"""NAME_sync: in the caller's thread, through one background loop, never inside a loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from unittest.mock import Mock

import pytest

from outlast.base import sync
from outlast.errors import SyncInLoop, UsageError
from tests.unit.interruptions_kit import call_at_each_line


class Stop(BaseException):
    """As Ctrl-C."""


class Thing:
    """A class with a coroutine and its plain twin."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    async def double(self, number: int, *, fail: bool = False) -> int:
        """Return twice the number."""
        self.threads.append(threading.current_thread().name)
        return await sync.hop(lambda: self._there(number, fail))

    async def _there(self, number: int, fail: bool) -> int:
        await asyncio.sleep(0)
        self.threads.append(threading.current_thread().name)
        if fail:
            raise ValueError("as asked")
        return number * 2

    double_sync = sync.blocking(double)

    async def careless(self) -> None:
        await asyncio.sleep(0)

    careless_sync = sync.blocking(careless)


def test_a_plain_call_starts_in_its_own_thread_and_hops_to_the_background_loop():
    thing = Thing()
    assert thing.double_sync(21) == 42
    assert thing.threads == [threading.current_thread().name, "outlast-sync"]


async def test_an_awaited_call_stays_on_its_loop():
    thing = Thing()
    assert await thing.double(21) == 42
    assert thing.threads == [threading.current_thread().name] * 2


async def test_a_plain_call_from_a_running_loop_names_what_to_await():
    with pytest.raises(SyncInLoop, match=r"await double\(\)"):
        Thing().double_sync(1)


def test_an_event_loop_that_is_not_asyncio_s_is_told_what_to_call_and_not_blocked():
    """As trio's: it drives coroutines by itself."""
    coroutine = Thing().double(1)
    with pytest.raises(UsageError, match="NAME_sync form in a thread"):
        coroutine.send(None)


def test_a_plain_call_inside_trio_is_refused_and_one_in_a_thread_of_it_is_not():
    trio = pytest.importorskip("trio")
    thing = Thing()

    async def main() -> int:
        with pytest.raises(SyncInLoop, match="would block trio's event loop"):
            thing.double_sync(1)
        with pytest.raises(UsageError, match="NAME_sync form in a thread"):
            await thing.double(1)
        doubled: int = await trio.to_thread.run_sync(thing.double_sync, 21)
        return doubled

    assert trio.run(main) == 42
    assert thing.double_sync(4) == 8


def test_a_thread_that_calls_wait_for_makes_none_itself():
    """A finalizer would, where garbage is collected in that thread."""
    refused: list[BaseException] = []

    def serve() -> None:
        sync.serve()
        try:
            Thing().double_sync(1)
        except SyncInLoop as error:
            refused.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert "by a finalizer" in str(refused[0])


@pytest.fixture
def background(monkeypatch):
    """One of its own, of which no thread and no loop is left."""
    loops, threads, real = [], set(threading.enumerate()), asyncio.new_event_loop

    def make():
        loops.append(real())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", make)
    background = sync._Background()
    yield background
    background.stop()
    for thread in set(threading.enumerate()) - threads:
        thread.join(30)
    for loop in loops:
        loop.close()


async def answer(word: str) -> str:
    return word


def test_a_call_may_come_while_the_same_thread_starts_the_background_loop(background, monkeypatch):
    """A signal handler's, say."""
    real = asyncio.new_event_loop
    inner: list[str] = []

    def make():
        if not inner:
            inner.append("")
            inner[0] = background.run(lambda: answer("handler"))
        return real()

    monkeypatch.setattr(asyncio, "new_event_loop", make)
    outer: list[str] = []
    calls = threading.Thread(
        target=lambda: outer.append(background.run(lambda: answer("main"))), daemon=True
    )
    calls.start()
    calls.join(30)
    assert (inner, outer) == (["handler"], ["main"])


def test_a_call_may_come_at_any_line_of_another_one_in_the_same_thread(background):
    background.run(lambda: answer("first"))
    answers: list[str] = []
    lines = call_at_each_line(
        lambda: answers.append(background.run(lambda: answer("main"))),
        lambda: answers.append(background.run(lambda: answer("handler"))),
    )
    assert lines > 5
    assert Counter(answers) == {"main": lines + 1, "handler": lines}


def test_a_call_that_is_interrupted_before_its_turn_has_begun_nothing(background, monkeypatch):
    """Python would warn of a coroutine that is never awaited."""
    begun: list[str] = []
    with monkeypatch.context() as there, pytest.raises(Stop):
        there.setattr(background.loop(), "call_soon_threadsafe", Mock(side_effect=Stop))
        background.run(lambda: begun.append("begun"))
    assert begun == []


def test_what_calls_after_the_background_loop_was_stopped_has_another(background):
    for _ in range(3):
        assert background.run(lambda: answer("here")) == "here"
        background.stop()


def test_a_loop_that_another_one_has_overtaken_is_kept_to_the_end(background):
    """As where a signal handler has started one meanwhile. The collector would free its sockets
    first, and print an error."""
    taken, late = background.loop(), sync._start_loop()
    assert background._adopt(late) is taken
    assert background._stopped == [late]
    assert background.run(lambda: answer("here")) == "here"


def test_errors_come_back_as_they_are():
    with pytest.raises(ValueError, match="as asked"):
        Thing().double_sync(1, fail=True)


def test_all_threads_share_one_background_loop():
    thing = Thing()
    threads = [threading.Thread(target=thing.double_sync, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert thing.threads.count("outlast-sync") == 8
    assert [t.name for t in threading.enumerate()].count("outlast-sync") == 1


def test_a_coroutine_that_awaits_anything_but_hop_raises():
    with pytest.raises(RuntimeError, match="something other than"):
        Thing().careless_sync()


def test_the_plain_twin_has_its_own_name_and_says_what_it_is():
    assert Thing.double_sync.__name__ == "double_sync"
    assert "``double``" in (Thing.double_sync.__doc__ or "")
