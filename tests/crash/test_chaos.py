"""A short storm with a fixed plan on each store, and its verdict. Long ones: ``make chaos``."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.deeds import deeds_on
from tests.chaos.nemesis import phases

pytestmark = pytest.mark.xdist_group("whole machine")  # one after the other

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 14  # of faults
SEEDS = {"sqlite": 453, "postgres": 397}  # their plans change with the list of deeds
KINDS = 7  # of faults, or more, in each of these plans
LIMIT = 360.0  # with start, the wait until all has ended, and the verdict, on a busy machine


@pytest.mark.parametrize("has_small_disk", [True, False])
@pytest.mark.parametrize("store", SEEDS)
def test_the_plan_of_a_short_storm_has_faults_of_many_kinds(
    store: str, has_small_disk: bool
) -> None:
    there: Any = SimpleNamespace(
        server=store == "postgres" or None,
        disk=has_small_disk or None,
        messenger=None,
        clock=None,
    )
    planned = phases(random.Random(SEEDS[store]), SECONDS, list(deeds_on(there)))
    kinds = {step.name for phase in planned for step in phase.steps}
    assert len(kinds) >= KINDS, kinds


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
        str(SEEDS[store]),
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
