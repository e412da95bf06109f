"""examples/agent: killed at every step it calls no tool twice, and its approval waits a day."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.scene import ROOT

SECONDS = 540.0  # that it may take on a loaded machine; it takes half a minute


@pytest.mark.timeout(SECONDS + 20)
def test_no_kill_makes_the_assistant_call_a_tool_twice() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.agent"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("each run ended like the one without a crash") == 3
    for point in (
        "keep step plan",
        "enqueue use_tool",
        "keep step event approve",
        "keep step book",
    ):
        assert point in done.stdout
