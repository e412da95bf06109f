"""Where an attempt is: its loop and its threads are asked, and what does not answer is told."""

from __future__ import annotations

import asyncio
import os

import msgspec

from outlast.model.job import SHELL_TASK
from outlast.runner.protocol import ShowStack, StackShown
from outlast.worker.base import SHOW_SECONDS_MAX, WAITS
from outlast.worker.runners.control import (
    COMMAND,
    PROCESSES_MAX,
    SILENT,
    Process,
    _lines,
    describe_session,
)
from tests.unit.worker.runners.pool_kit import Bench, FakeRunner, shared
from tests.unit.worker.runners.test_pool_limits import dump_of

STACK = dump_of(1).strip()


async def found(bench: Bench, token: int, runner: FakeRunner | None = None, *says: object) -> str:
    """Return what is found while the runner says this."""
    look = asyncio.create_task(bench.pool.control.find_stack(token))
    await asyncio.sleep(0)
    for frame in says:
        assert runner is not None
        runner.says(frame)
    await bench.clock.run_for(SHOW_SECONDS_MAX + 1.0)
    return await look


async def test_the_stack_of_the_coroutine_comes_before_those_of_the_threads() -> None:
    bench = await Bench().ready()
    bench.place(shared(1), shared(2))
    runner = bench.runner(1)
    runner.dump = f"{dump_of(2)}\n\n{dump_of(1)}"
    awaits = dump_of(1).replace("hangs", "awaits")
    text = await found(bench, 1, runner, StackShown(99, "of no attempt"), StackShown(1, awaits))
    assert [" in awaits" in part for part in text.split("\n\n")] == [True, False, False]
    assert (runner.dumps, runner.sent[-1]) == (1, ShowStack(1))
    assert runner.kills == []
    assert bench.in_flight.running[1].stack == ""  # a later limit shows where it was then
    assert await found(bench, 1, runner, StackShown(1, "")) == f"{STACK}\n\n{dump_of(2).strip()}"


async def test_a_loop_that_does_not_turn_is_not_waited_for_longer() -> None:
    bench = await Bench().ready()
    bench.place(shared(1))
    bench.runner(1).dump = dump_of(1)
    assert await found(bench, 1) == STACK


async def test_what_shows_nothing_is_told() -> None:
    bench = await Bench().ready()
    bench.place(shared(1), shared(2))
    runner, control = bench.runner(1), bench.pool.control
    bench.runner(2).tokens.discard(2)
    assert await control.find_stack(2) == WAITS
    assert await control.find_stack(99) == ""
    assert (await found(bench, 1)).startswith(SILENT)
    running = bench.in_flight.running[1]
    running.claimed = msgspec.structs.replace(running.claimed, task=SHELL_TASK)
    runner.dumps = 0
    assert (await found(bench, 1)).startswith(COMMAND)
    assert runner.dumps == 0


def test_the_processes_of_a_session_are_a_bounded_tree() -> None:
    mine = describe_session(os.getsid(0))
    assert f"{os.getpid()} " in mine
    assert len(mine.splitlines()) <= PROCESSES_MAX + 1
    assert describe_session(1 << 23) == ""
    found = [
        Process(3, 2, "S", "sleep"),
        Process(2, 1, "T", "bash"),
        Process(7, 1, "R", "cat"),
        Process(8, 9, "?", "odd"),
        Process(9, 8, "Z", "circle"),
    ]
    assert list(_lines(found)) == [
        "2 bash (stopped by a signal)",
        "  3 sleep (sleeping)",
        "7 cat (running)",
    ]
