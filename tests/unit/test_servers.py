"""The tests' own servers and workers leave nothing behind, and harm nothing else."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.nats_server import NatsCluster
from harness.scene import WorkerProcess
from harness.servers import free_port

pytestmark = pytest.mark.server


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


def test_a_process_with_the_number_of_an_ended_worker_is_spared(tmp_path: Path) -> None:
    """The clean-up of a long run killed workers of other programs, which had such numbers."""
    app = {"OUTLAST_TEST_APP": "none:app"}
    worker = WorkerProcess("", tmp_path / "journal", "--help", env=app, log=tmp_path / "log")
    worker.process.wait()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        worker.pid = other.pid
        worker.end()
        other.communicate(b"\n")
    assert other.returncode == 0


def test_a_free_port_is_none_that_outgoing_connections_take() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with contextlib.ExitStack() as opened:
            outgoing = [
                opened.enter_context(socket.create_connection(server.getsockname()))
                for _ in range(20)
            ]
            ports = [connection.getsockname()[1] for connection in outgoing]
            assert max(free_port() for _ in range(20)) < min(ports)


def test_a_nats_server_of_a_cluster_that_ends_is_told_with_its_log() -> None:
    cluster = NatsCluster()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.servers[2].route))
        taken.listen()
        with pytest.raises(RuntimeError, match="address already in use"), cluster:
            pytest.fail("two of three servers form no cluster")
