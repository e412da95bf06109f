"""The census as `make demo` runs it: real workers, a real kill -9."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.census.analysis import analyze
from examples.census.evolution import Evolution
from examples.census.picture import numbers
from harness.stores import opened
from outlast.cli.demo_story import own_command
from outlast.model.job import State
from outlast.store.rows import AttemptRow, JobFilter, StoredJob
from tests.crash.demo_kit import Marked, ended

ROOT = Path(__file__).resolve().parents[2]
TASK = "examples.census.analyze"
SETTINGS = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


class Demo(Marked):
    """The demo as a process."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self.out = folder / "out"
        command = [sys.executable, "-m", "examples.census", "--out", str(self.out), *arguments]
        super().__init__(command, ROOT, OUTLAST_RUN_DIR=str(folder / "run"), **env)


def demo(folder: Path, *arguments: str, **env: str) -> contextlib.AbstractContextManager[Demo]:
    return ended(Demo(folder, *arguments, **env))


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *SETTINGS, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path, commits: int) -> Path:
    """A repository that grows by a few lines of Python and text with each commit."""
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(1, commits + 1):
        (folder / f"module_{number % 7}.py").write_text("x = 1\n" * number)
        (folder / "notes.md").write_text("# notes\n" * (number // 2 + 1))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"commit {number}")
    return folder


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("made") / "shop", 24)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository, at a fixed commit."""
    folder = tmp_path_factory.mktemp("own") / "outlast.git"
    made = subprocess.run(
        ["git", "clone", "-q", "--bare", "--no-local", str(ROOT), str(folder)],
        check=False,
        capture_output=True,
    )
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=folder if folder.exists() else ROOT,
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode or counted.returncode or int(counted.stdout) < 2:
        pytest.skip("the tests do not stand in a clone with its history")
    return folder


async def rows(url: str) -> tuple[StoredJob, list[AttemptRow]]:
    """The demo's job in this store, and its closed attempts."""
    async with opened(url) as store:
        (job,) = await store.inspector.jobs(JobFilter(task=TASK))
        return job, await store.inspector.attempts(job.id)


@pytest.mark.parametrize("which", ["generated", "own"])
async def test_the_job_outlives_its_worker(tmp_path, bare_store_url, which, request):
    repo: Path = request.getfixturevalue(which)
    with demo(tmp_path, "--repo", str(repo), "--url", bare_store_url) as running:
        code, said, complaints = running.finish()
        assert (code, complaints) == (0, ""), said
    job, attempts = await rows(bare_store_url)
    assert job.state is State.COMPLETED
    assert [each.outcome for each in attempts] == ["lost_worker"]
    assert job.attempt_count == 2
    document = check_files(running.out, repo)
    resumed = document["interruption"]["resumed_from"]
    assert 0 < resumed <= document["interruption"]["killed_at"] < len(document["commits"])
    check_words(said, resumed, len(document["commits"]))


def check_files(out: Path, repo: Path) -> dict[str, Any]:
    """The files are whole, and what an undisturbed count gives."""
    expected = ["evolution.json", "evolution.png", "evolution.svg"]
    assert sorted(each.name for each in out.iterdir() if "evolution" in each.name) == expected
    assert (out / "evolution.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ET.parse(out / "evolution.svg").getroot().tag.endswith("svg")
    document: dict[str, Any] = json.loads((out / "evolution.json").read_text())
    undisturbed = numbers(Evolution.unpack(analyze(str(repo), 100)))
    assert {**document, "interruption": None} == undisturbed
    return document


def check_words(said: str, resumed: int, goal: int) -> None:
    """The output tells the story, and shows both attempts."""
    assert f"goes on from commit {resumed}: attempt 2" in said
    assert f"{resumed} of {goal} commits were not done twice" in said
    assert "verify  1 job, 1 closed attempt: 17 rules hold" in said
    assert f"look    {own_command()} job " in said


@pytest.mark.parametrize(
    ("when", "number"),
    [
        ("outlast worker", signal.SIGINT),
        ("runs it", signal.SIGTERM),
        ("goes on from", signal.SIGINT),
    ],
)
async def test_an_interrupted_demo_leaves_no_process_and_no_waiting_job(
    tmp_path, generated, when, number
):
    with demo(tmp_path, "--repo", str(generated)) as running:
        code, _, complaints = running.interrupt(when, number)
        assert code == 130
        assert complaints == "outlast: interrupted: the workers are gone, and all below them\n"
    assert [each.name for each in running.out.iterdir() if "evolution" in each.name] == []
    if when != "outlast worker":
        job, _ = await rows(f"sqlite:///{running.out / 'outlast-demo.db'}")
        assert job.state in {State.CANCELLED, State.COMPLETED}, (
            "it must not wait or count as running"
        )


@pytest.mark.long_but("runs it")
@pytest.mark.parametrize("when", ["outlast worker", "runs it", "kill -9"])
def test_a_killed_demo_leaves_no_process(tmp_path, generated, when):
    with demo(tmp_path, "--repo", str(generated)) as running:
        running.interrupt(when, signal.SIGKILL)


def test_a_folder_in_which_a_demo_runs_is_refused(tmp_path, generated):
    (tmp_path / "out").mkdir()
    taken = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        fcntl.flock(taken, fcntl.LOCK_EX)
        with demo(tmp_path, "--repo", str(generated)) as running:
            code, _, complaints = running.finish()
        assert (code, complaints) == (
            1,
            f"outlast: --out {running.out}: another demo is running there\n",
        )
    finally:
        os.close(taken)
