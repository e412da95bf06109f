"""Crash tests: seeded mistakes are found with their line and remedy, correct tasks are clean, and
nothing leaves the sandbox."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine

import outlast
from examples.analysis_service import app as analysis_service
from examples.automation_registry import app as automation_registry
from examples.census import app as census
from examples.order_import import app as order_import
from outlast.errors import UsageError
from outlast.testing.crashes import CrashReport, crash_test
from outlast.testing.crashes.cases import describe_cases
from tests.app import crash_programs
from tests.app.crash_programs import app, prepare
from tests.cases import each_case

LINES = Path(crash_programs.__file__).read_text().splitlines()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, **options: Any) -> CrashReport:
    task: outlast.Task[[], Any] = getattr(crash_programs, name)

    def call() -> outlast.Call[Any]:
        prepare()
        return task.call()

    return crash_test(app, call, **options)


def line_of(name: str) -> str:
    (number,) = [at for at, line in enumerate(LINES, 1) if "mistake:" in line and name in line]
    return f"crash_programs.py:{number}"


TWICE = "; delivered twice"
MISTAKES = [
    ("imports_again", "rows of orders in shop.db", "complete_in", "killed at 2, 3" + TWICE),
    ("claims_before_it_imports", "rows of entries in ledger.db", "step_in", "killed at 2, 4, 6"),
    (
        "stumbles_over_itself",
        "the job",
        "has left",
        "killed at 2, 3; lease lost at 1, 2, 3" + TWICE,
    ),
    ("starts_over", "checkpoint", "begin at attempt.checkpoint", "killed at 3, 4, 5, 6"),
    ("swallows_the_loss", "LostLease", "do not catch", "lease lost at 1, 2"),
    ("bills_twice", "jobs of bill", "key=", "killed at 2, 3; lease lost at 1, 2, 3; drained at"),
    (
        "notes_each_stop",
        "rows of orders in ledger.db",
        "ON CONFLICT",
        "lease lost at 1; drained at 1, 2, 3" + TWICE,
    ),
    ("appends_again", "report.txt", "os.replace", "killed at 3, 6, 9; lease lost at 1, 2, 3"),
    ("trusts_what_is_there", "report.txt", "os.replace", "killed at 2"),
]


@pytest.mark.parametrize(("name", "effect", "remedy", "when"), MISTAKES)
def test_a_mistake_is_found_with_its_line_and_remedy(
    name: str, effect: str, remedy: str, when: str
) -> None:
    report = run(name)
    assert [(each.effect, each.line) for each in report.findings] == [(effect, line_of(name))]
    assert remedy in report.findings[0].remedy
    assert describe_cases(report.findings[0].cases).startswith(when)
    with pytest.raises(AssertionError, match=effect):
        report.check()


REAL = [each for each in MISTAKES if each[0] in {"imports_again", "appends_again"}]


@pytest.mark.parametrize(("name", "effect", "remedy", "when"), REAL)
def test_a_real_kill_shows_the_same_and_what_was_kept_in_memory(
    name: str, effect: str, remedy: str, when: str
) -> None:
    report = run(name, real=True)
    line = line_of(name)
    assert [(each.effect, each.line) for each in report.findings] == [(effect, line)]
    assert remedy in report.findings[0].remedy
    assert describe_cases(report.findings[0].cases).startswith(when)


@pytest.mark.parametrize("name", ["appends_again"])
def test_runs_in_several_processes_show_the_same_as_in_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.testing.crashes.runs.RUNS_MIN", 2)
    one, many = (run(name, processes=processes) for processes in (1, 2))
    assert one.findings
    assert many.document() == one.document()


@pytest.mark.slow_but("imports_with_keys")
@pytest.mark.parametrize(
    "name",
    [
        "imports_once",
        "imports_in_steps",
        "imports_with_keys",
        "stamps_rows",
        "stamps_coarsely",
        "writes_whole_files",
    ],
)
def test_a_correct_task_is_clean(name: str) -> None:
    report = run(name)
    assert str(report.findings) == "[]"
    assert ("not compared" in str(report)) == name.startswith("stamps")
    assert len(report.points) >= 2


outside = outlast.App("sqlite:///own.db")


@outside.task
def leaves(how: str, path: str) -> None:
    if how == "write":
        Path(path).write_text("out")
    elif how == "remove":
        Path(path).unlink()
    elif how == "exit":
        os._exit(3)
    else:
        os.system(f"touch {path}")


@outside.task
def counts(path: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE counts SET n = n + 1")


@pytest.mark.parametrize("how", ["write", "remove", "start", "exit"])
def test_what_would_leave_the_sandbox_is_refused(how: str, folder: Path) -> None:
    there = folder / "there"
    there.write_text("before")
    with pytest.raises(UsageError, match=r"sandbox|by os\._exit"):
        crash_test(outside, leaves.call(how, str(there)))
    assert there.read_text() == "before"
    assert Path.cwd() == folder


@pytest.mark.parametrize("name", ["counts.db", "own.db", "{folder}/far/counts.db"])
def test_a_task_gets_copies_of_the_databases_that_it_names(folder: Path, name: str) -> None:
    path = Path(name.format(folder=folder))
    path.parent.mkdir(exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE counts AS SELECT 7 AS n")
    connection.close()
    report = crash_test(outside, counts.call(str(path)))
    assert [each.times for each in report.findings] == ["1 rows differ"]
    assert sqlite3.connect(path).execute("SELECT n FROM counts").fetchall() == [(7,)]


def test_one_point_is_repeated_alone_and_many_are_sampled() -> None:
    alone = run("imports_again", point=3)
    assert {case.point for finding in alone.findings for case in finding.cases} == {3}
    assert alone.runs == 4
    some = run("imports_again", points_max=1, seed=1)
    assert "1 of 3 points were tried" in str(some)
    assert some.runs == 5
    with pytest.raises(UsageError, match="there is no point 9: the task has 3"):
        run("imports_again", point=9)


@outside.task
def connects(how: str) -> None:
    if how == "psycopg":
        psycopg.connect("postgresql://127.0.0.1:1/shop", connect_timeout=1)
    elif how == "psycopg within SQLAlchemy":
        create_engine("postgresql+psycopg://127.0.0.1:1/shop").connect()
    else:
        asyncio.run(asyncpg.connect("postgresql://127.0.0.1:1/shop"))


@each_case("how", ["psycopg", "psycopg within SQLAlchemy", "asyncpg"])
def test_a_connection_is_refused(how: str) -> None:
    with pytest.raises(UsageError, match="the task connects to a server"):
        crash_test(outside, connects.call(how))


def make_may() -> outlast.Call[int]:
    engine = order_import.connect()
    order_import.Base.metadata.create_all(engine)
    engine.dispose()
    return order_import.import_file.call("may.csv", [(1, 100), (2, 200)])


def make_analysis() -> outlast.Call[dict[str, Any]]:
    return analysis_service.analyze.call(make_repository(Path.cwd().parent / "tmp"), 2)


def make_repository(folder: Path) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(2):
        (folder / f"{number}.py").write_text("x = 1\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "more"], check=True)
    return str(folder)


def make_census() -> outlast.Call[dict[str, Any]]:
    return census.analyze.call(make_repository(Path.cwd().parent / "tmp"), 2, every=1)


@pytest.mark.slow_but("make_analysis")
@pytest.mark.parametrize(
    ("application", "call"),
    [
        (order_import.app, make_may),
        (order_import.app, order_import.reserve.call(3)),
        (automation_registry.app, automation_registry.describe.call("a.png")),
        (order_import.app, order_import.year_report.call(2)),
        (analysis_service.app, make_analysis),
        (census.app, make_census),
    ],
)
def test_the_examples_are_clean_as_far_as_they_run_in_process(
    application: outlast.App, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", "postgresql://127.0.0.1:1/shop")
    crash_test(application, call, allow_command=["git"]).check()
