"""Crash tests of tasks that write to PostgreSQL: each commit is a point, on a copy."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import outlast
from examples.lease_mail import app as lease_mail
from outlast.errors import UsageError
from outlast.testing.crashes import crash_test

app = outlast.App("sqlite:///own.db")
ORDERS = [1, 2]
INSERT = "INSERT INTO orders VALUES ({})"
COPIES = "SELECT datname FROM pg_database WHERE datname LIKE 'crash_test%'"
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


@pytest.fixture
def url(bare_pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return bare_pg_url


def make(url: str, unique: str = "") -> None:
    with psycopg.connect(url) as db:
        db.execute(f"CREATE TABLE orders (number integer {unique})")
        db.execute("CREATE TABLE runs (number serial, at timestamptz DEFAULT clock_timestamp())")


def line_of(task: outlast.Task[..., None]) -> str:
    lines, first = inspect.getsourcelines(task.fn)
    (at,) = [at for at, line in enumerate(lines) if "# here" in line]
    return f"test_crashes_on_postgres.py:{first + at}"


def read(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as db:
        return db.execute(sql).fetchall()


@pytest.mark.slow_but("asyncpg_pool")
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_commit_that_a_crash_repeats_is_found_with_its_line(
    url: str, task: outlast.Task[[str, str], None]
) -> None:
    make(url)
    report = crash_test(app, task.call(url, ""))
    name = url.rpartition("/")[2].partition("?")[0]
    assert [(each.effect, each.line) for each in report.findings] == [
        (f"rows of orders in {name}", line_of(task))
    ]
    assert "3 rows, not 2" in report.findings[0].times
    assert [each.kind for each in report.points] == ["commit", "commit"]
    assert read(url, "SELECT * FROM orders") == []
    assert read(url, COPIES) == []


@pytest.mark.slow_but("sqlalchemy_engine")
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_commit_with_a_key_is_clean(url: str, task: outlast.Task[[str, str], None]) -> None:
    make(url, "PRIMARY KEY")
    crash_test(app, task.call(url, ONCE)).check()


DJANGO = """
import json, sys
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection, transaction

import outlast
from outlast.testing.crashes import crash_test

parts = urlsplit(sys.argv[1])
database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": parts.path.lstrip("/"),
    "USER": parts.username,
    "PASSWORD": parts.password or "",
    "HOST": parts.hostname,
    "PORT": parts.port,
}
settings.configure(DATABASES={"default": database})
app = outlast.App("sqlite:///own.db")


@app.task
def in_django() -> None:
    for order in (1, 2):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [order])
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (3)")
    connection.close()


print(json.dumps(crash_test(app, in_django.call()).document()))
"""


@pytest.mark.slow
def test_commits_of_django_are_points(url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(DJANGO)
    make(url)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "shop.py"), url], capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    lines = ["shop.py:27", "shop.py:27", "shop.py:30"]
    assert [each["line"] for each in report["points"]] == lines
    (finding,) = report["findings"]
    assert finding["effect"].startswith("rows of orders in ")
    assert finding["line"] == "shop.py:28"
    assert read(url, COPIES) == []


@app.task
def fails_after_its_commit(url: str) -> None:
    psycopg_plain(url, "")
    raise outlast.Dead("at once")


@pytest.mark.parametrize("real", [False, True])
def test_no_copy_is_left_behind_by_a_task_that_fails(url: str, real: bool) -> None:
    make(url)
    with pytest.raises(UsageError, match="the task ends dead"):
        crash_test(app, fails_after_its_commit.call(url), real=real)
    assert read(url, COPIES) == []


@pytest.mark.slow
def test_a_real_kill_leaves_what_was_committed(url: str) -> None:
    make(url)
    report = crash_test(app, psycopg_plain.call(url, ""), real=True)
    assert [each.line for each in report.findings] == [line_of(psycopg_plain)]


@app.task(retries=0)
def completes_in_it(url: str) -> None:
    with psycopg.connect(url) as db:
        outlast.current().complete_in_sync(db)


def test_a_completion_on_a_server_is_refused_with_what_to_do(
    pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the store is a SQLite file: connect to"):
        crash_test(app, completes_in_it.call(pg_url))


def test_a_database_in_use_is_refused_with_what_to_do(url: str) -> None:
    with psycopg.connect(url), pytest.raises(UsageError, match="no other session may use it"):
        crash_test(app, psycopg_plain.call(url, ""))


@pytest.mark.slow
def test_the_example_whose_mail_server_refuses_older_tokens_is_clean(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(url) as db:
        db.execute(f"{lease_mail.SERVER} UPDATE server SET accepts = true")
    monkeypatch.setenv("MAIL_URL", url)
    monkeypatch.setenv("OUTLAST_URL", "postgresql://127.0.0.1:1/jobs")
    report = crash_test(lease_mail.app, lease_mail.send.call("ada"))
    report.check()
    assert "commit" in {each.kind for each in report.points}
