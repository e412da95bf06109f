"""Crash tests of tasks that write to a database for tests on PostgreSQL: each commit is a point."""

from __future__ import annotations

import inspect
import os
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import outlast
from examples.lease_mail import app as lease_mail
from harness.servers import PostgresServer
from outlast.errors import UsageError
from outlast.testing.crashes import CrashReport, crash_test
from outlast.testing.crashes.runs import may_reach
from tests.app import own_store, postgres_programs
from tests.cases import each_case

OWN = own_store.__name__
PROGRAMS = postgres_programs.__name__
TASKS = [
    postgres_programs.psycopg_plain,
    postgres_programs.psycopg_async,
    postgres_programs.asyncpg_alone,
    postgres_programs.asyncpg_pool,
    postgres_programs.sqlalchemy_engine,
    postgres_programs.sqlalchemy_asyncpg,
]


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
        f"{PROGRAMS}:app",
        f"{PROGRAMS}:call",
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
    return f"postgres_programs.py:{first + at}"


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
    run(url, task.name, postgres_programs.ONCE, "PRIMARY KEY").check()


def test_a_killed_attempt_leaves_no_transaction_open(url: str) -> None:
    run(url, "leaves_its_transaction_open").check()


def test_a_completion_on_a_server_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(UsageError, match="the store is a SQLite file: connect to"):
        run(url, "completes_in_it")


def test_a_command_that_fails_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="--reset exited with 3: no such service"):
        crash_test(
            f"{PROGRAMS}:app",
            f"{PROGRAMS}:call",
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


@pytest.mark.slow
def test_the_example_whose_mail_server_refuses_older_tokens_is_clean(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_URL", url)
    monkeypatch.setenv("OUTLAST_URL", "postgresql://127.0.0.1:1/jobs")
    empty = "DROP TABLE IF EXISTS server, mailbox;"
    report = crash_test(
        "examples.lease_mail.app:app",
        f"{PROGRAMS}:mail",
        allow_connect=[urlsplit(url).port or 0],
        reset=do(url, f"{empty} {lease_mail.SERVER} UPDATE server SET accepts = true"),
        compare=do(url, "SELECT recipient, organisation FROM mailbox"),
    )
    report.check()
    assert "commit" in {each.kind for each in report.points}
