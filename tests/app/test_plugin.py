"""The pytest plugin as users meet it: pytest runs their tests, in a process of its own."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import pytest_outlast

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "testing.md"
PLUGINS = ("-p", "pytest_outlast", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
pytest_plugins = ["pytester"]

APPLICATION = """
import outlast

app = outlast.App("sqlite:////nowhere/production.db")
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
import jobs
import outlast.testing

def test_plainly(outlast_app):
    jobs.mail.enqueue_sync("a")
    outlast_app.enqueued(jobs.mail, to="a")
    assert outlast_app.drain_sync() == 1

async def test_in_a_loop(outlast_app):
    assert outlast_app.jobs() == []  # of the test before
    await jobs.walk.enqueue(3)
    outlast_app.crash_after_save(2)
    assert await outlast_app.drain() == 2

@pytest.mark.parametrize("n", [1, 2])
async def test_again_and_again(outlast_app: outlast.testing.AppUnderTest, n):
    job = await jobs.walk.enqueue(2)
    outlast_app.lose_lease(n)
    await outlast_app.drain()
    await job.result(timeout=60)

class TestMail(unittest.TestCase):
    def setUp(self):
        self.jobs = self.enterContext(outlast.testing.isolate(jobs.app))

    def test_mail(self):
        jobs.mail.enqueue_sync("b")
        self.jobs.enqueued(jobs.mail, "b")
        self.jobs.drain_sync()

class TestWalk(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.jobs = self.enterContext(outlast.testing.isolate(jobs.app))

    async def test_walk(self):
        await jobs.walk.enqueue(2)
        self.jobs.crash_after_save()
        await self.jobs.drain()

def test_a_failure_says_what_was_enqueued_instead(outlast_app):
    jobs.mail.enqueue_sync("a")
    outlast_app.enqueued(jobs.mail, to="b")

async def test_on_a_server(outlast_postgres):
    await jobs.walk.enqueue(3)
    outlast_postgres.crash_after_save(2)
    await outlast_postgres.drain()

def test_on_a_server_that_was_emptied(outlast_postgres):
    assert outlast_postgres.jobs() == []
    jobs.mail.enqueue_sync("a")
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


def test_plain_async_and_unittest_tests_use_the_kit(
    pytester: pytest.Pytester, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of this suite take seconds
    monkeypatch.setenv("OUTLAST_TEST_POSTGRES", pg_url)
    pytester.makeini(SETTINGS)
    pytester.makepyfile(jobs=APPLICATION, test_it=TESTS)
    done = pytester.runpytest_subprocess(*PLUGINS, timeout=200)
    done.assert_outcomes(passed=8, failed=1)
    done.stdout.fnmatch_lines(["*job 1 mail(to='a') [[]queued[]]: to is 'a', not 'b'"])


def blocks_of(name: str, language: str = "python") -> str:
    """Return what the page shows of a file, in its order."""
    mark = re.escape(f"<!-- {name} -->")
    found = re.findall(
        rf"^{mark}\n```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found, name
    return "\n\n".join(found)


def test_the_code_of_the_page_does_what_the_page_says(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini(SETTINGS)
    for name in ("jobs", "careless", "test_jobs", "test_careless", "test_unit"):
        pytester.makepyfile(**{name: blocks_of(f"{name}.py")})
    done = pytester.runpytest_subprocess(*PLUGINS, timeout=200)
    done.assert_outcomes(passed=8, failed=2)
    said = {line.removeprefix("E").strip() for line in done.outlines}
    assert set(blocks_of("what test_careless.py says", "").splitlines()) <= said


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("", "which application"),
        ("jobs_of_plugin:ap", "there is jobs_of_plugin:app"),
        ("no_jobs_of_plugin:app", "no module named 'no_jobs_of_plugin'"),
    ],
)
def test_an_application_that_is_not_found_is_told(
    pytester: pytest.Pytester, setting: str, says: str
) -> None:
    pytester.makepyfile(jobs_of_plugin=APPLICATION)
    pytester.syspathinsert()
    pytester.makeini(f"[pytest]\noutlast_app = {setting}\n")
    config = pytester.parseconfig("-p", "pytest_outlast")
    with pytest.raises(pytest.fail.Exception, match=says):
        pytest_outlast._find_app(config)


def test_a_database_that_is_not_named_is_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTLAST_TEST_POSTGRES", raising=False)
    with pytest.raises(pytest.fail.Exception, match="set outlast_postgres = postgresql://"):
        pytest_outlast._find_url(pytester.parseconfig("-p", "pytest_outlast"))
    url = "postgresql://localhost/test_jobs"
    pytester.makeini(f"[pytest]\noutlast_postgres = {url}\n")
    assert pytest_outlast._find_url(pytester.parseconfig("-p", "pytest_outlast")) == url


def test_pytest_s_start_imports_nothing_of_outlast(pytester: pytest.Pytester) -> None:
    code = "import sys, pytest_outlast; print([x for x in sys.modules if x.startswith('outlast')])"
    assert pytester.run(sys.executable, "-c", code).outlines == ["[]"]


def test_the_package_brings_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["pytest11"].items()
    assert EntryPoint(name, value, "pytest11").load() is pytest_outlast
    assert name == pytest_outlast.__name__  # so that -p NAME does not load it twice
