"""The position of a waiting coroutine, written as a stack that names its attempt."""

from __future__ import annotations

import asyncio
from types import coroutine

from outlast.runner.stacks import FRAMES_MAX, line_of, own_first, run_marked, stack_of


async def shown(inner, turns: int = 3) -> str:
    """Let it run until it waits; return its stack."""
    task = asyncio.create_task(run_marked(7, lambda: inner))
    for _ in range(turns):
        await asyncio.sleep(0)
    stack = stack_of(task)
    task.cancel()
    await asyncio.wait([task])
    return stack


async def outer(inner) -> None:
    await inner


async def sleeps() -> None:
    await asyncio.sleep(600)


async def test_the_innermost_line_comes_first_and_the_users_own_is_named():
    stack = await shown(outer(sleeps()))
    names = [line.rsplit(" in ", 1)[1] for line in stack.splitlines()[1:]]
    assert names == ["sleep", "sleeps", "outer", "outlast_attempt_7"]
    line = line_of(stack, 7)
    assert line is not None
    assert line.endswith(" in sleeps")


async def test_a_task_that_is_awaited_is_followed():
    async def starts_another() -> None:
        await asyncio.create_task(sleeps())

    assert (line_of(await shown(starts_another()), 7) or "").endswith(" in sleeps")


async def test_generators_are_followed_too():
    @coroutine
    def old():
        yield from asyncio.sleep(600).__await__()

    stack = await shown(outer(old()))
    assert " in old" in stack


async def test_an_endless_chain_is_cut_and_still_names_its_attempt():
    async def deeper(left: int) -> None:
        if left:
            await deeper(left - 1)
        await asyncio.sleep(600)

    stack = await shown(deeper(3 * FRAMES_MAX))
    assert len(stack.splitlines()) == FRAMES_MAX + 1
    assert (line_of(stack, 7) or "").endswith(" in deeper")


def test_two_tasks_that_wait_for_each_other_cause_no_endless_loop():
    tasks: list[asyncio.Task[None]] = []

    async def waits_for(index: int) -> None:
        await tasks[index]

    async def deadlock() -> str:
        tasks.extend(asyncio.create_task(waits_for(1 - index)) for index in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return stack_of(tasks[0])

    loop = asyncio.new_event_loop()  # of its own: such tasks cannot even be cancelled
    assert " in waits_for" in loop.run_until_complete(deadlock())
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


async def test_an_ended_task_has_no_stack():
    task = asyncio.create_task(run_marked(7, asyncio.sleep, (0,)))
    await task
    assert stack_of(task) == ""


def test_the_attempts_own_stack_comes_first():
    other = 'Thread 0x1 (most recent call first):\n  File "a", line 1 in f'
    own = 'Thread 0x2 (most recent call first):\n  File "b", line 2 in outlast_attempt_7'
    assert own_first(f"{other}\n\n{own}\n", 7) == f"{own}\n\n{other}"
    assert own_first("", 7) == ""
