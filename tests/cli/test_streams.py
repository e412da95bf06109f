"""Every command with its standard streams closed, full or without a reader, and Ctrl-C at any time.

`test_reading.py` shows a reader that goes away in the middle, with an interpreter of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.assault import SECONDS, in_turn
from tests.cli.attacks import OF_A_LIMIT, OF_A_SCHEDULE, OF_AN_ACTION, Attack
from tests.cli.conftest import environment
from tests.cli.forked import GONE, ForkServer
from tests.cli.rows import populated

PATIENCE = 600.0  # seconds: more than any test waits
SAYS_NO = {
    "cancel",
    "requeue",
    "flow skip",
    "pause",
    "stack",
    *OF_A_LIMIT,
    *OF_A_SCHEDULE,
    *OF_AN_ACTION,
}  # on stderr, to what is named here
Ended = subprocess.CompletedProcess[str]


@pytest.fixture
def run(fork_server: ForkServer, folder: Path, sqlite_url: str) -> Callable[..., Ended]:
    """Return what runs a command on a store with a job of every kind."""
    populated(sqlite_url)

    def run(attack: Attack, **odd: Any) -> Ended:
        at = len(attack.name.split())
        words = [*attack.words[:at], "--url", sqlite_url, *attack.words[at:]]
        return fork_server.run(words, cwd=folder, env=environment(), timeout=SECONDS, **odd)

    return run


ALL = "no streams at all"
STREAMS: dict[str, dict[str, str | None]] = {
    "no stdin": {"stdin": None},
    "no stdout": {"stdout": None},
    "no stderr": {"stderr": None},
    ALL: {"stdin": None, "stdout": None, "stderr": None},
    "no reader of errors": {"stderr": GONE},
    "errors to a full disk": {"stderr": "/dev/full"},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name != ALL else []) for name in STREAMS],
)
def test_each_command_does_its_work_with(run: Callable[..., Ended], name: str) -> None:
    wrong = {}
    for attack in in_turn([*STREAMS].index(name)):
        if attack.endless:
            continue
        odd = run(attack, streams=STREAMS[name])
        # an application that prints as it is imported fails where that has no place
        told = {0, 1, 2, 141} if attack.name in {"enqueue", "rehearse"} else {0, 1}
        if "Traceback" in odd.stderr or odd.returncode not in told:
            wrong[str(attack)] = (odd.returncode, odd.stderr)
    assert wrong == {}


@pytest.mark.parametrize(
    ("stdout", "code", "words"),
    [
        ("/dev/full", 74, "the answer cannot be written: No space left on device"),
        pytest.param(GONE, 141, "", marks=pytest.mark.slow),
    ],
)
def test_each_command_whose_answer_has_no_place_says_so(
    run: Callable[..., Ended], stdout: str, code: int, words: str
) -> None:
    wrong = {}
    for attack in in_turn(len(stdout)):
        odd = None if attack.endless else run(attack, streams={"stdout": stdout})
        if odd is None or attack.name in SAYS_NO:
            continue
        if odd.returncode != code or words not in odd.stderr or "Traceback" in odd.stderr:
            wrong[str(attack)] = (odd.returncode, odd.stderr)
    assert wrong == {}


@pytest.mark.slow
def test_a_new_interpreter_without_any_stream_does_its_work(folder: Path, sqlite_url: str) -> None:
    """What is opened first has the number of a standard stream then."""
    populated(sqlite_url)
    script = 'exec "$@" <&- >&- 2>&-'
    outlast = [sys.executable, "-m", "outlast.cli"]
    for words in (["jobs"], ["enqueue", "shop:app", "nap", "0"], ["doctor", "shop:app"]):
        done = subprocess.run(
            ["sh", "-c", script, "sh", *outlast, *words, "--url", sqlite_url],
            cwd=folder,
            env=environment(),
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, words
    path = sqlite_url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def interrupt(pid: int, *, after: float) -> None:
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.005, 0.02, 0.05])
def test_each_command_is_interrupted_at_any_moment(run: Callable[..., Ended], after: float) -> None:
    wrong = {}
    for attack in in_turn(round(after * 1000)):
        ended = run(attack, meanwhile=functools.partial(interrupt, after=after))
        lost = ended.stderr.count("Exception ignored in")  # by Python, in callbacks of imports
        shown = ended.stderr.count("Traceback") > lost
        if ended.returncode not in {0, 1, 130, -signal.SIGINT} or shown:
            wrong[str(attack)] = (ended.returncode, ended.stderr)
    assert wrong == {}


def waits_for_lock(pid: int, path: str) -> None:
    """Return once a process has the file open."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            fds = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
            if path in fds:
                return
        time.sleep(0.001)
    raise AssertionError("it has not opened the file")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_command_that_waits_for_a_lock_is_interrupted(
    run: Callable[..., Ended], sqlite_url: str
) -> None:
    """At once, and not when the patience for the lock is at its end."""
    path = sqlite_url.removeprefix("sqlite:///")

    def meanwhile(pid: int) -> None:
        waits_for_lock(pid, path)
        interrupt(pid, after=0.1)

    wrong: dict[str, object] = {}
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA locking_mode = exclusive")
        file.execute("BEGIN EXCLUSIVE")
        for attack in in_turn(0):
            try:
                ended = run(attack, patience=PATIENCE, meanwhile=meanwhile)
            except TimeoutError:
                wrong[str(attack)] = "it goes on waiting"
                continue
            if ended.returncode not in {3, 130} or "Traceback" in ended.stderr:
                wrong[str(attack)] = (ended.returncode, ended.stderr)
    assert wrong == {}
