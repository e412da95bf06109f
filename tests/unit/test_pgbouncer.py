"""The tests' own PgBouncer: real, and pooling in the set mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import asyncpg
import psutil
import pytest

from harness.pgbouncer import PgBouncerServer, PoolMode

# Those that make one of their own are skipped with the others where there is none.
pytestmark = [pytest.mark.pgbouncer, pytest.mark.usefixtures("pgbouncer")]

SESSION = "SELECT pg_backend_pid(), inet_client_port()"


async def connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, statement_cache_size=0)


@pytest.mark.parametrize(("mode", "shared"), [("transaction", True), ("session", False)])
async def test_clients_share_a_session_of_the_server_by_the_mode(
    pg_url: str, mode: PoolMode, shared: bool
) -> None:
    with PgBouncerServer(pg_url, mode) as server:
        one, two = [await connect(server.through(pg_url)) for _ in range(2)]
        assert (await one.fetchrow(SESSION) == await two.fetchrow(SESSION)) is shared
        await one.close()
        await two.close()


def test_nothing_is_left_of_it_when_the_test_process_is_killed() -> None:
    program = (
        "import os, signal; from harness.pgbouncer import PgBouncerServer;"
        "server = PgBouncerServer('postgresql://postgres@127.0.0.1:1/x'); server.start();"
        "print(server._process.pid, server.folder, server._janitor.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pid, folder, janitor = done.stdout.split()
    left = [psutil.Process(int(p)) for p in (janitor, pid) if psutil.pid_exists(int(p))]
    _gone, alive = psutil.wait_procs(left, timeout=60)
    assert [process.pid for process in alive if process.status() != "zombie"] == []
    assert not Path(folder).exists()
