"""Run the event loop of a command, and handle Ctrl-C while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

R = TypeVar("R")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_loop(
    main: Callable[[], Coroutine[Any, Any, R]], loop_factory: LoopFactory | None = None
) -> R:
    """Run a coroutine and return its result, as ``asyncio.run`` does.

    Ctrl-C cancels it between two callbacks of the loop. ``asyncio.run`` may do so inside a callback
    and cancel, for example, a future that is about to get its result. While the loop is created or
    closed, Ctrl-C is delayed. Raises KeyboardInterrupt once the coroutine has ended; a second
    Ctrl-C raises it at once. Signals that the process's parent has blocked are heard.
    """
    with (
        _masked("SIG_BLOCK", {signal.SIGINT}) as before,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        loop = runner.get_loop()
        task = loop.create_task(main())
        heard = before if threading.current_thread() is not threading.main_thread() else ()
        with _cancelled_by_interrupt(loop, task), _masked("SIG_SETMASK", heard):
            try:
                return loop.run_until_complete(task)
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None


@contextlib.contextmanager
def _masked(how: str, numbers: Iterable[int]) -> Iterator[Iterable[int]]:
    """Change the mask of blocked signals until the end of the block; yield the earlier mask."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield []
        return
    before = signal.pthread_sigmask(getattr(signal, how), numbers)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _cancelled_by_interrupt(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]
) -> Iterator[None]:
    """Cancel the task at the first Ctrl-C, unless Ctrl-C is ignored or handled already."""
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if len(interrupts) > 1:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
