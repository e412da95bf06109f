"""The tests' own PostgreSQL server: every store test stands on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil


def test_nothing_is_left_when_the_test_process_is_killed() -> None:
    program = (
        "import os, signal; from harness.servers import PostgresServer; server = PostgresServer();"
        "server.start(); print(server.pid, server.folder, server._janitor.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pid, folder, janitor = done.stdout.split()
    left = [psutil.Process(int(p)) for p in (janitor, pid) if psutil.pid_exists(int(p))]
    _gone, alive = psutil.wait_procs(left, timeout=60)
    assert [process.pid for process in alive if process.status() != "zombie"] == []
    assert not Path(folder).exists()
