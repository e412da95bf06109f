"""What a command loads before its first word: a person waits for each import."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import typer.main

from outlast.cli import main, tree
from tests.cases import each_case
from tests.cli.conftest import Filled

LATE = {  # what a command loads once it needs it, if ever
    "asyncpg", "cryptography", "email", "importlib.metadata", "importlib.resources", "jinja2",
    "markdown_it", "matplotlib", "outlast.runner.main", "outlast.store.postgres.store",
    "outlast.store.sqlite.store", "outlast.worker.worker", "prometheus_client", "pygments",
    "sqlite3", "starlette", "structlog", "uvicorn", "uvloop", "zipfile",
}  # fmt: skip
CLIENT = {"outlast.client.app", "outlast.client.task"}  # what an application is made of
OF_AN_APPLICATION = {
    "worker", "dev", "enqueue", "run-task", "crash-test", "run", "rehearse", "doctor",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    """Return the names of all modules that Python has loaded after this code."""
    code += "; import sys; print('loaded', *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("loaded ")[2].split())


def answered(*argv: str) -> set[str]:
    """Return what a command has loaded when it has answered."""
    return loaded(f"from outlast.cli import main; main({[*argv]})")


def test_the_version_needs_nothing() -> None:
    heavy = {"typer", "msgspec", "asyncio", "rich", "inspect"} | LATE | CLIENT
    assert not heavy & answered("--version")


@each_case("argv", [["--help"], ["-h"], ["help"], []])
def test_the_help_loads_no_command(argv: list[str]) -> None:
    found = answered(*argv)
    modules = {f"outlast.cli.{each}" for each, _ in tree.COMMANDS.values()} - {
        "outlast.cli.completion"
    }
    assert not found & (modules | LATE | CLIENT | {"rich", "asyncio", "outlast.store"})


@pytest.mark.parametrize("name", tree.COMMANDS)
def test_a_command_loads_no_driver_no_server_and_no_other_command(name: str) -> None:
    found = loaded(f"from outlast.cli import tree; tree.build([{name!r}])")
    unwanted = LATE if name in OF_AN_APPLICATION else LATE | CLIENT
    assert not unwanted & found


@pytest.mark.on_both_stores
@each_case("argv", [["jobs"], ["why", "1"], ["job", "1"], ["workers"], ["stats"], ["dead", "list"]])
def test_a_command_that_reads_loads_its_own_driver_alone(argv: list[str], filled: Filled) -> None:
    own = {"asyncpg", "outlast.store.postgres.store"}
    if filled.url.startswith("sqlite"):
        own = {"sqlite3", "outlast.store.sqlite.store"}
    found = answered(*argv, "--url", filled.url)
    assert own <= found
    assert not (LATE | CLIENT) - own & found


def test_the_list_of_commands_has_the_first_line_of_the_help_of_each() -> None:
    group = typer.main.get_command(tree.build())
    listed = {name: summary for name, (_, summary) in tree.COMMANDS.items()}
    assert listed == {
        name: (each.help or "").partition("\n\n")[0]
        for name, each in vars(group)["commands"].items()
    }


def test_a_program_that_calls_a_command_keeps_its_garbage_collector(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frozen = gc.get_freeze_count()
    for argv in (["--version"], ["--help"], ["nothing"]):
        main(argv)
        assert gc.isenabled()
        assert gc.get_freeze_count() <= frozen
