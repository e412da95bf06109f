"""What stands still is ended at its limit, and its report says at which line it stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.model.crash import CrashKind
from outlast.model.job import State
from tests.crash import stuck
from tests.crash.harness import Scene

STUCK = {"OUTLAST_TEST_APP": "tests.crash.stuck:app"}
SOURCE = Path(stuck.__file__).read_text().splitlines()


def line_with(words: str) -> str:
    """Return how a report names the line of tests/crash/stuck.py that says this."""
    (number,) = (n for n, line in enumerate(SOURCE, 1) if line.endswith(f"# the line of {words}"))
    return f'stuck.py", line {number} in '


@pytest.mark.parametrize(
    ("task", "kind", "stands"),
    [
        ("hangs_in_an_await", CrashKind.TIMEOUT, "hangs_in_an_await"),
        ("hangs_and_ignores", CrashKind.TIMEOUT, "hangs_in_an_await"),
        ("stalls", CrashKind.STALLED, "hangs_in_an_await"),
        ("hangs_in_a_call", CrashKind.TIMEOUT, "hangs_in_a_call"),
        ("looks_and_obeys", CrashKind.TIMEOUT, "looks_and_obeys"),
        ("loops_in_python", CrashKind.TIMEOUT, "loops_in_python"),
        ("hangs_in_c", CrashKind.TIMEOUT, "hangs_in_c"),
    ],
)
async def test_a_report_names_the_line_where_the_task_stood(
    sqlite_stage: Scene, task: str, kind: CrashKind, stands: str
) -> None:
    await sqlite_stage.worker(env=STUCK)
    job = await sqlite_stage.enqueue(task)
    assert (await sqlite_stage.ended(job)).state is State.DEAD
    (closed,) = await sqlite_stage.attempts(job)
    crash = closed.crash
    assert crash is not None
    assert (crash.kind, closed.charge) == (kind, "failure")
    assert line_with(stands) in (crash.stacks or "")
    assert line_with(stands) in crash.message


@pytest.mark.parametrize(
    ("task", "said"),
    [("looks_and_obeys", "it ran longer"), ("looks_and_goes_on", "did not stop when asked")],
)
async def test_a_plain_function_is_asked_with_the_reason_before_it_is_killed(
    sqlite_stage: Scene, task: str, said: str
) -> None:
    await sqlite_stage.worker(env=STUCK)
    job = await sqlite_stage.enqueue(task)
    assert (await sqlite_stage.ended(job)).state is State.DEAD
    assert [entry["reason"] for entry in sqlite_stage.entries("asked")] == ["timeout"]
    (closed,) = await sqlite_stage.attempts(job)
    assert closed.crash is not None
    assert said in closed.crash.message
