"""The tutorial page, followed exactly: its program, its commands, its kill -9."""

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


def program() -> str:
    """Return books.py of a reader who pasted all blocks; each page takes a tenth of a second."""
    text = PAGE.read_text()
    blocks = re.findall(
        r"^<!-- books\.py -->\n```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 2
    assert "time.sleep(1)" in blocks[0]
    return "\n\n".join(blocks).replace("time.sleep(1)", "time.sleep(0.1)")


def run(folder: Path, url: str, *command: str) -> str:
    """Run a command of the page in the reader's directory; return what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OUTLAST_URL": url},
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return done.stdout


async def test_a_reader_of_the_tutorial_sees_a_killed_worker_s_job_finished(stage: Scene) -> None:
    (stage.folder / "books.py").write_text(program())
    env = {"OUTLAST_TEST_APP": "books:app", "PYTHONPATH": str(stage.folder)}

    printed = run(stage.folder, stage.url, "books.py")
    job_id = int(re.fullmatch(r"job (\d+) is accepted\n", printed)[1])  # type: ignore[index]
    assert "unservable" in run(stage.folder, stage.url, "-m", "outlast", "jobs")

    first = await stage.worker(env=env)

    async def has_saved_some() -> bool:
        return int(await stage.checkpoint(job_id) or 0) >= 3

    await stage.until(has_saved_some, "three pages")
    first.signal(signal.SIGKILL)
    assert first.process.wait() == -signal.SIGKILL
    saved = int(await stage.checkpoint(job_id) or 0)

    second = await stage.worker(env=env)
    ended = await stage.ended(job_id)
    assert (ended.state, ended.result) == (State.COMPLETED, "20")
    assert ended.attempt_count == 2
    assert [one.outcome for one in await stage.attempts(job_id)] == ["lost_worker"]
    pages = [int(page) for page in re.findall(r"Emma: page (\d+)", second.log.read_text())]
    assert pages == list(range(saved + 1, 21))
    shown = run(stage.folder, stage.url, "-m", "outlast", "job", str(job_id))
    assert re.search(r"lost_worker(.|\n)*completed", shown)

    run(stage.folder, stage.url, "-m", "outlast", "enqueue", "books:app", "bind", '"Emma"')

    (failed,) = await stage.tried(job_id + 1)
    assert "retrying" in run(stage.folder, stage.url, "-m", "outlast", "jobs")
    pause = (await stage.job(job_id + 1)).run_at - failed.ended_at
    assert pause > 10, "a reader types the next command while the job is retrying"
    dead = await stage.ended(job_id + 1)
    assert (dead.state, dead.attempt_count) == (State.DEAD, 2)
    assert str(dead.id) in run(stage.folder, stage.url, "-m", "outlast", "dead", "list")
    run(stage.folder, stage.url, "-m", "outlast", "dead", "requeue", str(dead.id))
