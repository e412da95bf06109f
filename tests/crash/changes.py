"""Tasks that change their process, and tasks that look at it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.crash.tasks import app

tasks = app.tasks


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
