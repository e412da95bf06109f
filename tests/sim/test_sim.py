"""A few seeds of the simulation, and its own parts. Long runs: ``make sim``, ``make twins``."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import pytest

from tests.sim.acting import KNOWN as ACTING_KNOWN
from tests.sim.acting import TWINS as ACTING_TWINS
from tests.sim.caught import KNOWN, REACHED_BY
from tests.sim.expiring import KNOWN as EXPIRING_KNOWN
from tests.sim.expiring import TWINS as EXPIRING_TWINS
from tests.sim.limiting import KNOWN as LIMITING_KNOWN
from tests.sim.limiting import TWINS as LIMITING_TWINS
from tests.sim.loop import PROCESS, Process, SimLoop, Stuck
from tests.sim.nemesis import THEMES
from tests.sim.pausing import KNOWN as PAUSING_KNOWN
from tests.sim.pausing import TWINS as PAUSING_TWINS
from tests.sim.twins import TWINS

SURE = [
    "a tick is fired without compare-and-set",
    "a last will before the runners are gone",
    "a tick need not be later than the one before",
    "neighbours of a death are charged",
    "presence judged in one look",
    "runners without a tether",
]
ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation in a process of its own: what it kills is never unwound."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(400)
def test_some_seeds_hold_every_guarantee() -> None:
    done = run("tests.sim", "1", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 seeds, 0 violations" in done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", ["43", "143", "443"])
def test_schedules_hold_every_guarantee(seed: str) -> None:
    done = run("tests.sim", seed, seed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "schedule changed" in done.stdout


@pytest.mark.timeout(400)
def test_last_wills_hold_every_guarantee() -> None:
    done = run("tests.sim", "37", "37")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "last will" in done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", ["7", "75"], ids=["suspends", "presence"])
def test_the_same_seed_gives_the_same_story(seed: str) -> None:
    first, second = run("tests.sim", "--story", seed), run("tests.sim", "--story", seed)
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.count("\n") > 100
    assert first.stdout == second.stdout


@pytest.mark.timeout(400)
def test_nothing_of_a_pause_starts_once_all_have_acknowledged_it() -> None:
    done = run("tests.sim.pausing", "8", "9")  # where faults leave most pauses to be acknowledged
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 seeds, 0 violations" in done.stdout
    assert ", 0 pauses in force" not in done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("twin", PAUSING_TWINS)
def test_a_pause_without_a_guard_is_noticed(twin: str) -> None:
    first = PAUSING_KNOWN[twin]
    done = run("tests.sim.pausing", str(first), str(first + 60), twin)
    assert ": nothing of a pause starts: attempts" in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(400)
def test_what_has_expired_never_begins() -> None:
    done = run("tests.sim.expiring", "1", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 seeds, 0 violations" in done.stdout
    assert ", 0 jobs expired" not in done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("twin", EXPIRING_TWINS)
def test_an_expiry_without_a_guard_is_noticed(twin: str) -> None:
    first = EXPIRING_KNOWN[twin]
    done = run("tests.sim.expiring", str(first), str(first + 200), twin)
    assert done.returncode == 1, done.stdout + done.stderr
    laws = (
        "what has expired never begins",
        "what has begun expires no more",
        "what has expired holds no key",
        "what has expired is taken back",
    )
    assert any(f": {law}" in done.stdout for law in laws), done.stdout + done.stderr


@pytest.mark.timeout(400)
def test_permits_count_what_runs() -> None:
    done = run("tests.sim.limiting", "1", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 seeds, 0 violations" in done.stdout
    assert ", 0 jobs under limits" not in done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("twin", LIMITING_TWINS)
def test_a_limit_without_a_guard_is_noticed(twin: str) -> None:
    first = LIMITING_KNOWN[twin]
    done = run("tests.sim.limiting", str(first), str(first + 60), twin)
    assert done.returncode == 1, done.stdout + done.stderr
    laws = ("permits count what runs", "no stream is forgotten")
    assert any(f": {law}" in done.stdout for law in laws), done.stdout + done.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("first", "last"), [(4, 6), (16, 16), (36, 36)])
def test_a_bulk_action_does_exactly_what_was_ordered(first: int, last: int) -> None:
    # 16: a job is discarded before its enqueue returns; 36: the store's clock is set back
    done = run("tests.sim.acting", str(first), str(last))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{last - first + 1} seeds, 0 violations" in done.stdout
    assert ", 0 jobs changed" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("twin", ACTING_TWINS)
def test_a_bulk_action_without_a_guard_is_noticed(twin: str) -> None:
    first = ACTING_KNOWN[twin]
    done = run("tests.sim.acting", str(first), str(first + 60), twin)
    assert ": an act is exactly what was ordered: " in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(400)
def test_some_twins_are_caught() -> None:
    done = run("tests.sim.caught", *SURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT CAUGHT" not in done.stdout


def test_each_twin_has_a_theme_that_reaches_its_guard() -> None:
    assert set(REACHED_BY) == set(TWINS) == set(KNOWN) >= {*SURE}
    assert set(REACHED_BY.values()) <= set(THEMES)


def test_a_suspended_host_does_not_see_time_pass() -> None:
    told: list[tuple[str, float]] = []

    async def wait(loop: SimLoop, name: str) -> None:
        try:
            async with asyncio.timeout(20):
                await asyncio.sleep(60)
        except TimeoutError:
            told.append((name, loop.now - 1000))

    async def story(loop: SimLoop) -> None:
        asleep, awake = Process("asleep"), Process("awake")
        waits = [in_process(each, loop, wait(loop, each.name)) for each in (asleep, awake)]
        await asyncio.sleep(10)
        asleep.stops += 1
        loop.oversleep([asleep], 100)
        await asyncio.sleep(100)
        asleep.stops -= 1
        await asyncio.wait(waits)

    lived(story)
    assert told == [("awake", 20), ("asleep", 120)]


def in_process(process: Process, loop: SimLoop, coroutine: object) -> asyncio.Task[object]:
    context = copy_context()
    context.run(PROCESS.set, process)
    return loop.create_task(coroutine, context=context)  # type: ignore[arg-type]


def lived(story: object) -> None:
    loop = SimLoop(1)
    try:
        loop.run_until_complete(story(loop))  # type: ignore[operator]
    finally:
        for task in asyncio.all_tasks(loop):  # what was killed or is stuck stays pending on purpose
            setattr(task, "_log_destroy_pending", False)  # noqa: B010
        loop.close()


def test_virtual_time_jumps_and_a_stopped_process_waits() -> None:
    told: list[tuple[str, float]] = []

    async def walk(loop: SimLoop, name: str) -> None:
        for _ in range(2):
            await asyncio.sleep(60)
            told.append((name, loop.time() - 1000))

    async def story(loop: SimLoop) -> None:
        stopped, free = Process("stopped"), Process("free")
        walks = [in_process(each, loop, walk(loop, each.name)) for each in (stopped, free)]
        await asyncio.sleep(30)
        stopped.stops += 1
        await asyncio.sleep(170)
        stopped.stops -= 1
        await asyncio.wait(walks)

    lived(story)
    assert told == [("free", 60), ("free", 120), ("stopped", 200), ("stopped", 260)]


def test_a_killed_process_never_runs_again_not_even_to_clean_up() -> None:
    told: list[str] = []
    kept: list[object] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            told.append("unwound")

    async def story(loop: SimLoop) -> None:
        process = Process("killed")
        kept.append(in_process(process, loop, hang()))
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(100)

    lived(story)
    assert told == []


def test_a_world_that_can_make_no_progress_is_a_violation() -> None:
    async def story(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(Stuck):
        lived(story)
