"""The thread of a SQLite connection: calls in turn, from any loop, until its end."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from outlast.store.sqlite.connection import OneThread

LEAVES_IT_BUSY = """
import asyncio, time
from outlast.store.sqlite.connection import OneThread
thread = OneThread("test")
def slow():
    time.sleep(0.2)
    print("done", flush=True)
async def main():
    thread.submit(slow)
asyncio.run(main())
"""


@pytest.fixture
def thread() -> Iterator[OneThread]:
    thread = OneThread("test")
    yield thread
    thread.end()


def fail() -> None:
    raise LookupError("no")


async def test_calls_run_in_turn_and_say_how_they_ended(thread: OneThread) -> None:
    seen: list[int] = []
    calls = [thread.submit(seen.append, n) for n in range(100)]
    name = await thread.submit(lambda: threading.current_thread().name)
    with pytest.raises(LookupError, match="no"):
        await thread.submit(fail)
    assert (name, seen) == ("test", list(range(100)))
    assert all(call.done() for call in calls)


async def test_a_call_that_is_cancelled_before_its_turn_does_not_run(thread: OneThread) -> None:
    gate = threading.Event()
    seen: list[int] = []
    first = thread.submit(gate.wait)
    second = thread.submit(seen.append, 2)
    first.cancel()
    second.cancel()
    gate.set()
    await thread.submit(seen.append, 3)
    assert seen == [3]


def test_the_thread_outlives_event_loops(thread: OneThread) -> None:
    async def ask(job: object) -> object:
        return await thread.submit(lambda: job)

    async def leave() -> None:
        thread.submit(gate.wait)

    gate = threading.Event()
    assert asyncio.run(ask(1)) == 1
    asyncio.run(leave())
    gate.set()  # its loop is closed by now
    assert asyncio.run(ask(2)) == 2


async def test_the_thread_ends_with_the_last_reference_to_it() -> None:
    thread = OneThread("test-collected")
    await thread.submit(lambda: None)
    del thread
    gc.collect()
    assert all(each.name != "test-collected" for each in threading.enumerate())


async def test_between_calls_the_thread_keeps_nothing_alive(thread: OneThread) -> None:
    class Thing: ...

    thing = Thing()
    seen = weakref.ref(thing)
    await thread.submit(id, thing)
    del thing
    async with asyncio.timeout(60):
        while seen() is not None:
            await asyncio.sleep(0.01)


async def test_an_ended_thread_refuses_calls(thread: OneThread) -> None:
    thread.end()
    thread.end()
    with pytest.raises(RuntimeError, match="has ended"):
        thread.submit(lambda: None)


def test_a_running_call_is_finished_before_the_interpreter_exits() -> None:
    command = [sys.executable, "-W", "error", "-c", LEAVES_IT_BUSY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")


class SeenIdle:
    """A thread that two callers see as not started at the same time."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._together = threading.Barrier(2)
        self._own = threading.local()
        self.starts = 0

    @property
    def ident(self) -> int | None:
        if hasattr(self._own, "looked"):
            return self._thread.ident
        self._own.looked = True
        self._together.wait(30)
        return None

    def start(self) -> None:
        self.starts += 1
        if self.starts == 1:
            self._thread.start()


def test_the_first_calls_of_two_loops_start_one_thread():
    """Each loop in a thread of its own, as in a web server's."""
    one, served = OneThread("first"), []
    idle = SeenIdle(one._thread)
    one._thread = idle  # type: ignore[assignment]

    async def call() -> None:
        served.append(await one.submit(threading.get_ident))

    callers = [threading.Thread(target=lambda: asyncio.run(call())) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    one.end()
    assert len(served) == 2
    assert idle.starts == 1
