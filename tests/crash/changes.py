"""Tasks that change their process, and tasks that look at it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outlast
from tests.crash.tasks import app

tasks = app.tasks
_HOW = os.environ.get("OUTLAST_TEST_STACKS")


def _change_the_process() -> None:
    os.umask(0o077)
    os.chdir("/")
    os.environ["LEFT_BEHIND"] = "hunter4"
    os.environ.pop("OUTLAST_TEST_JOURNAL", None)
    os.close(0)
    signal.alarm(1)


def _look_at_the_process() -> list[object]:
    mask = os.umask(0)
    os.umask(mask)
    timer = signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0)
    left = [name for name in ("LEFT_BEHIND", "OUTLAST_TEST_JOURNAL") if name in os.environ]
    term = str(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    return [os.getpid(), os.getcwd(), mask, left, timer, Path("/proc/self/fd/0").exists(), term]


@app.task
def changes_the_process() -> list[object]:
    before = _look_at_the_process()
    _change_the_process()
    return before


@app.task
def looks_at_the_process() -> list[object]:
    return _look_at_the_process()


@app.task
async def changes_the_process_async() -> list[object]:
    before = _look_at_the_process()
    _change_the_process()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return before


@app.task
async def looks_at_the_process_async() -> list[object]:
    return _look_at_the_process()


def _logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as for plain functions."""

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


@app.task(backoff=0)
@_logged
async def is_wrapped_for_plain_functions() -> None:
    """Be never awaited."""


@app.task
def lists_what_children_inherit() -> list[str]:
    """As those of os.system, which closes nothing."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the descriptor of this very list
            if fd > 2 and os.get_inheritable(fd):
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found


def _look_at_the_threads() -> tuple[int, str]:
    from threading import get_ident

    return os.getpid(), get_ident.__module__


@app.task
def looks_at_the_threads() -> tuple[int, str]:
    """By a save, as any plain function may: with greenlets for threads it would wait for itself."""
    outlast.current().save_sync(1)
    return _look_at_the_threads()


@app.task
def patches_the_threads() -> tuple[int, str]:
    before = _look_at_the_threads()
    importlib.import_module("gevent.monkey").patch_all()
    return before


@app.task
async def patches_the_threads_async() -> tuple[int, str]:
    return patches_the_threads.fn()


@app.task
def takes_the_stacks(how: str) -> None:
    if how == "disable":
        faulthandler.disable()
    else:
        faulthandler.enable(file=2)


@app.task(retries=0)
def dereferences_null_there() -> None:
    ctypes.string_at(0)


if _HOW in ("enable", "disable"):  # of the application itself
    takes_the_stacks.fn(_HOW)
