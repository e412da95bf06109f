"""Crash tests of tasks that write to a database for tests on PostgreSQL: each commit is a point."""

from __future__ import annotations

import inspect
import os
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import outlast
from examples.lease_mail import app as lease_mail
from harness.servers import PostgresServer
from outlast.errors import UsageError
from outlast.testing.crashes import CrashReport, crash_test
from outlast.testing.crashes.runs import may_reach
from tests.app import own_store
from tests.cases import each_case

OWN = own_store.__name__
app = outlast.App("sqlite:///own.db")
ORDERS = [1, 2]
INSERT = "INSERT INTO orders VALUES ({})"
ONCE = " ON CONFLICT DO NOTHING"


@app.task
def psycopg_plain(url: str, again: str) -> None:
    with psycopg.connect(url) as db:
        for order in ORDERS:
            db.execute(INSERT.format("%s") + again, [order])  # here
            db.commit()


@app.task
async def psycopg_async(url: str, again: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        for order in ORDERS:
            async with db.transaction():
                await db.execute(INSERT.format("%s") + again, [order])  # here


@app.task
async def asyncpg_alone(url: str, again: str) -> None:
    db = await asyncpg.connect(url)
    try:
        for order in ORDERS:
            async with db.transaction():
                await db.execute(INSERT.format("$1") + again, order)  # here
    finally:
        await db.close()


@app.task
async def asyncpg_pool(url: str, again: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        for order in ORDERS:
            await pool.execute(INSERT.format("$1") + again, order)  # here


@app.task
def sqlalchemy_engine(url: str, again: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    for order in ORDERS:
        with engine.begin() as db:
            db.execute(text(INSERT.format(":number") + again), {"number": order})  # here
    engine.dispose()


@app.task
async def sqlalchemy_asyncpg(url: str, again: str) -> None:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    for order in ORDERS:
        async with engine.begin() as db:
            await db.execute(text(INSERT.format(":number") + again), {"number": order})  # here
    await engine.dispose()


TASKS = [
    psycopg_plain,
    psycopg_async,
    asyncpg_alone,
    asyncpg_pool,
    sqlalchemy_engine,
    sqlalchemy_asyncpg,
]


def call(name: str, url: str, again: str = "") -> outlast.Call[None]:
    task: outlast.Task[..., None] = app.find(name)
    return task.call(url, again)


@pytest.fixture
def url(
    bare_pg_url: str, pg_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{pg_server.bin}:{os.environ['PATH']}")  # so that psql is found
    return bare_pg_url


def run(url: str, name: str, again: str = "", unique: str = "", **options: Any) -> CrashReport:
    make = f"CREATE TABLE orders (number integer {unique})"
    reset = f"DROP TABLE IF EXISTS orders; {make}"
    return crash_test(
        f"{__name__}:app",
        f"{__name__}:call",
        arguments={"name": name, "url": url, "again": again},
        allow_connect=[urlsplit(url).port or 0],
        reset=do(url, reset),
        compare=do(url, "SELECT number FROM orders ORDER BY 1"),
        **options,
    )


def do(url: str, sql: str) -> str:
    """Return the command of the shell that executes this, and prints rows."""
    return shlex.join(["psql", "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql, url])


def line_of(task: outlast.Task[..., None]) -> str:
    lines, first = inspect.getsourcelines(task.fn)
    (at,) = [at for at, line in enumerate(lines) if "# here" in line]
    return f"test_crashes_on_postgres.py:{first + at}"


@pytest.mark.slow_but("asyncpg_pool")
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_commit_that_a_crash_repeats_is_found(
    url: str, task: outlast.Task[[str, str], None]
) -> None:
    report = run(url, task.name)
    (finding,) = report.findings
    assert finding.effect == "lines of --compare"
    assert "3 rows, not 2" in finding.times
    assert "ON CONFLICT DO NOTHING" in finding.remedy
    assert [each.kind for each in report.points] == ["commit", "commit"]
    assert "(orders)" in report.points[0].what
    assert line_of(task) == line_before(report.points[0].line, task)


def line_before(line: str, task: outlast.Task[..., None]) -> str:
    """Return the line of the statement in whose function this one is."""
    lines, first = inspect.getsourcelines(task.fn)
    number = int(line.rpartition(":")[2])
    assert first <= number < first + len(lines)
    return line_of(task)


@pytest.mark.slow_but("psycopg_plain")
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_commit_with_a_key_is_clean(url: str, task: outlast.Task[[str, str], None]) -> None:
    run(url, task.name, ONCE, "PRIMARY KEY").check()


@app.task
def leaves_its_transaction_open(url: str, again: str) -> None:
    assert outlast.current().checkpoint in {None, 1}
    db = psycopg.connect(url)
    KEPT.append(db)  # an attempt that is killed does not close it
    db.execute("SET lock_timeout = '20s'; LOCK TABLE orders")
    outlast.current().save_sync(1)
    db.commit()


KEPT: list[psycopg.Connection[Any]] = []


def test_a_killed_attempt_leaves_no_transaction_open(url: str) -> None:
    run(url, "leaves_its_transaction_open").check()


@app.task(retries=0)
def completes_in_it(url: str, again: str) -> None:
    with psycopg.connect(url) as db:
        outlast.current().complete_in_sync(db)


def test_a_completion_on_a_server_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(UsageError, match="the store is a SQLite file: connect to"):
        run(url, "completes_in_it")


def test_a_command_that_fails_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="--reset ends with 3: no such service"):
        crash_test(
            f"{__name__}:app",
            f"{__name__}:call",
            arguments={"name": "psycopg_plain", "url": url},
            reset="echo no such service >&2; exit 3",
        )


def test_the_application_s_own_store_is_reached_only_as_one_for_tests(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its URL comes from."""
    port = urlsplit(url).port or 0
    monkeypatch.setenv("OUTLAST_URL", url)
    given: dict[str, Any] = {
        "app": f"{OWN}:app",
        "call": f"{OWN}:call",
        "allow_connect": [port],
    }
    with pytest.raises(UsageError, match=r"own store.*--test-store"):
        crash_test(**given)
    assert crash_test(**given, test_store=True).is_clean
    assert crash_test(**{**given, "allow_connect": [port + 1]}).is_clean
    monkeypatch.setenv("OUTLAST_URL", url.replace(f":{port}", ""))  # its port is in PGPORT, say
    with pytest.raises(UsageError, match="own store"):
        crash_test(**given)


@each_case(
    ("url", "reaches"),
    [
        ("postgresql://h:5433/d", True),
        ("postgresql://h:5432/d", False),
        ("postgresql://user:5433@h:5432/d", False),
        ("postgresql://a:5432,b:5433/d", True),
        ("postgresql://a:5432,b/d", True),
        ("postgresql://[::5433]/d", True),
        ("postgresql://[::1]:5432/d", False),
        ("postgresql:///d?host=a&port=5432", False),
        ("postgresql:///d?host=a&port=5433", True),
        ("postgresql:///d?service=shop", True),
    ],
)
def test_a_port_that_may_be_that_of_the_store_counts_as_it(url: str, reaches: bool) -> None:
    assert may_reach(url, [5433]) is reaches
    assert not may_reach(url, [])


def mail() -> outlast.Call[str]:
    return lease_mail.send.call("ada")


@pytest.mark.slow
def test_the_example_whose_mail_server_refuses_older_tokens_is_clean(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_URL", url)
    monkeypatch.setenv("OUTLAST_URL", "postgresql://127.0.0.1:1/jobs")
    empty = "DROP TABLE IF EXISTS server, mailbox;"
    report = crash_test(
        "examples.lease_mail.app:app",
        f"{__name__}:mail",
        allow_connect=[urlsplit(url).port or 0],
        reset=do(url, f"{empty} {lease_mail.SERVER} UPDATE server SET accepts = true"),
        compare=do(url, "SELECT recipient, organisation FROM mailbox"),
    )
    report.check()
    assert "commit" in {each.kind for each in report.points}
