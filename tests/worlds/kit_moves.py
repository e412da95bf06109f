"""An application whose PostgreSQL is upgraded, replaced or set back, and the commands of a page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import outlast
from harness.journal import JOURNAL, begin, note
from harness.scene import ROOT, Scene
from outlast.store.rows import JobFilter

APP = "tests.worlds.kit_moves:app"
WITHIN = 120.0  # seconds for the commands of one block
app = outlast.App()
ENOUGH = JOURNAL.with_suffix(".enough")
one = app.limit("one", running=1)


@app.task(backoff_first=0.01, backoff_max=0.02)
async def counts() -> int:
    """Count, with a checkpoint at each step, until the file ENOUGH is there."""
    attempt = begin()
    start = (attempt.checkpoint or {"n": 0})["n"]
    n = start
    while not ENOUGH.exists():
        n += 1
        await attempt.save({"n": n})
        await asyncio.sleep(0.05)
    return int(start)


@app.task
async def noted(name: str) -> str:
    note("noted", name=name, token=outlast.current().token)
    return name


@app.task(limits=[one])
async def limited(name: str) -> None:
    """Hold the permit until the file ENOUGH is there."""
    note("limited", name=name, does="enters")
    while not ENOUGH.exists():
        await asyncio.sleep(0.02)
    note("limited", name=name, does="leaves")


@app.task
async def asks(event: str) -> str:
    """Wait for an event, and return what was sent."""
    return await outlast.current().wait_event(event, timeout=86_400, type=str)


@app.task
async def tick() -> None:
    """Do nothing."""


app.schedule("each-second", tick.call(), every=1, overlap="allow", catch_up="all")


def blocks_of(section: str) -> list[str]:
    """Return the commands of a section of docs/backups.md, cut at blank lines."""
    page = (ROOT / "docs" / "backups.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    parts: list[str] = block.split("\n\n")
    return parts


def put_outlast(folder: Path) -> None:
    """Make the command `outlast` of a folder, as an installed one."""
    (folder / "outlast").write_text(f'#!/bin/sh\nexec {sys.executable} -m outlast "$@"\n')
    (folder / "outlast").chmod(0o755)


async def run(commands: str, folder: Path, *path: Path, user: Any = None, **env: str) -> str:
    """Run commands of the page in a shell, in a folder; return what they print."""
    places = ":".join(map(str, (*path, os.environ["PATH"])))
    how: dict[str, Any] = {
        "cwd": folder,
        "env": {**os.environ, "PATH": places, **env},
        **(user or {}),
    }

    def go() -> subprocess.CompletedProcess[str]:
        command = ["bash", "-eu", "-o", "pipefail", "-c", commands]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=WITHIN, **how
        )

    done = await asyncio.to_thread(go)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def judge_ticks(stage: Scene) -> None:
    """End the schedule: no tick has two jobs, and each that has a job counts as fired."""
    assert await stage.store.pause_schedule("each-second", paused=True)
    row = await stage.store.inspector.schedule("each-second")
    assert row is not None
    jobs = await stage.store.inspector.jobs(JobFilter(task="tick", limit=100_000))
    ticks = [job.policy.tick for job in jobs]
    assert len(set(ticks)) == len(ticks) == row.fired > 0, row


def times_noted(stage: Scene) -> Counter[str]:
    """Return how often each job has noted its name."""
    return Counter(entry["name"] for entry in stage.entries("noted"))


class Producer:
    """Enqueues `noted` jobs until ``rest``; ``accepted`` is its ledger, of names and ids. It asks
    again for what got no answer, under the same key."""

    def __init__(self) -> None:
        self.accepted: dict[str, int] = {}
        self._enough = asyncio.Event()
        self._going = asyncio.create_task(self._produce())

    async def _produce(self) -> None:
        while not self._enough.is_set():
            name = f"job-{len(self.accepted)}"
            with contextlib.suppress(outlast.StoreUnavailable):
                job = await noted.using(key=name, once_per=86_400).enqueue(name)
                self.accepted[name] = job.id
            await asyncio.sleep(0.02)

    async def rest(self) -> None:
        """Enqueue no more."""
        self._enough.set()
        await self._going
