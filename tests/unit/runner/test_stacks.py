"""Stacks that name their attempt, as ``faulthandler`` prints them."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from outlast.runner import stacks as marks
from outlast.runner.stacks import call_marked, current_attempt, line_of, run_marked


def stacks_now() -> str:
    """Return what faulthandler prints of all threads, seen from here."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


async def look() -> str:
    return stacks_now()


async def test_a_coroutines_stack_names_its_attempt_and_its_line() -> None:
    stacks = await run_marked(12, look)
    assert current_attempt(stacks) == 12
    line = line_of(stacks, 12)
    assert line is not None
    assert "stacks_now" in line


def test_a_threads_stack_names_its_attempt_though_it_is_not_the_current_one() -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        leave.wait(30)

    thread = threading.Thread(target=call_marked, args=(7, wait))
    thread.start()
    assert inside.wait(30)
    stacks = stacks_now()
    leave.set()
    thread.join()
    assert current_attempt(stacks) is None
    line = line_of(stacks, 7)
    assert line is not None
    assert line.endswith(" in wait")  # the user's own, and not threading.py's


def test_the_users_line_counts_though_the_loop_still_starts_its_thread() -> None:
    held = (
        "Thread 0x2 (most recent call first):\n"
        '  File "/user/task.py", line 50 in hangs\n'
        f'  File "{marks.__file__}", line 5 in outlast_attempt_7\n'
    )
    loop = (
        "Current thread 0x1 (most recent call first):\n"
        f'  File "{threading.__file__}", line 327 in wait\n'
        f'  File "{threading.__file__}", line 969 in start\n'
        f'  File "{marks.__file__}", line 2 in outlast_attempt_7\n'
    )
    assert "line 50 in hangs" in (line_of(f"{held}\n{loop}", 7) or "")


def test_stacks_without_a_mark_name_no_attempt() -> None:
    stacks = stacks_now()
    assert current_attempt(stacks) is None
    assert line_of(stacks, 1) is None
    assert current_attempt("") is None


def test_of_two_dumps_the_last_counts() -> None:
    first = (
        'Current thread 0x1 (most recent call first):\n  File "a", line 1 in outlast_attempt_1\n'
    )
    last = first.replace("attempt_1", "attempt_2")
    assert current_attempt(f"{first}\n{last}") == 2


CRASH = """
import asyncio, ctypes, faulthandler
from outlast.runner import stacks as marks
from outlast.runner.stacks import run_marked
faulthandler.enable()
async def innocent():
    await asyncio.sleep(60)
async def culprit():
    await asyncio.sleep(0)
    ctypes.string_at(0)
async def main():
    await asyncio.gather(run_marked(3, innocent), run_marked(4, culprit), run_marked(5, innocent))
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_process_that_dies_of_a_null_pointer_names_its_culprit() -> None:
    died = subprocess.run(
        [sys.executable, "-c", CRASH],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGSEGV
    assert current_attempt(died.stderr) == 4
    line = line_of(died.stderr, 4)
    assert line is not None
    assert "string_at" in line


def test_an_invalid_mark_names_no_attempt() -> None:
    """A task may write into the file of its stacks; this must not end its worker."""
    stacks = 'Current thread 0x1\n  File "x", line 1 in outlast_attempt_'
    assert current_attempt(f"{stacks}{'9' * 5_000}\n") is None
    assert line_of(f"{stacks}{'9' * 5_000}\n", 9) is None
    assert current_attempt(f"{stacks}99\n") == 99
