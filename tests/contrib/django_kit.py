"""Runs the commands of the project in `bookshop`, each in a process of its own."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from harness.scene import ROOT, WorkerProcess
from tests.cli.forked import ForkServer

SITE = Path(__file__).with_name("bookshop")
SCRIPT = SITE / "manage.py"
SECONDS = 600.0  # for a command on a busy machine


def plain_environment(**more: str) -> dict[str, str]:
    """Return an environment that says nothing of stores and settings but what is given."""
    own = {"OUTLAST_URL", "DJANGO_SETTINGS_MODULE"}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1", **more}


def environment(url: str, **more: str) -> dict[str, str]:
    """Return the environment of the project on this database."""
    own = {"BOOKSHOP_DATABASE": url, "DJANGO_SETTINGS_MODULE": "settings"}
    return plain_environment(**own, **more)


@cache
def fork_server() -> ForkServer:
    """Return a process that has loaded Django and Outlast; it ends with this one."""
    server = ForkServer(plain_environment(), SCRIPT)
    atexit.register(server.__exit__)
    return server


def manage(
    url: str, *command: str, python: str | None = None, code: int | None = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `manage.py` with this command, which has to exit with this code; None: with any.

    Without ``python`` it is a fork of a process that has loaded Django.
    """
    folder = SITE.parent  # not the project's own
    env = environment(url, **more)
    if python is None:
        done = fork_server().run(command, cwd=folder, env=env, timeout=SECONDS)
    else:
        done = subprocess.run(
            [python, str(SCRIPT), *command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert code in {done.returncode, None}, (
        f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done


def ask(url: str, code: str) -> str:
    """Return what this code prints in a process of the project."""
    return manage(url, "shell", "-v", "0", "--no-startup", "-c", code).stdout.strip()


class ManagedWorker(WorkerProcess):
    """`manage.py outlast worker` as a process of its own; its tree is gone after the test."""

    def __init__(self, url: str, folder: Path, log: Path, **more: str) -> None:
        self.log = log
        self._output = log.open("ab")
        self._known = {}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "outlast", "worker", "--runners", "2"],
            cwd=folder,
            env=environment(url, OUTLAST_RUN_DIR=str(folder / "run"), **more),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )
        self.pid = self.process.pid
