"""The suite passes where the program that started it ignores signals, as `make test &` does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERRUPTED = "tests/unit/cli/test_loop.py::test_an_interrupt_while_the_loop_is_made_is_not_lost"
IN_THE_BACKGROUND = """
import signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sys.exit(subprocess.call(sys.argv[1:]))
"""


@pytest.mark.slow
def test_tests_that_interrupt_pass_where_interrupts_are_ignored() -> None:
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60"]
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND, *pytest, INTERRUPTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_no_signal_is_ignored_here() -> None:
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
    assert signal.SIG_IGN not in [signal.getsignal(number) for number in numbers]
