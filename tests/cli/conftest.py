"""The real command line in processes of its own, and stores to point it at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.forked import ForkServer
from tests.cli.rows import populated

SECONDS = 60.0  # for one command, on a busy machine

APPLICATION = """
import asyncio

import outlast

app = outlast.App("sqlite:///shop.db")
print("shop is imported")


@app.task
async def mail(to: str, copies: int = 1) -> int:
    return copies


@app.task
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"
"""


class Said:
    """What a command has printed, and its exit code."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def json(self) -> Any:
        """Return stdout as the one JSON document that it must be."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """Check that it ended with ``code`` and said so in a few plain lines."""
        assert self.code == code, (self.code, self.out, self.err)
        lines = self.err.strip().splitlines()
        told = [line for line in lines if line != "shop is imported"]
        assert told[0].startswith("outlast: "), self.err
        assert len(told) <= 3
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err, self.err


Outlast = Callable[..., Said]


class Filled:
    """Runs commands on a store with a job of every kind. ``ids``: the jobs' ids by their kind."""

    def __init__(self, outlast: Outlast, url: str) -> None:
        self._outlast = outlast
        self.url = url
        self.ids = populated(url)

    def __call__(self, *arguments: object, **env: str) -> Said:
        """Run a command."""
        return self._outlast(*arguments, "--url", self.url, **env)

    def job(self, number: int) -> Any:
        """Return the document of a job."""
        return self("job", number, "--json").json()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory with an application, ``shop:app``."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    return tmp_path


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A process that has loaded the program."""
    with ForkServer(environment()) as server:
        yield server


@pytest.fixture
def outlast(folder: Path, fork_server: ForkServer) -> Outlast:
    """Return what runs ``outlast`` with arguments, in a process of its own, and waits for it."""

    def run(*arguments: object, **env: str) -> Said:
        words = [*map(str, arguments)]
        return Said(fork_server.run(words, cwd=folder, env=environment(**env), timeout=SECONDS))

    return run


@pytest.fixture
def new_interpreter(folder: Path) -> Outlast:
    """As ``outlast``, but as a user does it: Python starts and imports the program."""

    def run(*arguments: object, **env: str) -> Said:
        return Said(
            subprocess.run(
                [sys.executable, "-m", "outlast.cli", *map(str, arguments)],
                cwd=folder,
                env=environment(**env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=SECONDS,
                check=False,
            )
        )

    return run


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command: nothing of the tester's own terminal."""
    plain = {
        key: value
        for key, value in os.environ.items()
        if key not in {"COLUMNS", "FORCE_COLOR", "NO_COLOR"} and not key.startswith("OUTLAST_")
    }
    return {**plain, **more}


@pytest.fixture
def filled(outlast: Outlast, store_url: str) -> Filled:
    """A store of each kind with a job of every kind."""
    return Filled(outlast, store_url)


@pytest.fixture
def rows(outlast: Outlast, sqlite_url: str) -> Filled:
    """A SQLite store with a job of every kind."""
    return Filled(outlast, sqlite_url)
