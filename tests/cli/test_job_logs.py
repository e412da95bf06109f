"""``outlast logs``: what a job prints is seen while it runs, and stays with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Outlast, environment
from tests.cli.test_worker import SECONDS, worker
from tests.waiting import until

APPLICATION = """
import logging
import pathlib
import time

import outlast

app = outlast.App("sqlite:///shop.db")
logging.basicConfig(level=logging.INFO, format="%(outlast_task)s %(outlast_job)s: %(message)s")


@app.task(logs=True)
def prints() -> None:
    print("from print")
    logging.info("from logging")
    print("without an end", end="")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    print(" of its line")
    if outlast.current().number == 1:
        raise ValueError("once")


@app.task
def is_silent() -> None:
    print("nothing is kept")
"""
URL = ("--url", "sqlite:///shop.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APPLICATION)
    return tmp_path


def texts(outlast: Outlast, job_id: int) -> list[list[str]]:
    attempts = outlast("logs", job_id, *URL, "--json").json()["attempts"]
    return [[line["text"] for line in attempt["lines"]] for attempt in attempts]


def test_a_job_s_lines_are_shown_while_it_runs_and_afterwards(
    outlast: Outlast, folder: Path
) -> None:
    with worker(folder, "shop:app", "--runners", "2") as running:
        running.until("shop:app is ready")
        outlast("enqueue", "shop:app", "prints")
        outlast("enqueue", "shop:app", "is_silent")
        until(lambda: texts(outlast, 1) == [["from print", "prints 1: from logging"]])
        following = subprocess.Popen(
            [sys.executable, "-m", "outlast.cli", "logs", "1", "--follow", *URL],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert following.stdout is not None
            assert "attempt 1" in following.stdout.readline()
            (folder / "go").touch()
            followed, _ = following.communicate(timeout=SECONDS)
        finally:
            following.kill()
        assert following.returncode == 0
        assert running.end() == 0
    whole = ["from print", "prints 1: from logging", "without an end of its line"]
    assert texts(outlast, 1) == [whole, whole]
    assert "from print" in followed
    assert followed.count("without an end of its line") == 2
    assert "attempt 2" in followed
    shown = outlast("logs", 1, *URL).out
    assert "prints 1: from logging" in shown
    assert "no output of this job is kept" in outlast("logs", 2, *URL).out


def test_a_job_that_has_ended_without_a_line_has_printed_nothing(
    outlast: Outlast, folder: Path
) -> None:
    outlast("enqueue", "shop:app", "prints")
    assert outlast("logs", 1, *URL).out == "it has printed no whole line yet\n"
    outlast("cancel", 1, *URL)
    assert outlast("logs", 1, *URL).out == "it has printed nothing\n"


def test_what_is_not_there_is_refused(outlast: Outlast, sqlite_url: str) -> None:
    outlast("migrate", "--url", sqlite_url)
    outlast("logs", 9, "--url", sqlite_url).refused(1, "there is no job 9")
    outlast("logs", 9, "--follow", "--json", "--url", sqlite_url).refused(2, "--json is one")
