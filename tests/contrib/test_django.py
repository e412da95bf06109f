"""The app of Django, in a real project: its own tests, run by its own test runner."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import django
import pytest

from harness.scene import ROOT
from tests.contrib.django_kit import SECONDS, SITE, manage, plain_environment

pytestmark = pytest.mark.timeout(900)  # each runs many tests, on a busy machine
CHECKS = sorted(f"shop.checks.{path.stem}" for path in SITE.glob("shop/checks/check_*.py"))
IN_MEMORY = [f"shop.checks.check_{name}" for name in ("backend", "documented", "flush")]


def test_the_project_s_tests_pass_on_a_database_in_memory(sqlite_url: str) -> None:
    done = manage(sqlite_url, "test", *IN_MEMORY, "--noinput", "--buffer")
    assert "OK" in done.stderr, done.stderr


@pytest.mark.slow
def test_the_project_s_tests_pass_on_a_file(sqlite_url: str, tmp_path: Path) -> None:
    done = manage(
        sqlite_url,
        "test",
        *CHECKS,
        "--noinput",
        "--buffer",
        BOOKSHOP_TEST_FILE=str(tmp_path / "test.sqlite3"),
    )
    assert "OK" in done.stderr, done.stderr


@pytest.mark.slow
def test_the_project_s_tests_pass_on_postgresql(bare_pg_url: str) -> None:
    done = manage(bare_pg_url, "test", *CHECKS, "--noinput", "--buffer")
    assert "OK" in done.stderr, done.stderr


def blocks_of(text: str, name: str) -> str:
    """Return what a reader has who has pasted all blocks into this file."""
    blocks = re.findall(rf"^<!-- {name} -->\n```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "\n\n".join(blocks)


def as_with_this_django(text: str) -> str:
    """Return the page's text as it tells readers with Django 6 to write it."""
    if django.VERSION < (6, 0):
        return text
    text = text.replace('"django_tasks", "outlast', '"outlast')
    return text.replace("from django_tasks import task", "from django.tasks import task")


@pytest.mark.slow
def test_the_page_s_project_works_as_written(tmp_path: Path) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run("-m", "django", "startproject", "bookshop", ".")
    run("manage.py", "startapp", "books")
    text = as_with_this_django((ROOT / "docs" / "django.md").read_text())
    settings = tmp_path / "bookshop" / "settings.py"
    settings.write_text(settings.read_text() + blocks_of(text, "bookshop/settings.py"))
    for name in ("books/tasks.py", "books/views.py", "books/tests.py"):
        (tmp_path / name).write_text(blocks_of(text, name))
    run("manage.py", "migrate", "-v", "0")
    assert "Ran 5 tests" in run("manage.py", "test")
    assert "no jobs" in run("manage.py", "outlast", "jobs")


@pytest.mark.browser
def test_the_admin_in_a_browser(sqlite_url: str, tmp_path: Path) -> None:
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: make debian")
    done = manage(
        sqlite_url,
        "test",
        "shop.checks.in_a_browser",
        "--noinput",
        "--buffer",
        BOOKSHOP_TEST_FILE=str(tmp_path / "test.sqlite3"),
    )
    assert "OK" in done.stderr, done.stderr
