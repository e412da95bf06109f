"""A program that is process 1 of a container ends by a SIGTERM, whenever that comes.

For process 1 the kernel drops a signal without a handler: a request to end that came while the
program started was lost, and the container was killed after its grace, with all its attempts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.scene import DEADLINE
from tests.waiting import until

CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
BY_SIGTERM = 128 + signal.SIGTERM
APPLICATION = """
import outlast, pathlib, sys, threading
app = outlast.App()
def tell(name):
    pathlib.Path(__file__).with_name(name).touch()
def setup():
    tell("setup")
    threading.Event().wait()
tell(sys.argv[0].rpartition("/")[2])
if {waits}:
    threading.Event().wait()
"""


@pytest.fixture(scope="module", autouse=True)
def _namespace() -> None:
    """Skip where a process 1 of one's own cannot be had."""
    if shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"]).returncode:  # noqa: PLW1510
        pytest.skip("a pid namespace needs unshare(1) and the right to use it")


@contextlib.contextmanager
def container(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``outlast`` as process 1; nothing is left of it afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OUTLAST_RUN_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*CONTAINER, sys.executable, "-m", "outlast", *arguments],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    except BaseException:
        print((folder / "log").read_text())
        raise
    finally:
        process.kill()  # and by that process 1, whose end is that of all others there
        process.wait()


def ask_to_end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the program, which is the only child of unshare."""
    (program,) = psutil.Process(process.pid).children()
    program.terminate()


@pytest.mark.parametrize("at", ["application.py", "setup"])
def test_a_worker_that_prepares_its_start_ends_by_sigterm(tmp_path: Path, at: str) -> None:
    """While a child imports the application, and in the code of --setup."""
    waits = at == "application.py"
    (tmp_path / "jobs.py").write_text(APPLICATION.format(waits=waits))
    with container(tmp_path, "worker", "jobs:app", "--setup", "jobs:setup") as process:
        until((tmp_path / at).exists, f"the start to reach {at}")
        ask_to_end(process)
        assert process.wait(DEADLINE / 3) == BY_SIGTERM


def test_a_worker_that_waits_for_its_runner_drains_by_sigterm(tmp_path: Path) -> None:
    """The runner imports the application again, which does not end there."""
    waits = "sys.argv[0].endswith('main.py')"
    (tmp_path / "jobs.py").write_text(APPLICATION.format(waits=waits))
    with container(tmp_path, "worker", "jobs:app", "--runners", "1") as process:
        until((tmp_path / "main.py").exists, "the runner to import the application")
        ask_to_end(process)
        assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize("command", ["worker jobs:app", "migrate", "web --port 0", "exporter"])
def test_what_waits_for_a_silent_database_ends_by_sigterm(tmp_path: Path, command: str) -> None:
    """Or, since the exporter opens no database at its start, for a slow disk with its library."""
    (tmp_path / "jobs.py").write_text(APPLICATION.format(waits=False))
    (tmp_path / "prometheus_client.py").write_text(APPLICATION.format(waits=True))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        url = f"postgresql://ada@127.0.0.1:{server.getsockname()[1]}/jobs"
        with container(tmp_path, *command.split(), "--url", url) as process:
            if command == "exporter":
                until((tmp_path / "__main__.py").exists, "the import of its library")
            else:
                server.accept()[0].detach()  # held open, and silent
            ask_to_end(process)
            assert process.wait(DEADLINE / 3) == BY_SIGTERM
