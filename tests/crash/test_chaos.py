"""A short storm with a fixed plan on each store, and its verdict. Long ones: ``make chaos``, and
``make hosts`` where workers and servers are on hosts of their own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import psutil
import pytest

from harness import namespaces
from harness.servers import PostgresServer
from tests.chaos.deeds import deeds_on
from tests.chaos.host_deeds import deeds_between
from tests.chaos.nemesis import phases
from tests.chaos.run import MARK
from tests.conformance.kit import eventually

pytestmark = pytest.mark.xdist_group("whole machine")  # one after the other

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 14  # of faults
SEEDS = {"sqlite": 453, "postgres": 397}  # their plans change with the list of deeds
KINDS = 7  # of faults, or more, in each of these plans
LIMIT = 360.0  # with start, the wait until all has ended, and the verdict, on a busy machine


Running: TypeAlias = subprocess.Popen[str]
NOTHING_WRONG = "lost: 0, accepted stale ends: 0, accepted stale saves: 0, doubled completions: 0"


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
    assert NOTHING_WRONG in storm(store, SECONDS, SEEDS[store], tmp_path)


def start(store: str, seconds: float, seed: int, folder: Path, *more: str) -> Running:
    arguments = [store, "--seconds", str(seconds), "--seed", str(seed), "--folder", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *arguments, *more],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )


def storm(store: str, seconds: float, seed: int, folder: Path, *more: str) -> str:
    """Let a storm rage; return what was said of it."""
    running = start(store, seconds, seed, folder, *more)
    try:
        said, _ = running.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGTERM)  # it ends all that it has started
        said, _ = running.communicate()
    assert running.returncode == 0, said
    return said


# --- where all are on hosts of their own ------------------------------------------------------

APART_SECONDS = 20
APART_SEED = 5530


def test_the_plan_of_a_short_storm_between_hosts_has_a_failover_among_other_kinds() -> None:
    planned = phases(random.Random(APART_SEED), APART_SECONDS, list(deeds_between()))
    kinds = {step.name for phase in planned for step in phase.steps}
    assert len(kinds) >= KINDS, kinds
    assert {"primary powered off", "host powered off", "packets swallowed"} <= kinds


@pytest.mark.timeout(LIMIT + 60)
def test_a_short_storm_between_hosts_loses_nothing_and_accepts_nothing_stale(
    tmp_path: Path, pg_server: PostgresServer
) -> None:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    said = storm("hosts", APART_SECONDS, APART_SEED, tmp_path)
    assert NOTHING_WRONG in said
    assert "replication, 0 failovers" not in said


async def test_nothing_is_left_of_hosts_whose_run_is_killed(
    tmp_path: Path, pg_server: PostgresServer
) -> None:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    running = start("hosts", 60, 1, tmp_path)
    try:
        assert await eventually(lambda: are_there(tmp_path.glob("worker-*.log")), LIMIT)
    finally:
        running.kill()
        running.communicate()
    assert await eventually(lambda: are_there([] if marked(tmp_path) else [tmp_path]), LIMIT)


async def are_there(paths: Iterable[Path]) -> bool:
    return any(paths)


def marked(folder: Path) -> list[int]:
    """Return the processes of the run in this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(folder.resolve()):
                found.append(process.pid)
    return found
