"""The page on long computations, followed: its programs and the commands between them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.scene import ROOT
from tests.cli.conftest import SECONDS, Outlast

PAGE = (ROOT / "docs" / "computations.md").read_text()
WORKER = """
import asyncio, json, fits
async def main():
    async with fits.app.worker():
        for job_id in json.loads(input()):
            await (await fits.app.get(job_id)).result(timeout=60)
asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the programs of the page."""
    for name in ("fits.py", "table.py", "again.py"):
        block = rf"^<!-- {name} -->\n```python\n(.*?)^```"
        (found,) = re.findall(block, PAGE, re.DOTALL | re.MULTILINE)
        (tmp_path / name).write_text(found.replace("steps: int = 20", "steps: int = 2"))
    return tmp_path


def python(folder: Path, *arguments: str, give: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={name: each for name, each in os.environ.items() if name != "OUTLAST_URL"},
        input=give,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_reader_gets_from_the_script_to_the_table(outlast: Outlast, folder: Path) -> None:
    (call,) = re.findall(r"`outlast run-task fits:app fit '(.*?)'`", PAGE)
    assert outlast("run-task", "fits:app", "fit", call).out == '{"loss":0.421875,"steps":3}\n'
    for number in (15, 0):  # by their keys the second time makes no more
        assert python(folder, "fits.py") == f"{number} new fits are enqueued\n"
    listed = outlast("jobs", "--label", "sweep-1", "--json").json()["jobs"]
    assert len(listed) == 15
    python(folder, "-c", WORKER, give=json.dumps([job["id"] for job in listed]))
    (command,) = re.findall(r"^\$ outlast (jobs .*) > sweep\.json$", PAGE, re.MULTILINE)
    (folder / "sweep.json").write_text(outlast(*command.split()).out)
    table = python(folder, "table.py").splitlines()
    assert table[0] == "job,alpha,depth,loss,steps"
    assert len(table) == 16
    assert python(folder, "again.py") == "0 new fits are enqueued\n"
    document = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps({"jobs": document["jobs"][3:]}))
    assert python(folder, "again.py") == "3 new fits are enqueued\n"
    python(folder, "fits.py")
    waiting = outlast("jobs", "--label", "sweep-1", "--state", "queued", "--json").json()["jobs"]
    assert len(waiting) == 15, "the page says that what has ended is computed again"
