"""A short storm with a fixed plan on each store, and its verdict. Long ones: ``make chaos``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("whole machine")  # one after the other

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 14  # of faults
SEEDS = {"sqlite": "138", "postgres": "11"}  # seven and eight kinds of faults
LIMIT = 360.0  # with start, the wait until all has ended, and the verdict, on a busy machine


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("store", SEEDS)
def test_a_short_storm_loses_nothing_and_accepts_nothing_stale(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if store == "postgres":
        request.getfixturevalue("pg_server")  # skips where there is none; this run has its own
    arguments = [
        store,
        "--seconds",
        str(SECONDS),
        "--seed",
        SEEDS[store],
        "--folder",
        str(tmp_path),
    ]
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    try:
        said, _ = running.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGTERM)  # it ends all that it has started
        said, _ = running.communicate()
    assert running.returncode == 0, said
    assert (
        "lost: 0, accepted stale ends: 0, accepted stale saves: 0, doubled completions: 0" in said
    )
