"""The tests' own PostgreSQL server: every store test stands on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from harness.servers import PostgresServer


def test_a_database_of_ones_own(pg_server: PostgresServer, pg_url: str) -> None:
    name = pg_url.rsplit("/", 1)[1]
    assert pg_server.sql("SELECT current_database()", name) == name
    assert int(pg_server.sql("SHOW max_connections")) == 200
    assert int(pg_server.sql("SHOW server_version_num")) >= 140000


def test_a_server_survives_stop_kill_and_restart_with_its_data_and_port() -> None:
    with PostgresServer() as server:
        port = server.port
        server.sql("CREATE TABLE kept AS SELECT 1 AS n")
        for again in (server.restart, lambda: server.restart("immediate"), server.kill):
            again()
            if not server.running:
                server.start()
            assert server.sql("SELECT n FROM kept") == "1"
        assert server.port == port
        folder = server.folder
    assert not folder.exists()


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
