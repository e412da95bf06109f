"""``outlast doctor`` against real stores, with real settings changed under it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from harness.pgbouncer import PgBouncerServer
from harness.servers import PostgresServer
from outlast.model.job import Policy
from outlast.store import open_store
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.protocol import Store
from tests.cases import each_case
from tests.cli.conftest import Filled, Outlast
from tests.cli.rows import opened
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, enqueued, job
from tests.unit.insight.rows_kit import names

SOUND = {"fsync": "on", "full_page_writes": "on", "max_prepared_transactions": "5"}


def found(outlast: Outlast, url: str, *more: str, code: int = 0, **env: str) -> dict[str, Any]:
    """Return the findings by name; where there are several of a name, the last."""
    said = outlast("doctor", *more, "--url", url, "--json", **env)
    assert said.code == code, (said.out, said.err)
    said.code = 0
    document = said.json()
    assert set(document) == names("schema store problems findings")
    assert all(set(one) == names("level name sentence fix") for one in document["findings"])
    assert (document["problems"] > 0) == bool(code)
    return {one["name"]: one for one in document["findings"]}


def level(findings: dict[str, Any], name: str) -> str | None:
    return findings[name]["level"] if name in findings else None


async def staffed(url: str) -> None:
    """Make a store with a dead worker, a live one, and a waiting job of an unknown task."""
    async with opened(url) as store:
        await (await Hands.on(store, "w-gone")).vanish()
        await Hands.on(store, "w-here", lease=600.0)
        await enqueued(store, job(task="old.name"), job(task="mail"))


@pytest.fixture
def staffed_url(store_url: str) -> str:
    asyncio.run(staffed(store_url))
    return store_url


@pytest.mark.on_both_stores
def test_doctor_checks_workers_and_jobs(outlast: Outlast, staffed_url: str, folder: Path) -> None:
    code = 0 if staffed_url.startswith("sqlite") else 1  # the tests' server runs without fsync
    findings = found(outlast, staffed_url, "shop:app", code=code)
    assert level(findings, "store") == level(findings, "schema") == "ok"
    assert level(findings, "role") == (None if code == 0 else "warning"), "the tests' superuser"
    assert "w-here" in findings["workers"]["sentence"]
    assert level(findings, "lost_workers") == "warning"
    assert "w-gone" in findings["lost_workers"]["sentence"]
    assert level(findings, "unservable") == "warning"
    assert level(findings, "leases") == "hint"
    assert "tasks are mail, nap" in findings["application"]["sentence"]
    assert findings["unknown_tasks"]["sentence"].endswith("lacks: old.name.")


async def spoiled(url: str) -> int:
    """Make a store in which the row of a dead job and the one of a worker cannot be read."""
    async with opened(url) as store:
        hands = await Hands.on(store, "w-odd")
        await enqueued(store, job(policy=Policy(retries=0)))
        (claimed,) = await hands.claim()
        await hands.hand_in(crashed(claimed))
        async with raw(url) as rows:
            await rows.run("UPDATE outlast_jobs SET policy = '{'")
            await rows.run("UPDATE outlast_workers SET tasks = '{'")
        return claimed.job_id


@pytest.mark.on_both_stores
def test_rows_that_cannot_be_read_are_found(outlast: Outlast, store_url: str) -> None:
    job_id = asyncio.run(spoiled(store_url))
    code = 0 if store_url.startswith("sqlite") else 1
    findings = found(outlast, store_url, code=code)
    assert findings["malformed_jobs"]["sentence"].endswith(f"(policy): {job_id}.")
    assert "w-odd" in findings["malformed_workers"]["sentence"]


def test_an_unencrypted_connection_is_found(outlast: Outlast) -> None:
    away = "postgresql://u:p@0.0.0.0:1/none?sslmode=require"
    findings = found(outlast, away, code=1, OUTLAST_WAKEUP="nats://u:p@nats.invalid")
    assert level(findings, "messenger_tls") == "warning"
    assert level(findings, "tls") == "hint"
    assert level(findings, "secret_in_arguments") == "warning"


def test_an_application_that_does_not_import_is_a_problem(
    outlast: Outlast, rows: Filled, folder: Path
) -> None:
    (folder / "broken.py").write_text("import nothing_like_this\n")
    findings = found(outlast, rows.url, "broken:app", code=1)
    assert "nothing_like_this" in findings["application"]["sentence"]


@each_case(
    ("url", "name", "words", "migrates"),
    [
        ("sqlite:///missing.db", "store", "there is no database file", True),
        ("sqlite:///other.db", "schema", "not an Outlast store yet", True),
        ("sqlite:///text.db", "store", "is not a SQLite database", False),
        ("postgresql://user@127.0.0.1:1/none", "store", "cannot connect", False),
        ("postgresql://user@127.0.0.1:1/none", "store", "are host and port right?", False),
    ],
)
def test_what_is_no_store_is_a_problem_and_is_not_made(
    outlast: Outlast, folder: Path, url: str, name: str, words: str, *, migrates: bool
) -> None:
    (folder / "text.db").write_text("this is a text, and no database" * 300)
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE IF NOT EXISTS mine (id)")
    findings = found(outlast, url, code=1)
    assert words in findings[name]["sentence"]
    assert ("outlast migrate" in findings[name]["fix"]) is migrates
    assert not list(folder.glob("missing*"))


def test_a_file_that_left_wal_mode_is_a_problem_and_is_left_so(
    outlast: Outlast, rows: Filled
) -> None:
    path = rows.url.removeprefix("sqlite:///")
    assert found(outlast, rows.url)["durability"]["level"] == "ok"
    with closing(sqlite3.connect(path)) as changed:
        changed.execute("PRAGMA journal_mode = delete")
        findings = found(outlast, rows.url, code=1)
        assert "'delete' mode" in findings["durability"]["sentence"]
        assert changed.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.fixture(scope="module")
def sound_server() -> Iterator[PostgresServer]:
    """A server as it should be, that these tests may set otherwise."""
    with PostgresServer(settings=SOUND) as server:
        yield server


@pytest.fixture
def sound_url(sound_server: PostgresServer) -> Iterator[str]:
    url = sound_server.create_database("sound")
    asyncio.run(staffed(url))
    yield url
    sound_server.sql("ALTER SYSTEM RESET ALL")
    sound_server.sql("SELECT pg_reload_conf()")
    sound_server.drop_database("sound")


def test_settings_of_the_server_are_found(
    outlast: Outlast, sound_url: str, sound_server: PostgresServer
) -> None:
    own = "ALTER TABLE outlast_jobs SET (autovacuum_vacuum_scale_factor = 0.3, fillfactor = 75)"
    sound_server.sql(own, "sound")  # an operator's own settings are no finding
    findings = found(outlast, sound_url)
    for name in ("version", "durability", "pooler", "connections", "clock", "autovacuum"):
        assert level(findings, name) == "ok", findings[name]
    assert level(findings, "two_phase") == "hint"
    sound_server.sql("ALTER DATABASE sound SET synchronous_commit = off")
    sound_server.sql("ALTER TABLE outlast_jobs SET (autovacuum_enabled = false)", "sound")
    findings = found(outlast, sound_url)
    assert level(findings, "synchronous_commit") == "warning"
    assert "outlast_jobs" in findings["autovacuum"]["sentence"]
    sound_server.sql("ALTER SYSTEM SET autovacuum = off")
    sound_server.sql("SELECT pg_reload_conf()")
    assert "whole server" in found(outlast, sound_url)["autovacuum"]["sentence"]


async def facts_of(store: Store) -> PostgresFacts:
    found = await store.inspector.environment()
    assert isinstance(found, PostgresFacts)
    return found


async def test_a_server_that_counts_nothing_is_seen(
    sound_url: str, sound_server: PostgresServer
) -> None:
    counts = []
    for setting in ("on", "off"):
        sound_server.sql(f"ALTER DATABASE sound SET track_counts = {setting}")
        store = open_store(sound_url)
        counts.append((await facts_of(store)).track_counts)
        await store.close()
    assert counts == ["on", "off"]


async def test_transactions_that_are_left_open_are_seen(
    sound_url: str, sound_server: PostgresServer
) -> None:
    """This test shows that their age is measured; unit tests show which age is too old."""
    store = open_store(sound_url)
    other = await asyncpg.connect(sound_url)
    try:
        assert (await facts_of(store)).oldest_transaction is None
        await other.execute("BEGIN; SELECT 1")
        seen = await facts_of(store)
        assert seen.oldest_transaction is not None
        assert f"process {other.get_server_pid()} of " in (seen.oldest_holder or "")
        await other.execute("COMMIT; BEGIN; SELECT 1; PREPARE TRANSACTION 'left over'")
        seen = await facts_of(store)
        assert (seen.prepared, seen.two_phase) == (1, True)
        assert seen.oldest_prepared is not None
    finally:
        await other.execute("ROLLBACK PREPARED 'left over'")
        await other.close()
        await store.close()


def test_a_server_without_fsync_is_a_problem(outlast: Outlast, pg_url: str) -> None:
    asyncio.run(staffed(pg_url))
    findings = found(outlast, pg_url, code=1)
    assert level(findings, "fsync") == "problem"
    assert level(findings, "full_page_writes") == "warning"


@pytest.mark.pgbouncer
def test_a_pooler_is_noticed(outlast: Outlast, pg_url: str, pgbouncer: PgBouncerServer) -> None:
    asyncio.run(staffed(pg_url))
    findings = found(outlast, pgbouncer.through(pg_url), code=1)
    assert level(findings, "pooler") == "warning"
    assert level(findings, "workers") == "ok"
    assert level(found(outlast, pg_url, code=1), "pooler") == "ok"


ENCRYPTING = """
import outlast

cipher = outlast.Encryption({"k": "A" * 43 + "="}, required=REQUIRED)
app = outlast.App("sqlite:///shop.db", payloads=[cipher])


@app.task
async def mail(to: str = "") -> None: ...
"""


def test_doctor_says_whether_the_application_requires_encryption(
    outlast: Outlast, staffed_url: str, folder: Path
) -> None:
    """Of the plain jobs one is of a task of this application."""
    code = 0 if staffed_url.startswith("sqlite") else 1
    for required, expected in (("False", "hint"), ("True", "warning")):
        text = ENCRYPTING.replace("REQUIRED", required)
        (folder / "sealed.py").write_text(text)
        findings = found(outlast, staffed_url, "sealed:app", code=code)
        assert level(findings, "encryption") == expected
        assert "1 unfinished job of mail" in findings["encryption"]["sentence"]
    assert "encryption" not in found(outlast, staffed_url, "shop:app", code=code)
