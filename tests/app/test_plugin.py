"""The pytest plugin as users meet it: pytest runs their tests, in a process of its own.

Not by `pytester`: behind each test it removes from `sys.modules` what was imported meanwhile, and
a process that imports asyncpg's C extension a second time crashes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import pytest_outlast
from tests.app.pages_kit import blocks_of, run_pytest, said
from tests.cases import each_case

ROOT = Path(__file__).resolve().parents[2]
PAGE = "testing.md"
APPLICATION = """
import outlast
from jobs import app  # that of the page, which the settings name

sent = []

@app.task
async def mail(to: str) -> None:
    sent.append(to)

@app.task
async def walk(pages: int) -> None:
    attempt = outlast.current()
    for page in range(attempt.checkpoint or 0, pages):
        await attempt.save(page + 1)
"""

TESTS = """
import unittest
import pytest
import shop
import outlast.testing

def test_plainly(outlast_app):
    shop.mail.enqueue_sync("a")
    outlast_app.enqueued(shop.mail, to="a")
    assert outlast_app.drain_sync() == 1

async def test_in_a_loop(outlast_app):
    assert outlast_app.jobs() == []  # of the test before
    await shop.walk.enqueue(3)
    outlast_app.crash_after_save(2)
    assert await outlast_app.drain() == 2

@pytest.mark.parametrize("n", [1, 2])
async def test_again_and_again(outlast_app: outlast.testing.AppUnderTest, n):
    job = await shop.walk.enqueue(2)
    outlast_app.lose_lease(n)
    await outlast_app.drain()
    await job.result(timeout=60)

class TestMail(unittest.TestCase):
    def setUp(self):
        self.jobs = self.enterContext(outlast.testing.isolate(shop.app))

    def test_mail(self):
        shop.mail.enqueue_sync("b")
        self.jobs.enqueued(shop.mail, "b")
        self.jobs.drain_sync()

class TestWalk(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.jobs = self.enterContext(outlast.testing.isolate(shop.app))

    async def test_walk(self):
        await shop.walk.enqueue(2)
        self.jobs.crash_after_save()
        await self.jobs.drain()

def test_a_failure_says_what_was_enqueued_instead(outlast_app):
    shop.mail.enqueue_sync("a")
    outlast_app.enqueued(shop.mail, to="b")

async def test_on_a_server(outlast_postgres):
    await shop.walk.enqueue(3)
    outlast_postgres.crash_after_save(2)
    await outlast_postgres.drain()

def test_on_a_server_that_was_emptied(outlast_postgres):
    assert outlast_postgres.jobs() == []
    shop.mail.enqueue_sync("a")
    assert outlast_postgres.drain_sync() == 1
"""
SETTINGS = """
[pytest]
outlast_app = jobs:app
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
pythonpath = .
filterwarnings = error
"""


def test_users_tests_and_those_of_the_page_do_what_they_say(tmp_path: Path, pg_url: str) -> None:
    """In one process, since pytest's start takes longest."""
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    for name in ("jobs.py", "careless.py", "test_jobs.py", "test_careless.py", "test_unit.py"):
        (tmp_path / name).write_text(blocks_of(PAGE, name))
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "test_shop.py").write_text(TESTS)
    done = run_pytest(tmp_path, OUTLAST_TEST_POSTGRES=pg_url)
    assert re.search(r"\b3 failed, 16 passed in ", done.stdout), done.stdout + done.stderr
    lines = said(done)
    assert "job 1 mail(to='a') [queued]: to is 'a', not 'b'" in lines
    assert set(blocks_of(PAGE, "what test_careless.py says", "").splitlines()) <= lines


@each_case(
    ("setting", "says"),
    [
        ("", "which application"),
        ("examples.census.app:ap", "there is examples.census.app:app"),
        ("no_jobs:app", "no module named 'no_jobs'"),
    ],
)
def test_an_application_that_is_not_found_is_told(setting: str, says: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=says):
        pytest_outlast._find_app(setting)


def test_a_database_that_is_not_named_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_TEST_POSTGRES", raising=False)
    with pytest.raises(pytest.fail.Exception, match="set outlast_postgres = postgresql://"):
        pytest_outlast._find_url("")
    assert pytest_outlast._find_url("postgresql://localhost/test_a").endswith("/test_a")
    monkeypatch.setenv("OUTLAST_TEST_POSTGRES", "postgresql://localhost/test_b")
    assert pytest_outlast._find_url("postgresql://localhost/test_a").endswith("/test_b")


def test_pytest_s_start_imports_nothing_of_outlast() -> None:
    code = "import sys, pytest_outlast; print([x for x in sys.modules if x.startswith('outlast')])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_brings_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["pytest11"].items()
    assert EntryPoint(name, value, "pytest11").load() is pytest_outlast
    assert name == pytest_outlast.__name__  # so that -p NAME does not load it twice


MARKED = """
import pytest

def wants_a_fixture(tmp_path):
    pass

test_wants_a_fixture = pytest.mark.outlast_crashes(wants_a_fixture)

@pytest.mark.outlast_crashes(sandbox=False)
def test_returns_nothing():
    pass
"""


def test_a_marked_test_crashes_the_call_that_it_returns(tmp_path: Path) -> None:
    for name in ("shop.py", "test_shop.py"):
        (tmp_path / name).write_text(blocks_of("crashes.md", name))
    (tmp_path / "pytest.ini").write_text(SETTINGS.replace("jobs:app", "shop:app"))
    (tmp_path / "test_marked.py").write_text(MARKED)
    done = run_pytest(tmp_path)
    assert "3 failed" in done.stdout, done.stdout + done.stderr
    told = blocks_of("crashes.md", "what crash-test says", "").splitlines()
    assert [line for line in told if line not in done.stdout.splitlines()] == []
    assert "runs in a process of its own: write a function without fixtures" in done.stdout
    assert "test_returns_nothing must return task.call(" in done.stdout
