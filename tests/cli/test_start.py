"""What a command loads before its first word: a person waits for each import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cases import each_case
from tests.cli.conftest import Filled

LATE = {  # what a command loads once it needs it, if ever
    "asyncpg", "cryptography", "email", "importlib.metadata", "importlib.resources", "jinja2",
    "markdown_it", "matplotlib", "outlast.runner.main", "outlast.store.postgres.store",
    "outlast.store.sqlite.store", "outlast.worker.worker", "prometheus_client", "pygments",
    "sqlite3", "starlette", "structlog", "uvicorn", "uvloop", "zipfile",
}  # fmt: skip
CLIENT = {"outlast.client.app", "outlast.client.task"}  # what an application is made of


def loaded(code: str) -> set[str]:
    """Return the names of all modules that Python has loaded after this code."""
    code += "; import sys; print('loaded', *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("loaded ")[2].split())


def answered(*argv: str) -> set[str]:
    """Return what a command has loaded when it has answered."""
    return loaded(f"from outlast.cli import main; main({[*argv]})")


@pytest.mark.xfail(strict=True, reason="the program loads them first")
def test_the_version_needs_nothing() -> None:
    heavy = {"typer", "msgspec", "asyncio", "rich", "inspect"} | LATE | CLIENT
    assert not heavy & answered("--version")


@pytest.mark.xfail(strict=True, reason="the program loads them first")
@each_case("argv", [["--help"], ["-h"], ["help"], []])
def test_the_help_loads_no_command(argv: list[str]) -> None:
    found = answered(*argv)
    modules = {"outlast.cli.listing", "outlast.cli.job", "outlast.cli.worker", "outlast.cli.web"}
    assert not found & (modules | LATE | CLIENT | {"rich", "asyncio", "outlast.store"})


@pytest.mark.xfail(strict=True, reason="the program loads them first")
@pytest.mark.on_both_stores
@each_case("argv", [["jobs"], ["why", "1"], ["job", "1"], ["workers"], ["stats"], ["dead", "list"]])
def test_a_command_that_reads_loads_its_own_driver_alone(argv: list[str], filled: Filled) -> None:
    own = {"asyncpg", "outlast.store.postgres.store"}
    if filled.url.startswith("sqlite"):
        own = {"sqlite3", "outlast.store.sqlite.store"}
    found = answered(*argv, "--url", filled.url)
    assert own <= found
    assert not (LATE | CLIENT) - own & found
