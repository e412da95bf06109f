"""A role with odd settings, and one with few connections, on this server and on Debian's.

What an administrator sets for a role is there in each of its sessions, before Outlast says a word.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import outlast
from harness.scene import Scene
from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.store.backend import StoreOptions
from outlast.store.postgres import spare
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.values import NewJob
from outlast.worker.in_process import embedded
from tests.cli import conftest as cli
from tests.cli.conftest import Outlast
from tests.conformance.kit import Hands, eventually
from tests.crash.kit import scene
from tests.postgres import conftest as postgres

folder, fork_server, outlast_command = cli.folder, cli.fork_server, cli.outlast
debian_server = postgres.debian_server

ODD = {
    "statement_timeout": "'1ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'1ms'",
    "idle_session_timeout": "'1ms'",
    "default_transaction_isolation": "'serializable'",
    "default_transaction_deferrable": "'on'",
    "search_path": '"$user", public, pg_temp',
    "DateStyle": "'German, DMY'",
    "IntervalStyle": "'sql_standard'",
    "TimeZone": "'Asia/Kathmandu'",
    "bytea_output": "'escape'",
    "extra_float_digits": "'-15'",
    "array_nulls": "'off'",
    "transform_null_equals": "'on'",
    "quote_all_identifiers": "'on'",
    "enable_indexscan": "'off'",
    "enable_nestloop": "'off'",
    "row_security": "'off'",
    "jit_above_cost": "'0'",
    "synchronous_commit": "'off'",
    "client_min_messages": "'debug5'",
}
NO_ROOM = 30.0  # seconds for a job to end where there are few connections


@pytest.fixture(
    scope="module",
    params=["wheel", pytest.param("debian", marks=pytest.mark.debian_postgres)],
)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    if request.param == "debian":
        yield request.getfixturevalue("debian_server")
    else:
        yield request.getfixturevalue("pg_server")


@pytest.fixture
async def owned(server: PostgresServer) -> AsyncIterator[str]:
    """The URL of a superuser to a store that the role ``odd`` owns."""
    server.drop_database("odd")
    server.sql("DROP ROLE IF EXISTS odd; CREATE ROLE odd LOGIN")
    url = server.create_database("odd")
    server.sql("ALTER DATABASE odd OWNER TO odd; GRANT CREATE ON SCHEMA public TO odd", "odd")
    store = PostgresStore(as_odd(url))
    await store.open()
    await store.close()
    yield url
    server.drop_database("odd")
    server.sql("DROP ROLE odd")


def as_odd(url: str) -> str:
    return url.replace("postgres@", "odd@")


async def test_jobs_run_under_odd_settings_of_the_role(
    server: PostgresServer, owned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    for name, value in ODD.items():
        server.sql(f"ALTER ROLE odd SET {name} = {value}")
    if "de_DE" in server.sql("SELECT string_agg(collname, ' ') FROM pg_collation"):
        server.sql("ALTER ROLE odd SET lc_messages = 'de_DE.UTF-8'")
    app = outlast.App(as_odd(owned))

    @app.task
    async def doubled(number: float) -> float:
        return 2 * number

    @app.task
    async def waits() -> None:
        await asyncio.sleep(600)

    async with embedded(app):
        jobs = [await doubled.enqueue(number / 3) for number in range(10)]
        stuck = await waits.enqueue()
        assert [await job.result(timeout=60) for job in jobs] == [2 * (n / 3) for n in range(10)]
        await stuck.cancel()
        with pytest.raises(outlast.OutlastError):
            await stuck.result(timeout=60)
    await app.close()


@pytest.fixture
async def stage(owned: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene whose workers are that role; a superuser, who always gets in, looks at them."""
    async with scene(owned, tmp_path) as opened:
        opened.url = as_odd(owned)
        yield opened


@pytest.mark.parametrize("places", [2, 3])
async def test_a_worker_runs_jobs_with_so_few_connections(
    server: PostgresServer, stage: Scene, places: int
) -> None:
    """It does so from the start, and after its sessions have ended, as at a restart."""
    server.sql(f"ALTER ROLE odd CONNECTION LIMIT {places}")
    await stage.worker("--heartbeat", "1", "--lease", "6")
    for _ in range(3):
        job = await stage.enqueue("noop")
        assert (await stage.ended(job, NO_ROOM)).attempt_count == 1
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'odd'"
        await asyncio.to_thread(server.sql, ended)
    (row,) = await stage.worker_rows()
    assert row.status == "active"


async def until_it_hears(wakeup: PostgresWakeup) -> None:
    async def hears() -> bool:
        return wakeup.health.good

    try:
        await eventually(hears)
    except TimeoutError:
        pytest.fail(f"{wakeup.health}")


@pytest.mark.parametrize("holder", ["wake-up", "presence"])
async def test_the_only_place_goes_to_what_runs_jobs(
    server: PostgresServer, owned: str, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    """A session that a worker can do without has it, ends, and does not come back soon."""
    monkeypatch.setattr(spare, "_refused_until", {})
    url = as_odd(owned)
    store = PostgresStore(url)
    hands = await Hands.on(store)
    wakeup, presence = PostgresWakeup(url), PostgresPresence(url, patience=20.0)

    async def works() -> bool:
        with contextlib.suppress(StoreUnavailable):
            await store.enqueue([NewJob(task="t")])
            return True
        return False

    if holder == "wake-up":
        await wakeup.start(lambda _: None)
        await until_it_hears(wakeup)
    else:
        assert await presence.hold(hands.me) is None
    server.sql("ALTER ROLE odd CONNECTION LIMIT 1")
    await store.drop_connections()
    await eventually(works)
    with pytest.raises(ConnectionError, match="too few connections"):
        await spare.connect_spare(url, StoreOptions())
    await wakeup.close()
    await presence.release()
    await store.close()


@pytest.mark.parametrize("of", ["ROLE", "DATABASE"])
async def test_doctor_sees_the_limit_of_the_role_and_the_database(
    server: PostgresServer, owned: str, outlast_command: Outlast, of: str
) -> None:
    server.sql(f"ALTER {of} odd CONNECTION LIMIT 3")
    said = await asyncio.to_thread(outlast_command, "doctor", "--url", as_odd(owned))
    assert "1 of 3 connections" in said.out
    assert f"ALTER {of} odd CONNECTION LIMIT" in said.out
