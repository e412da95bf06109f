"""The runners are replaced when code changes: what runs is released, and bad code is waited out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.cli.application import find_folders
from outlast.runner.protocol import ApplicationFailed, AttemptsEnded, End, Stop
from outlast.worker.runners.reload import ATTEMPT_SECONDS, CodeWatch, Reloader
from tests.unit.worker.runners.pool_kit import SIZE, Bench, FakeRunner, own, shared
from tests.unit.worker.worker_kit import COMPLETED, heard, heard_fields

SECONDS = 60.0  # until a test fails because something did not happen


class Reloading:
    """A pool whose runners are ready, and the duty that replaces them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.reloader: Reloader = bench.pool.make_reloader()
        self.old = list(bench.runners)

    async def change(self) -> None:
        self.reloader.note(["/app/shop/jobs.py"])
        await self.look()

    async def look(self) -> None:
        await self.reloader.run_once()
        await self.bench.pool.keeper.run_once()

    async def after(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        await self.look()

    @property
    def new(self) -> list[FakeRunner]:
        return [each for each in self.bench.runners if each not in self.old]


@pytest.fixture
async def scene() -> Reloading:
    return Reloading(await Bench().ready())


async def test_runners_without_work_leave_and_one_tries_the_new_code(scene):
    with heard_fields() as told:
        await scene.change()
    assert ("code_changed", {"files": ["jobs.py"]}) in told
    assert [each.quits for each in scene.old] == [1] * (SIZE + 1)
    assert len(scene.new) == 1
    assert scene.bench.requests(0) == []  # old code takes nothing more


async def test_the_others_start_once_the_first_is_ready(scene):
    await scene.change()
    changes = scene.bench.owner.changes
    scene.new[0].greets(own=True)
    assert scene.bench.owner.changes > changes
    assert scene.bench.requests(0) != []
    await scene.look()
    assert len(scene.new) == SIZE + 1


async def test_what_runs_is_asked_to_stop_and_then_released_uncharged(scene):
    scene.bench.place(own(1))
    (runner,) = [each for each in scene.old if each.tokens]
    await scene.change()
    assert runner.quits == 0
    await scene.after(ATTEMPT_SECONDS * 0.9)
    assert Stop(1, "drain") not in runner.sent
    await scene.after(ATTEMPT_SECONDS * 0.2)
    assert Stop(1, "drain") in runner.sent
    assert runner.kill_reason is None
    await scene.after(ATTEMPT_SECONDS)
    assert runner.kill_reason == "reload"
    runner.dies(signal="SIGKILL")
    (end,) = scene.bench.ends()
    assert (end.outcome, end.charge) == ("released", "none")


async def test_what_ends_in_time_is_an_end_like_any_other(scene):
    scene.bench.place(shared(1))
    (runner,) = [each for each in scene.old if each.tokens]
    await scene.change()
    runner.says(AttemptsEnded([End(1, COMPLETED)]))
    assert scene.bench.outcomes() == ["completed"]
    assert runner.quits == 1


async def test_code_that_cannot_start_is_told_once_and_waits_for_the_next_change(scene):
    await scene.change()
    with heard_fields() as told:
        scene.new[0].says(ApplicationFailed("cannot import 'shop': SyntaxError", "line 1\nline 2"))
        scene.new[0].dies(exit_code=3)
        await scene.after(3_600)
    names = [name for name, _ in told]
    (failure,) = [fields for name, fields in told if name == "reload_failed"]
    assert failure == {"error": "cannot import 'shop': SyntaxError", "stack": "line 1\nline 2"}
    assert names.count("reload_failed") == 1
    assert "runner_restart_delayed" not in names
    assert scene.new == []
    assert scene.bench.owner.failures == []
    await scene.change()
    assert len(scene.new) == 1


async def test_a_runner_that_was_starting_with_the_old_code_is_no_trial():
    bench = Bench()
    await bench.pool.keeper.run_once()
    scene = Reloading(bench)
    await scene.change()
    assert [each.kill_reason for each in scene.old] == ["reload"] * SIZE
    scene.old[0].greets(own=True)  # it was on the wire
    with heard() as names:
        for each in scene.old:
            each.dies(signal="SIGKILL")
    assert "reload_failed" not in names
    await scene.look()
    assert len(scene.new) == 1  # still the one on trial alone
    assert bench.owner.failures == []


async def test_the_next_change_replaces_the_one_on_trial(scene):
    await scene.change()
    first = scene.new[0]
    await scene.change()
    assert first.kill_reason == "reload"
    assert [each is first for each in scene.new] == [True, False]


# ------------------------------------------------------------------------------- what changed


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[tuple[Path, threading.Event, list[str]]]:
    """A folder that is watched, an event set at each change, and the paths."""
    paths: list[str] = []
    told = threading.Event()

    def note(names: list[str]) -> None:
        paths.extend(names)
        told.set()

    (tmp_path / "shop").mkdir()
    watch = CodeWatch([str(tmp_path)], note)
    watch.start()
    yield tmp_path, told, paths
    watch.close()


def test_python_files_are_watched_and_nothing_else(changed) -> None:
    folder, told, paths = changed
    for n in range(1_000):  # until the watch has begun, which nothing tells
        (folder / "notes.txt").write_text("x")
        (folder / "shop" / "jobs.py").write_text(f"n = {n}")
        if told.wait(SECONDS / 1_000):
            break
    assert set(paths) == {str(folder / "shop" / "jobs.py")}


class Module:
    def __init__(self, file: object) -> None:
        self.__file__ = file


def test_the_folders_of_the_application_s_own_code_are_watched(tmp_path: Path) -> None:
    for name in ("shop/models", "venv/lib/site-packages/lib", "python/json", "tools"):
        (tmp_path / name).mkdir(parents=True)
    names = (
        "shop/__init__.py",
        "shop/models/order.py",
        "venv/lib/site-packages/lib/__init__.py",
        "python/json/__init__.py",
        "gone/away.py",
    )
    modules = [Module(str(tmp_path / name)) for name in names]
    modules += [Module(None), Module(str(tmp_path / "tools" / "one.py"))]
    found = find_folders(modules, (str(tmp_path / "python"),))
    assert found == [str(tmp_path / "shop"), str(tmp_path / "tools")]
