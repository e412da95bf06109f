"""Stores that cannot be used, and ``outlast migrate``, which makes and updates them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.cases import each_case
from tests.cli.conftest import Outlast
from tests.cli.rows import opened, populated
from tests.conformance.kit import Hands, job


@pytest.fixture
async def session(bare_pg_url: str) -> AsyncIterator[Any]:
    """A session of the test's own on PostgreSQL."""
    connection = await asyncpg.connect(bare_pg_url)
    yield connection
    await connection.close()


def a_text(path: Path) -> None:
    path.write_bytes(b"this is a text, and no database" * 300)


def damaged(path: Path) -> None:
    populated(f"sqlite:///{path}")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))


def newer(path: Path) -> None:
    populated(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE outlast_schema SET compatible_from = '99.0'")


@pytest.mark.parametrize(
    "command", [["jobs"], ["migrate"], ["enqueue", "shop:app", "nap", "1"]], ids=" ".join
)
@each_case(
    ("spoil", "code", "words"),
    [
        (a_text, 3, "is not a SQLite database"),
        (damaged, 3, "is not a SQLite database"),
        (newer, 3, "serves Outlast 99.0 and later"),
        (Path.mkdir, 2, "is a directory"),
    ],
)
def test_a_file_that_no_command_can_use_is_refused(
    outlast: Outlast,
    folder: Path,
    command: list[str],
    spoil: Callable[[Path], object],
    code: int,
    words: str,
) -> None:
    """`test_broken_files.py` tries more kinds, and each command."""
    path = folder / f"{spoil.__name__}.db"
    spoil(path)
    said = outlast(*command, "--url", f"sqlite:///{path.name}")
    assert (said.code, words in said.err) == (code, True), said.err
    assert "Traceback" not in said.err


@each_case("command", [["jobs"], ["migrate"], ["worker", "shop:app"]])
def test_a_database_that_cannot_be_reached_is_unavailable(
    outlast: Outlast, command: list[str]
) -> None:
    said = outlast(*command, "--url", "postgresql://app:hush@127.0.0.1:1/shop")
    assert said.code == 3, said.err
    assert "127.0.0.1:1" in said.err
    assert "hush" not in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("before", "after", "remedy"),
    [
        (r":\d+/", ":1/", "is a server started there, and are host and port right?"),
        (r"127\.0\.0\.1:\d+", "localhost:1", "is a server started there"),
        (r"127\.0\.0\.1", "db.invalid", "is the host spelt right"),
        (r"\w+$", "none", "make it with createdb, or correct the URL"),
        (r"//\w+@", "//no_such_role@", "make the role (CREATE ROLE ... LOGIN)"),
    ],
    ids=["refused", "several addresses", "unknown host", "unknown database", "unknown role"],
)
def test_a_connection_that_cannot_be_made_says_what_to_do(
    outlast: Outlast, pg_url: str, before: str, after: str, remedy: str
) -> None:
    said = outlast("stats", "--url", re.sub(before, after, pg_url))
    assert said.code == 3
    assert remedy in said.err, said.err


@pytest.mark.on_both_stores
def test_migrate_makes_a_store_and_says_so(outlast: Outlast, bare_store_url: str) -> None:
    outlast("migrate", "--check", "--url", bare_store_url).refused(
        1, "0001 schema", "outlast migrate"
    )
    made = outlast("migrate", "--url", bare_store_url)
    assert made.code == 0, made.err
    assert "applied 0001 schema" in made.out
    assert "nothing to do" in outlast("migrate", "--url", bare_store_url).out
    checked = outlast("migrate", "--check", "--url", bare_store_url)
    assert checked.code == 0
    assert "is up to date" in checked.out
    assert "no jobs yet in" in outlast("jobs", "--url", bare_store_url).out
    assert outlast("jobs", "--queue", "q", "--url", bare_store_url).out == "no such jobs\n"


def test_migrate_check_makes_nothing(outlast: Outlast, folder: Path) -> None:
    outlast("migrate", "--check", "--url", "sqlite:///new.db").refused(1, str(folder / "new.db"))
    assert not list(folder.glob("new.db*"))


def test_migrate_hides_the_password(outlast: Outlast, bare_pg_url: str) -> None:
    said = outlast("migrate", "--url", bare_pg_url.replace("postgres@", "postgres:hush@"))
    assert "postgres:***@" in said.out
    assert "hush" not in said.out + said.err


@pytest.mark.on_both_stores
async def test_after_a_restore_tokens_go_on_far_above(
    outlast: Outlast, bare_store_url: str
) -> None:
    async with opened(bare_store_url) as store:
        hands = await Hands.on(store)
        await store.enqueue([job(), job()])
        before = (await hands.claim_one()).token
        said = outlast("migrate", "--after-restore", "--url", bare_store_url)
        assert said.code == 0, said.err
        after = (await hands.claim_one()).token
    found = re.search(r"tokens go on above (\d+)", said.out)
    assert found is not None, said.out
    assert before + 1_000_000 <= int(found[1]) < after


@pytest.fixture
async def role(session: Any) -> AsyncIterator[str]:
    """A role of PostgreSQL that may do nothing yet."""
    name = "outlast_cli_role"
    await session.execute(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN")
    yield name
    await session.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_migrate_says_who_has_to_migrate(outlast: Outlast, bare_pg_url: str, role: str) -> None:
    async def close_public() -> None:  # as it is from PostgreSQL 15 on
        connection = await asyncpg.connect(bare_pg_url)
        await connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        await connection.close()

    asyncio.run(close_public())
    own = bare_pg_url.replace("postgres@", f"{role}@")
    migrate = ("migrate", "--url", own)
    allow = "its owner has to migrate, or to GRANT CREATE ON SCHEMA"
    outlast(*migrate).refused(3, allow, "(permission denied for schema public)")
    outlast("migrate", "--url", bare_pg_url)
    for command in (migrate, (*migrate, "--grant", role)):
        outlast(*command).refused(3, "migrate as their owner", "(permission denied")


def test_migrate_grants_privileges_to_a_role(outlast: Outlast, bare_pg_url: str, role: str) -> None:
    own = bare_pg_url.replace("postgres@", f"{role}@")
    outlast("migrate", "--url", bare_pg_url)
    outlast("jobs", "--url", own).refused(3, "lacks a privilege. The owner of the tables")
    found = outlast("doctor", "--url", own, "--json")
    assert found.code == 1
    (amiss,) = (f for f in json.loads(found.out)["findings"] if f["name"] == "privileges")
    assert "--grant" in amiss["fix"]
    enqueuing = ("migrate", "--grant", role, "--only", "enqueue", "--url", bare_pg_url)
    said = outlast(*enqueuing, "--verbose")
    assert f"granted to {role}: INSERT (task, queue, priority, policy, " in said.out
    summary = f"{role} may enqueue jobs and read them (no new privileges)\n"
    assert summary in outlast(*enqueuing).out
    assert outlast("enqueue", "shop:app", "nap", "1", "--url", own).code == 0
    assert "No worker is alive" in outlast("why", 1, "--url", own).out
    assert outlast("job", 1, "--url", own).code == 0
    found = json.loads(outlast("doctor", "--url", own, "--json").out)["findings"]
    told = {one["name"]: one for one in found if one["name"] in ("privileges", "unread")}
    assert "may enqueue jobs and read them" in told["privileges"]["sentence"]
    assert (told["privileges"]["level"], told["unread"]["level"]) == ("ok", "hint")
    outlast("cancel", 1, "--url", own).refused(3, "lacks a privilege", "or fewer with --only")
    worker = outlast("worker", "shop:app", "--url", own)
    worker.refused(3, "lacks privileges that a worker needs", "UPDATE ON TABLE outlast_jobs")
    _, last = outlast("migrate", "--grant", role, "--url", bare_pg_url).out.splitlines()
    assert re.fullmatch(rf"{role} may do what a worker does \(\d+ new privileges\)", last)
    assert outlast("cancel", 1, "--url", own).code == 0


@pytest.mark.parametrize(
    ("purpose", "may"),
    [
        ("view", "read everything"),
        ("produce", "call outlast_enqueue_v1"),
    ],
)
def test_doctor_says_what_a_role_is_for(
    outlast: Outlast, bare_pg_url: str, role: str, purpose: str, may: str
) -> None:
    outlast("migrate", "--url", bare_pg_url)
    outlast("migrate", "--grant", role, "--only", purpose, "--url", bare_pg_url)
    found = outlast("doctor", "--url", bare_pg_url.replace("postgres@", f"{role}@"), "--json")
    findings = json.loads(found.out)["findings"]
    (told,) = (one for one in findings if one["name"] == "privileges")
    assert told["level"] == "ok"
    assert told["sentence"] == f"The role {role} may {may}, and is not for workers."


def test_grants_that_cannot_be_made_are_refused(outlast: Outlast, bare_pg_url: str) -> None:
    outlast("migrate", "--grant", "no_such_role", "--url", bare_pg_url).refused(
        2, "no role 'no_such_role'"
    )
    outlast("migrate", "--grant", "a", "--url", "sqlite:///x.db").refused(2, "knows no roles")
