"""The app of Django on Django 6, which has `django.tasks` itself and needs Python 3.12."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest

from harness.scene import ROOT
from tests.contrib.django_kit import SECONDS, manage
from tests.contrib.test_django import CHECKS

NEEDED = set(
    re.findall(
        r"\S+",
        """
        annotated-doc anyio asgiref asyncpg click cronsim django idna jinja2 markdown-it-py
        markupsafe mdurl msgspec prometheus-client psutil psycopg psycopg-binary pygments rich
        shellingham sqlparse starlette structlog typer typing-extensions tzdata
        """,
    )
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("django-6"),
    pytest.mark.skipif(django.VERSION >= (6, 0), reason="the other tests run on Django 6 here"),
]


def newer_pythons() -> Iterator[str]:
    """Yield the interpreters here that Django 6 runs on and our lock file knows."""
    installed = Path.home() / ".pyenv" / "versions"
    for minor in (12, 13):
        name = f"python3.{minor}"
        yield from filter(None, [shutil.which(name)])
        yield from map(str, sorted(installed.glob(f"3.{minor}.*/bin/{name}")))


def locked() -> str:
    """Return the lines of the lock file for what the project needs."""
    text = (ROOT / "requirements" / "dev.txt").read_text()
    entries = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.DOTALL | re.MULTILINE)
    return "".join(each for each in entries if re.split(r"[=\[]", each)[0] in NEEDED)


@pytest.fixture(scope="module")
def python_of_6(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with Django 6, from the lock file."""
    found = next((each for each in newer_pythons() if works(each)), None)
    if found is None:
        pytest.skip("Django 6 needs Python 3.12 or 3.13, and there is none here")
    folder = tmp_path_factory.mktemp("django-6")
    lock = folder / "lock.txt"
    lock.write_text(locked())
    python = str(folder / "bin" / "python")
    run(found, "-m", "venv", str(folder))
    pip = ("-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--require-hashes")
    run(python, *pip, "--disable-pip-version-check", "-r", str(lock))
    (site,) = folder.glob("lib/python*/site-packages")
    installed = site / "outlast-0.dist-info"  # its code is found by PYTHONPATH
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: outlast\nVersion: 0\n")
    return python


def works(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import venv, ensurepip"], capture_output=True, check=False
    )
    return done.returncode == 0


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_s_tests_pass_on_django_6(
    bare_store_url: str, python_of_6: str, tmp_path: Path
) -> None:
    own: dict[str, Any] = {"PYTHONWARNINGS": "error:Overriding"}  # what a later Django takes away
    if bare_store_url.startswith("sqlite"):
        own["BOOKSHOP_TEST_FILE"] = str(tmp_path / "test.sqlite3")
    done = manage(
        bare_store_url, "test", *CHECKS, "--noinput", "--buffer", python=python_of_6, **own
    )
    assert "OK" in done.stderr, done.stderr
