"""Plain functions in threads: each is called, and none waits behind one that blocks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from outlast.runner.threads import Threads

MOST = 8


@pytest.fixture
async def threads():
    threads = Threads(MOST)
    yield threads
    threads.close()


async def values(threads: Threads, *works: Callable[[], Any]) -> list[Any]:
    """Call all; return their results in the order in which the loop received them."""
    came: list[Any] = []
    all_came = asyncio.Event()
    here = threading.get_ident()

    def done(value: Any) -> None:
        assert threading.get_ident() == here, "in the loop"
        came.append(value)
        if len(came) == len(works):
            all_came.set()

    for work in works:
        threads.call(work, done)
    async with asyncio.timeout(30):
        await all_came.wait()
    return came


async def test_short_functions_share_few_threads(threads):
    names = await values(threads, *[lambda: threading.current_thread().name] * 200)
    assert len(set(names)) <= MOST
    assert all(name.startswith("outlast-task") for name in names)


async def test_functions_that_wait_for_each_other_all_get_a_thread(threads):
    everybody = threading.Barrier(MOST)
    await values(threads, *[lambda: everybody.wait(30)] * MOST)


async def test_concurrency_is_bounded_and_all_functions_run(threads):
    lock, gate = threading.Lock(), threading.Event()
    running = most = 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == MOST:
                gate.set()
        assert gate.wait(30)
        with lock:
            running -= 1

    await values(threads, *[work] * (3 * MOST))
    assert most == MOST


async def test_stuck_threads_do_not_accumulate(threads):
    all_stuck, go_on = threading.Barrier(MOST + 1), threading.Event()

    def stuck() -> bool:
        all_stuck.wait(30)
        return go_on.wait(30)

    works = asyncio.ensure_future(values(threads, *[stuck] * MOST, lambda: True))
    await asyncio.to_thread(all_stuck.wait, 30)
    for _ in range(100):
        threads._come()
    assert threads._pool._work_queue.qsize() == 0
    go_on.set()
    assert await works == [True] * (MOST + 1)


async def test_idle_threads_end_and_new_ones_start(threads):
    for round_ in range(20):
        assert await values(threads, partial(int, round_)) == [round_]


async def test_a_function_behind_a_blocked_one_is_called(threads):
    go_on = threading.Event()
    first = asyncio.ensure_future(values(threads, lambda: go_on.wait(30)))
    await asyncio.sleep(0)
    assert await values(threads, lambda: "called") == ["called"]
    go_on.set()
    assert await first == [True]


async def test_waiting_functions_are_not_called_after_close():
    threads = Threads(1)
    begun, go_on, called = threading.Event(), threading.Event(), []

    def blocks() -> None:
        begun.set()
        go_on.wait(30)

    threads.call(blocks, lambda _: None)
    threads.call(lambda: called.append(1), lambda _: None)
    assert await asyncio.to_thread(begun.wait, 30)
    threads.close()
    go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("outlast-task"):
            await asyncio.to_thread(thread.join, 30)
    assert called == []


async def test_functions_wait_when_no_thread_can_be_started(threads, monkeypatch):
    """As in a container at its limit of processes: no thread would call them any more."""
    start, refused = threading.Thread.start, threading.Event()

    def refuses_once(thread: threading.Thread) -> None:
        if not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses_once)
    assert await values(threads, lambda: "called") == ["called"]
    assert refused.is_set()


async def test_a_thread_ended_from_outside_frees_its_slot():
    threads = Threads(1)

    def ends_its_thread() -> None:
        raise SystemExit

    threads.call(ends_its_thread, lambda _: None)
    assert await values(threads, lambda: "called") == ["called"]
    threads.close()


FORKS = """
import asyncio, multiprocessing
from outlast.runner.threads import Threads

def fork():
    child = multiprocessing.get_context("fork").Process(target=print, args=("done",))
    child.start()
    child.join()
    return child.exitcode

async def main():
    ended = asyncio.get_running_loop().create_future()
    threads = Threads(2)
    threads.call(fork, ended.set_result)
    print(await ended)

asyncio.run(main())
"""


def test_a_child_that_a_function_forks_ends_with_its_own_exit_code() -> None:
    """In the child this thread of a pool is the main one: Python's exit would wait for it."""
    run = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["done", "0"]
