"""A few seeds of the simulation, and its own parts. Long runs: ``make sim``, ``make twins``."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import pytest

from tests.sim.chunks import Twins
from tests.sim.loop import PROCESS, Process, SimLoop, Stuck
from tests.sim.nemesis import THEMES
from tests.sim.twins import TWINS

SURE = [
    "a tick is fired without compare-and-set",
    "a last will before the runners are gone",
    "neighbours of a death are charged",
]
# Of each kind of world: the law that its twins break, and what a run without effect says.
WORLDS = {
    "pausing": ("nothing of a pause starts: attempts", ", 0 pauses in force"),
    "expiring": ("what has", ", 0 jobs expired"),
    "acting": ("an act is exactly what was ordered: ", ", 0 jobs changed"),
    "limiting": ("limits hold: ", ", 0 jobs under limits"),
    "awaiting": ("waits hold: ", ", 0 jobs with an outcome"),
    "batching": ("batches hold: ", ", 0 attempts in calls"),
    "flowing": ("flows hold: ", ", 0 jobs that wait for others"),
    "reviving": ("flows hold: ", ", 0 jobs that came back"),
    "turning": ("turns hold: ", ", 0 others at most"),
    "calling": ("callers hold: ", ", 0 transactions"),
    "spawning": ("children hold: ", ", 0 jobs with children"),
}
OFTEN = {  # twins that `make test` plays, too; `make test-all`, the one that takes long
    "replies that come late are started": [pytest.mark.slow],
    "what has begun expires all the same": [],
    "a permit is taken in the queue": [],
    "the first end opens": [],
}
ROOT = Path(__file__).resolve().parents[2]


def twins_of(world: str) -> Twins:
    found: Twins = importlib.import_module(f"tests.sim.{world}").TWINS
    return found


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


def sound(*arguments: str) -> str:
    """Play seeds that hold every guarantee; return what was said of them."""
    done = run(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("first", "last", "effect"),
    [
        ("1", "3", "faults"),
        pytest.param("4", "12", "faults", marks=pytest.mark.slow),
        ("43", "43", "schedule changed"),
        ("37", "37", "last will"),
        ("3874", "3874", "host suspended"),  # rounding let a timer fire before its time
        ("21946", "21946", "database failed over"),  # twice in two seconds, with a clock set back
    ],
)
def test_some_seeds_hold_every_guarantee(first: str, last: str, effect: str) -> None:
    said = sound("tests.sim", first, last)
    assert ", 0 violations" in said
    assert effect in said


@pytest.mark.timeout(400)
def test_the_same_seed_gives_the_same_story() -> None:
    first = sound("tests.sim", "--story", "75")
    assert first.count("\n") > 100
    assert first == sound("tests.sim", "--story", "75")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("world", "first", "last"),
    [
        ("pausing", 8, 8),
        ("expiring", 1, 1),
        ("limiting", 1, 1),
        ("flowing", 1, 1),
        ("awaiting", 1, 1),
        ("batching", 1, 1),
        ("spawning", 1, 1),
        ("reviving", 1, 1),
        ("turning", 1, 1),
        ("calling", 1, 1),
        ("acting", 36, 36),  # the store's clock is set back
        pytest.param("pausing", 9, 9, marks=pytest.mark.slow),
        pytest.param("expiring", 2, 2, marks=pytest.mark.slow),
        pytest.param("limiting", 2, 3, marks=pytest.mark.slow),
        pytest.param("flowing", 2, 4, marks=pytest.mark.slow),
        pytest.param("awaiting", 2, 4, marks=pytest.mark.slow),
        pytest.param("batching", 2, 2, marks=pytest.mark.slow),
        pytest.param("spawning", 2, 2, marks=pytest.mark.slow),
        pytest.param("reviving", 2, 2, marks=pytest.mark.slow),
        pytest.param("turning", 2, 2, marks=pytest.mark.slow),
        pytest.param("calling", 2, 2, marks=pytest.mark.slow),
        pytest.param("acting", 4, 6, marks=pytest.mark.slow),
        # a job is discarded before its enqueue returns
        pytest.param("acting", 16, 16, marks=pytest.mark.slow),
    ],
)
def test_each_kind_of_world_keeps_its_law(world: str, first: int, last: int) -> None:
    said = sound(f"tests.sim.{world}", str(first), str(last))
    assert f"{last - first + 1} seeds, 0 violations" in said
    assert WORLDS[world][1] not in said


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("world", "twin"),
    [
        pytest.param(world, twin, marks=OFTEN.get(twin, [pytest.mark.long]))
        for world in WORLDS
        for twin in twins_of(world)
    ],
)
def test_a_kind_of_world_without_a_guard_is_noticed(world: str, twin: str) -> None:
    seed = twins_of(world)[twin][1]
    done = run(f"tests.sim.{world}", str(seed), str(seed + 200), twin)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f": {WORLDS[world][0]}" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_some_twins_are_caught() -> None:
    assert "NOT CAUGHT" not in sound("tests.sim.caught", *SURE)


def test_each_twin_has_a_theme_that_reaches_its_guard() -> None:
    assert {*SURE} <= set(TWINS)
    assert {twin.theme for twin in TWINS.values()} <= set(THEMES)


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
