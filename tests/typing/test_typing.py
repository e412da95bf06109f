"""Both type checkers accept what users type, and refuse each call that would fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

PRELUDE = """\
from datetime import datetime
from typing import Any
import outlast
import outlast.web

app = outlast.App()

@app.task
async def analyze(repo: str, depth: int = 100) -> dict[str, int]:
    return {}

@app.task(queue="mail")
def mail(to: str) -> int:
    return 1

@app.task
async def tick() -> None: ...

@app.task(batch=5)
async def index(items: list[str]) -> list[int]:
    return []

async def wrong(connection: Any) -> None:
"""

WRONG = [
    "await analyze.enqueue()",
    "await analyze.enqueue(1)",
    "await analyze.enqueue('r', depth='deep')",
    "await analyze.enqueue('r', dept=5)",
    "analyze.enqueue_sync('r', 5, 6)",
    "analyze.call(b'r')",
    "mail.using(delay=60).call(5)",
    "await mail.using(key='k').enqueue()",
    "mail.using(queue='a').using(priority=1).enqueue_sync(None)",
    "mail.using(delay='soon')",
    "mail.using(at=5)",
    "mail.using(colour='red')",
    "mail.delay('a')",
    "a: outlast.Job[str] = await analyze.enqueue('r')",
    "b: str = mail.enqueue_sync('a').result_sync()",
    "c: int = (await analyze.enqueue('r')).result()",
    "d: int = await tick.enqueue()",
    "await tick.enqueue(1)",
    "e: list[outlast.Job[str]] = await app.enqueue_many([mail.call('a')])",
    "await app.enqueue_many([mail])",
    "await index.enqueue(['a'])",
    "index.enqueue_sync()",
    "p: outlast.Job[list[int]] = await index.enqueue('a')",
    "app.task(batch='5')",
    "app.task(batch_wait=5)",
    "outlast.ItemErrors({3: 'gone'})",
    "app.cancel_sync('1')",
    "mail.enqueue('a').result_sync()",
    "f: str = mail('a')",
    "g: str = await analyze('r')",
    "app.task(retries='3')",
    "app.task(colour='red')",
    "app.task(timeout='1 h')",
    "app.task(qeue='mail')(mail.fn)",
    "o: outlast.TaskOptions = {'retrys': 3}",
    "app.worker(concurency=3)",
    "app.worker(queues='mail')",
    "outlast.current().report('half')",
    "outlast.current().save_sync()",
    "await outlast.current().wait_event('a')",
    "h: str = await outlast.current().wait_event('a', timeout=1, type=int)",
    "outlast.web.Access('ada')",
    "outlast.web.Access(None, can=['view'])",
    "outlast.web.dashboard(app)",
    "outlast.web.dashboard(app, access=lambda request: True)",
    "raise outlast.Snooze('later')",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a correct module, and a module of mistakes after its prelude."""
    folder = tmp_path_factory.mktemp("typing")
    shutil.copy(HERE / "surface.py", folder)
    (folder / "mistakes.py").write_text(PRELUDE + "".join(f"    {line}\n" for line in WRONG))
    return folder


def lines_by_mypy(folder: Path) -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    command += ["--cache-dir", "cache", "surface.py", "mistakes.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    found = re.findall(r"^(surface|mistakes)\.py:(\d+): error:", done.stdout, re.MULTILINE)
    return {(name, int(line)) for name, line in found}


def lines_by_pyright(folder: Path) -> set[tuple[str, int]]:
    settings = {"extraPaths": [str(ROOT / "src")], "include": ["surface.py", "mistakes.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, done.stdout
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).stem, one["range"]["start"]["line"] + 1) for one in errors}


CHECKERS = {"mypy": lines_by_mypy, "pyright": lines_by_pyright}


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", pytest.param("pyright", marks=pytest.mark.slow)])
def test_correct_use_type_checks_and_every_mistake_is_found(checker, folder):
    pytest.importorskip(checker)
    found = CHECKERS[checker](folder)
    first = PRELUDE.count("\n") + 1
    missed = [line for n, line in enumerate(WRONG, first) if ("mistakes", n) not in found]
    assert sorted(where for where in found if where[0] == "surface" or where[1] < first) == []
    assert missed == []
