"""Attempts share an asyncio task one after the other, as long as none of them can notice."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.base.config import TASK_REUSE_VARIABLE
from outlast.errors import ConfigError
from outlast.model.lifecycle import OutcomeKind
from outlast.runner import task_reuse
from outlast.runner.task_reuse import RUNS_MAX
from tests.cases import each_case
from tests.unit.runner.execute_kit import Bench, as_task
from tests.unit.worker.worker_kit import claimed

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = re.findall(
    r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()
)
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"

BOUND = contextvars.ContextVar("bound", default="nothing")
LIST: contextvars.ContextVar[list[str]] = contextvars.ContextVar("list")
kept: list[Any] = []


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    kept.clear()
    bench.executor.close()


async def ends(bench: Bench, count: int) -> list[OutcomeKind]:
    return [end.outcome.kind for end in await bench.ends(count)]


def start(bench: Bench, *names: str) -> None:
    bench.executor.start([claimed(token, name) for token, name in enumerate(names, 1)])


async def test_attempts_that_wait_for_nothing_share_a_task_under_a_name_of_their_own(bench):
    seen: list[tuple[int, str]] = []

    @bench.app.task
    async def small() -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append((id(task), task.get_name()))

    start(bench, *["small"] * 3)
    assert await ends(bench, 3) == [OutcomeKind.COMPLETED] * 3
    assert len({number for number, _ in seen}) == 1
    assert [name for _, name in seen] == ["job 1", "job 2", "job 3"]


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


LEFTOVERS: dict[str, Callable[[], object]] = {
    "a reference": lambda: kept.append(me()),
    "a weak reference": lambda: kept.append(weakref.ref(me(), lambda _: None)),
    "a callback": lambda: me().add_done_callback(kept.append),
    "a wish to cancel": lambda: me().cancel(),
    "a wish taken back": lambda: (me().cancel(), me().uncancel()),
    "an attribute": lambda: setattr(me(), "session", "of other code"),
    "a variable": lambda: BOUND.set("something"),
}


@pytest.mark.parametrize("what", LEFTOVERS)
async def test_no_attempt_sees_what_another_left_on_its_task_or_context(bench, what):
    """A session that is keyed by the task, for one, would be committed by the next job."""
    found: list[Any] = []

    @bench.app.task
    async def leaves() -> None:
        LEFTOVERS[what]()

    @bench.app.task
    async def looks() -> None:
        await asyncio.sleep(0)  # a pending cancellation would end it here
        found.append((me() in kept, [ref() is me() for ref in kept if callable(ref)]))
        assert not hasattr(me(), "session")
        found.append(BOUND.get())

    start(bench, "leaves", "looks")
    assert await ends(bench, 2) == [OutcomeKind.COMPLETED] * 2
    inherited, bound = found
    assert inherited[0] is False
    assert True not in inherited[1]
    assert bound == "nothing"
    if what == "a callback":
        assert len(kept) == 1, "called at the end of its attempt"


@each_case("plain", [False, True])
async def test_attempts_find_the_context_in_which_the_executor_was_made(plain):
    """Not the context of their starter: in process that is an attempt that has just ended."""
    found: list[str] = []
    BOUND.set("by the lifespan")
    bench = Bench()
    BOUND.set("by other code")

    def looks() -> None:
        found.append(BOUND.get())

    as_task(bench, looks, plain=plain)
    start(bench, "looks")
    assert await ends(bench, 1) == [OutcomeKind.COMPLETED]
    assert found == ["by the lifespan"]
    bench.executor.close()


async def test_an_equal_context_value_still_counts_as_changed():
    former: list[str] = []
    found: list[bool] = []
    LIST.set(former)
    bench = Bench()

    @bench.app.task
    async def leaves() -> None:
        LIST.set([])

    @bench.app.task
    async def looks() -> None:
        found.append(LIST.get() is former)

    start(bench, "leaves", "looks")
    assert await ends(bench, 2) == [OutcomeKind.COMPLETED] * 2
    assert found == [True]
    bench.executor.close()


async def test_a_task_factory_of_the_application_need_not_know_of_contexts(bench):
    loop = asyncio.get_running_loop()

    @bench.app.task
    async def small() -> None:
        pass

    loop.set_task_factory(lambda loop, coroutine: asyncio.Task(coroutine, loop=loop))
    try:
        start(bench, "small")
        assert await ends(bench, 1) == [OutcomeKind.COMPLETED]
    finally:
        loop.set_task_factory(None)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python 3.12 has them")
async def test_lanes_begun_together_are_released_and_name_their_attempts(bench):
    loop = asyncio.get_running_loop()
    found: list[bool] = []

    @bench.app.task
    async def leaves() -> None:
        await asyncio.sleep(0)
        kept.append(me())

    @bench.app.task
    async def looks() -> None:
        found.append(me() in kept)

    loop.set_task_factory(vars(asyncio)["eager_task_factory"])
    try:
        start(bench, "looks", "leaves", "looks", "leaves", "looks")
        assert await ends(bench, 5) == [OutcomeKind.COMPLETED] * 5
    finally:
        loop.set_task_factory(None)
    assert found == [False] * 3
    async with asyncio.timeout(60):
        while bench.executor._reused_tasks._tasks:
            await asyncio.sleep(0)


async def test_closing_a_lane_ends_no_other_attempt(bench):
    """As a closing loop does with its tasks: no attempt may begin then."""
    ran_in: list[asyncio.Task[Any]] = []

    @bench.app.task
    async def waits() -> None:
        kept.append(me().get_coro())
        await asyncio.Event().wait()

    @bench.app.task
    async def small() -> None:
        ran_in.append(me())

    start(bench, "waits")
    while not kept:
        await asyncio.sleep(0)
    bench.executor.start([claimed(2, "small")])
    kept[0].close()
    assert await ends(bench, 2) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
    assert ran_in != [me()]


async def test_a_waiting_attempt_does_not_delay_others():
    """Some wait for others that are behind them in the line."""
    begun: list[int] = []
    everybody = asyncio.Event()
    many = 3 * RUNS_MAX
    bench = Bench(slots=many)

    @bench.app.task
    async def waits() -> None:
        begun.append(outlast.current().token)
        if len(begun) == many:
            everybody.set()
        await everybody.wait()

    start(bench, *["waits"] * many)
    assert await ends(bench, many) == [OutcomeKind.COMPLETED] * many
    assert begun == sorted(begun)
    bench.executor.close()


async def test_no_more_begin_than_there_are_slots_and_ends_are_sent_before(bench):
    """Its worker relies on both: who has not begun is not charged when the process dies."""
    begun: list[int] = []
    untold: list[int] = []
    gate = asyncio.Event()

    @bench.app.task
    async def waits() -> None:
        begun.append(outlast.current().token)
        untold.append(len(begun) - bench.link.sent)
        if len(begun) % 3 == 0:
            await gate.wait()

    start(bench, *["waits"] * 40)
    while len(begun) < 12:  # every third waits, and so the fourth of these fills the last slot
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == list(range(1, 13))
    gate.set()
    assert await ends(bench, 40) == [OutcomeKind.COMPLETED] * 40
    assert begun == list(range(1, 41))
    assert max(untold) <= 4


async def test_none_begins_once_ends_are_no_longer_told(bench):
    """Its worker would take one for not begun: as many as there are slots seem to be before it."""
    begun: list[int] = []
    gate = asyncio.Event()

    @bench.app.task
    async def waits() -> None:
        begun.append(outlast.current().token)
        await gate.wait()

    start(bench, *["waits"] * 12)
    while len(begun) < 4:
        await asyncio.sleep(0)
    bench.link.tells = False
    gate.set()
    assert await ends(bench, 4) == [OutcomeKind.COMPLETED] * 4
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == [1, 2, 3, 4]


async def test_a_lane_yields_to_the_loop_regularly(bench):
    turns: list[int] = []

    @bench.app.task
    async def small() -> None:
        turns.append(turn)

    turn = 0
    start(bench, *["small"] * (3 * RUNS_MAX))
    while len(bench.link.ends) < 3 * RUNS_MAX:
        await asyncio.sleep(0)
        turn += 1
    assert max(turns.count(each) for each in turns) == RUNS_MAX


async def test_queued_attempts_run_and_can_be_stopped_before_they_begin(bench):
    @bench.app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    start(bench, "waits", "waits", "waits")
    assert all(bench.executor.runs(token) for token in (1, 2, 3))
    bench.executor.stop(3, "drain")
    bench.executor.stop(3, "timeout")
    assert await ends(bench, 1) == [OutcomeKind.RELEASED], "the first reason stays"
    assert [bench.executor.runs(token) for token in (1, 2, 3)] == [True, True, False]
    for token in (1, 2):
        bench.executor.stop(token, "drain")
    assert await ends(bench, 3) == [OutcomeKind.RELEASED] * 3


@pytest.mark.parametrize(("switch", "tasks"), [("off", 20), ("on", 1), ("", 1)])
async def test_switched_off_each_attempt_has_a_task_of_its_own(monkeypatch, switch, tasks):
    monkeypatch.setenv(TASK_REUSE_VARIABLE, switch)
    bench, loop, made = Bench(), asyncio.get_running_loop(), []

    @bench.app.task
    async def small() -> None:
        pass

    def make(loop: Any, coroutine: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop)

    loop.set_task_factory(make)
    try:
        start(bench, *["small"] * 20)
        assert await ends(bench, 20) == [OutcomeKind.COMPLETED] * 20
    finally:
        loop.set_task_factory(None)
    bench.executor.close()
    assert len(made) == tasks


async def test_the_switch_is_on_or_off(monkeypatch):
    monkeypatch.setenv(TASK_REUSE_VARIABLE, "no")
    with pytest.raises(ConfigError, match="OUTLAST_TASK_REUSE must be on or off, not 'no'"):
        Bench()


def found(version: str) -> str | None:
    """Return an interpreter of this version: on the path, or installed beside the running one."""
    name = f"python{version}"
    beside = Path(sys.base_prefix).parent.glob(f"*{version}*/bin/{name}")
    for python in filter(None, [shutil.which(name), *map(str, sorted(beside))]):
        asked = subprocess.run([python, "--version"], capture_output=True, timeout=60, check=False)
        if asked.returncode == 0:  # the name on the path may stand for a version that is not chosen
            return python
    return None


@each_case("version", sorted({*VERSIONS, RUNNING}))
def test_a_supported_interpreter_shows_what_tells_a_task_from_a_new_one(version):
    """Where this fails, attempts on that version must not share tasks."""
    python = sys.executable if version == RUNNING else found(version)
    if python is None:
        pytest.skip(f"there is no python{version} here")
    probe = Path(__file__).with_name("reuse_probe.py")
    done = subprocess.run(
        [python, "-I", str(probe), task_reuse.__file__],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout)
    assert {what for what, is_shared in shared.items() if is_shared} == {"nothing"}
    assert len(shared) == len(LEFTOVERS) + 1
