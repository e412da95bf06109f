"""The tutorial page, followed exactly: its program, its commands, its two workers, its kill -9."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from harness.scene import ROOT, Scene
from outlast.model.job import State

PAGE = ROOT / "docs" / "getting-started.md"
HEADS = re.compile(r"^(?:ID|NAME) .*", re.MULTILINE)  # of tables, as printed and as shown


def program() -> str:
    """Return books.py of a reader who pasted all blocks; what is tried again takes less time."""
    text = PAGE.read_text()
    blocks = re.findall(
        r"^<!-- books\.py -->\n```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 2
    assert "time.sleep(1)" in blocks[0]
    pace = "time.sleep(1 if attempt.number == 1 else 0.05)"
    return "\n\n".join(blocks).replace("time.sleep(1)", pace)


def run(folder: Path, url: str, *command: str) -> str:
    """Run a command of the page in the reader's directory; return what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OUTLAST_URL": url, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return done.stdout


def words_of(table: str) -> list[str]:
    """Return the columns of a table that a command has printed."""
    (head,) = HEADS.findall(table)
    return str(head).split()


async def test_a_reader_of_the_tutorial_sees_a_killed_worker_s_job_go_on(stage: Scene) -> None:
    (stage.folder / "books.py").write_text(program())
    env = {"OUTLAST_TEST_APP": "books:app", "PYTHONPATH": str(stage.folder)}

    printed = run(stage.folder, stage.url, "books.py")
    job_id = int(re.fullmatch(r"job (\d+) is accepted\n", printed)[1])  # type: ignore[index]
    assert "unservable" in run(stage.folder, stage.url, "-m", "outlast", "jobs")

    names = re.findall(
        r"^\$ outlast worker books:app (--name) (\w+)$", PAGE.read_text(), re.MULTILINE
    )
    assert len(names) == 2
    first, second = [await stage.worker(*name, env=env) for name in names]

    async def has_saved_some() -> bool:
        return int(await stage.checkpoint(job_id) or 0) >= 3

    await stage.until(has_saved_some, "three pages")
    workers = run(stage.folder, stage.url, "-m", "outlast", "workers")
    (pid,) = re.findall(rf"^{names[0][1]} .* (\d+) +all +1 ", workers, re.MULTILINE)
    assert int(pid) == first.pid, "the page says to kill the one with a job"
    first.signal(signal.SIGKILL)
    assert first.process.wait() == -signal.SIGKILL
    saved = int(await stage.checkpoint(job_id) or 0)

    ended = await stage.ended(job_id)
    assert (ended.state, ended.result) == (State.COMPLETED, "60")
    assert ended.attempt_count == 2
    (lost,) = await stage.attempts(job_id)
    assert lost.outcome == "lost_worker"
    assert lost.message.startswith("worker amber is gone: ")
    pages = [int(page) for page in re.findall(r"Emma: page (\d+)", second.log.read_text())]
    assert pages == list(range(saved + 1, 61))
    shown = run(stage.folder, stage.url, "-m", "outlast", "job", str(job_id))
    assert re.search(r"lost_worker(.|\n)*completed", shown)

    run(stage.folder, stage.url, "-m", "outlast", "enqueue", "books:app", "bind", '"Emma"')

    (failed,) = await stage.tried(job_id + 1)
    assert "retrying" in run(
        stage.folder, stage.url, "-m", "outlast", "jobs", "--state", "retrying"
    )
    pause = (await stage.job(job_id + 1)).run_at - failed.ended_at
    assert pause > 10, "a reader types the next command while the job is retrying"
    dead = await stage.ended(job_id + 1)
    assert (dead.state, dead.attempt_count) == (State.DEAD, 2)
    listed = run(stage.folder, stage.url, "-m", "outlast", "dead", "list")
    assert str(dead.id) in listed
    heads = [head.split() for head in HEADS.findall(PAGE.read_text())]
    assert words_of(workers) in heads
    assert words_of(listed) in heads
    run(stage.folder, stage.url, "-m", "outlast", "dead", "requeue", str(dead.id))
