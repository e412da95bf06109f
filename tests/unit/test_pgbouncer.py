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


async def test_the_pooler_leads_to_the_same_database(
    pgbouncer: PgBouncerServer, pg_url: str
) -> None:
    connection = await connect(pgbouncer.through(pg_url))
    assert await connection.fetchval("SELECT current_database()") == pg_url.rsplit("/", 1)[1]
    port = await connection.fetchval("SELECT inet_client_port()")
    assert port != connection._transport.get_extra_info("sockname")[1], "a pooler is between"
    await connection.close()


@pytest.mark.parametrize(("mode", "shared"), [("transaction", True), ("session", False)])
async def test_clients_share_a_session_of_the_server_by_the_mode(
    pg_url: str, mode: PoolMode, shared: bool
) -> None:
    with PgBouncerServer(pg_url, mode) as server:
        one, two = [await connect(server.through(pg_url)) for _ in range(2)]
        assert (await one.fetchrow(SESSION) == await two.fetchrow(SESSION)) is shared
        await one.close()
        await two.close()


async def test_it_stops_and_starts_on_the_same_port(pg_url: str) -> None:
    with PgBouncerServer(pg_url) as server:
        port, folder = server.port, server.folder
        before = await connect(server.through(pg_url))
        for again in (server.restart, server.kill):
            again()
            with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
                await before.fetchval("SELECT 1")
            if not server.running:
                server.start()
            before = await connect(server.through(pg_url))
            assert await before.fetchval("SELECT 1") == 1
        before.terminate()
        assert server.port == port
    assert not folder.exists()


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
