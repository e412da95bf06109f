"""`outlast demo` as people run it: real workers, a real kill -9, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from harness.stores import opened
from outlast.demo import BLOCKS, PRIMES
from outlast.model.job import State
from outlast.store.rows import JobFilter
from tests.crash.demo_kit import LIMIT, Marked, ended

STEPS = ["$ outlast worker", "both workers are ready", "runs it: attempt 1", "kill -9", "goes on"]


def demo(folder: Path, *arguments: str, **env: str) -> contextlib.AbstractContextManager[Marked]:
    """Run it with a temporary directory of its own, so that what it leaves there is seen."""
    (folder / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "outlast", "demo", *arguments]
    return ended(Marked(command, folder, TMPDIR=str(folder / "tmp"), **env))


def left_in(folder: Path) -> list[Path]:
    return [*(folder / "tmp").iterdir()]


@pytest.mark.slow
@pytest.mark.short
def test_the_job_outlives_its_worker_and_nothing_is_left(tmp_path):
    settings = {"OUTLAST_URL": "postgresql://nowhere/x", "OUTLAST_WAKEUP": "nats://127.0.0.1:1"}
    with demo(tmp_path, **settings) as running:  # settings of the user's own workers
        code, said, complaints = running.finish()
        assert (code, complaints) == (0, ""), said
    assert left_in(tmp_path) == []
    check_words(said)
    assert f"{PRIMES:,} primes below 100,000,000, which is right" in said
    assert "outlast demo --keep DIR" in said


def check_words(said: str) -> None:
    """What it prints is one story: who died, where its work went on, and why."""
    victim, blocks = (
        find(r"kill -9 \d+    # (\w+), at half", said),
        find(r"(\d+) of 40 blocks are", said),
    )
    heir = find(rf"(\w+) goes on from block {blocks}: attempt 2", said)
    assert {victim, heir} == {"amber", "violet"}
    assert BLOCKS // 2 <= int(blocks) < BLOCKS
    attempts = [line.split() for line in said.splitlines() if re.match(r" ?[12]  ", line)]
    assert [(each[0], each[2]) for each in attempts] == [("1", "lost_worker"), ("2", "completed")]
    assert [victim in attempts[0], heir in attempts[1]] == [True, True]
    assert f"attempt 1: worker {victim} is gone" in said
    assert f"{blocks} of {BLOCKS} blocks were not done twice" in said
    assert "verify  1 job, 1 closed attempt: 17 rules hold" in said


def find(pattern: str, said: str) -> str:
    found = re.search(pattern, said)
    assert found is not None, said
    return found[1]


async def test_what_is_kept_can_be_looked_at_as_it_says(tmp_path):
    with demo(tmp_path, "--keep", "a new one/below") as running:
        code, said, complaints = running.finish()
        assert (code, complaints) == (0, ""), said
    assert left_in(tmp_path) == []
    logs = {path.name for path in (tmp_path / "a new one" / "below").glob("*.log")}
    assert logs == {"worker-amber.log", "worker-violet.log"}
    async with opened(find(r"outlast job 1 --url (\S+)", said)) as store:
        (job,) = await store.inspector.jobs(JobFilter(task="outlast.demo.count_primes"))
        attempts = await store.inspector.attempts(job.id)
    assert (job.id, job.state, job.attempt_count) == (1, State.COMPLETED, 2)
    assert [each.outcome for each in attempts] == ["lost_worker"]
    assert f'"primes":{PRIMES}' in (job.result or "")


@pytest.mark.long_but("runs it: attempt 1-1", "goes on-15")
@pytest.mark.parametrize(
    ("when", "number"),
    list(zip(STEPS, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] * 2, strict=False)),
)
def test_an_interrupted_demo_leaves_nothing(tmp_path, when, number):
    with demo(tmp_path) as running:
        code, _, complaints = running.interrupt(when, number)
        assert (code, complaints) == (130, "")
    assert left_in(tmp_path) == []


@pytest.mark.long_but("runs it: attempt 1", "kill -9")
@pytest.mark.parametrize("when", STEPS)
def test_a_killed_demo_leaves_no_process(tmp_path, when):
    with demo(tmp_path) as running:
        assert running.interrupt(when, signal.SIGKILL)[0] == -signal.SIGKILL


KILLED_BEFORE_THE_TETHER_KNOWS = """
import os, signal
from pathlib import Path
from outlast.cli.demo_story import COUNT, Workers
from outlast.worker.runners.tether import Tether

Tether.add = lambda self, pgid: os.kill(os.getpid(), signal.SIGKILL)
with Workers(Path.cwd(), "sqlite:///demo.db", COUNT) as workers:
    workers.start("amber")
"""


def test_a_demo_killed_as_it_starts_a_worker_leaves_no_process(tmp_path):
    with ended(Marked([sys.executable, "-c", KILLED_BEFORE_THE_TETHER_KNOWS], tmp_path)) as running:
        code, _, complaints = running.finish()
        assert (code, complaints) == (-signal.SIGKILL, "")


def test_a_reader_that_goes_away_leaves_nothing(tmp_path):
    with demo(tmp_path) as running:
        running.read_until("runs it")
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.process.stdout = None
        assert running.process.wait(LIMIT) == 141
        assert running.is_gone()
    assert left_in(tmp_path) == []


def test_a_worker_that_ends_by_itself_ends_the_demo_in_one_line(tmp_path):
    with demo(tmp_path) as running:
        pid = find(r"--name violet &    # pid (\d+)", running.read_until("--name violet"))
        os.kill(int(pid), signal.SIGKILL)
        code, _, complaints = running.finish()
    assert code == 1
    assert re.fullmatch(r"outlast: worker violet ended by itself \(-9\):.*\n", complaints)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("keep", "word"),
    [
        ("file", "--keep file: it already exists; name a new folder"),
        ("file/below", "--keep file/below: Not a directory"),
    ],
)
def test_an_unusable_folder_is_refused_in_one_line(tmp_path, keep, word):
    (tmp_path / "file").touch()
    with demo(tmp_path, "--keep", keep) as running:
        assert running.finish() == (1, "", f"outlast: {word}\n")
