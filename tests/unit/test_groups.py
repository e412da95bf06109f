"""Tests of one group run in one process: the servers that they share are then started once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, pathlib, pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(6))
def test_it(number):
    (pathlib.Path(__file__).parent / os.environ["PYTEST_XDIST_WORKER"]).touch()
"""


def test_a_group_stays_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_group.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-n", "2", "--dist=loadgroup", "-c", "pytest.ini", "test_group.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # no other takes part
        capture_output=True,
        text=True,
        check=False,
    )
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert len(list(tmp_path.glob("gw*"))) == 1, "not the locked pytest: make .venv/.dev-installed"
