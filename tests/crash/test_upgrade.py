"""A short rehearsal of an upgrade and of its way back, on each store. An hour of it:
``make upgrade SECONDS=3600``."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.crash.test_chaos import NOTHING_WRONG, ROOT

LIMIT = 330.0  # on a busy machine
pytestmark = [pytest.mark.xdist_group("whole machine"), pytest.mark.timeout(LIMIT + 20)]

SECONDS = 5  # of faults, and more while a stage is not over
SEED = 1


def rehearse(store: str, *more: str) -> tuple[int, str]:
    """Return the exit code and what was said."""
    plan = [store, "--seconds", str(SECONDS), "--seed", str(SEED), "--workers", "2"]
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.upgrade", *plan, *more],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = running.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGTERM)  # it ends all that it has started
        said, _ = running.communicate()
    return running.returncode, said


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_upgrade_and_its_way_back_lose_nothing_and_accept_nothing_stale(
    store: str, request: pytest.FixtureRequest
) -> None:
    if store == "postgres":
        request.getfixturevalue("pg_server")  # skips where there is none; this run has its own
    code, said = rehearse(store)
    assert code == 0, said
    assert f"{NOTHING_WRONG}, other violations: 0" in said
    assert "applied 0" in said, "it has migrated"


@pytest.mark.long
def test_a_value_that_the_old_release_cannot_read_is_a_violation_that_says_so() -> None:
    code, said = rehearse("sqlite", "--break")
    assert code == 1, said
    assert "UNREADABLE job" in said
    assert "cannot be read: encoded as newer" in said
