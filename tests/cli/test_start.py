"""What a command loads before its first word: a person waits for each import."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import typer.main

from outlast.cli import main, tree
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


PROGRAM = """
import os, sys
first, *each = sys.argv[1:]
exec(first)
for code in each:
    if os.fork() == 0:
        exec(code)
        os.write(2, " ".join(["loaded", *sys.modules, chr(10)]).encode())
        os._exit(0)
    assert os.wait()[1] == 0
"""
ENTRY = "from outlast.cli import main"
COMMON = f"import asyncio, msgspec, typer; from outlast.cli import tree; {ENTRY}"  # what each loads


def loaded(first: str, codes: list[str]) -> list[set[str]]:
    """Return, for each code, the names of all modules that Python has loaded after `first` and it.

    Python starts once: it runs `first`, and forks for each code.
    """
    python = [sys.executable, "-c", PROGRAM, first, *codes]
    done = subprocess.run(python, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
    assert len(lines) == len(codes)
    return [set(line.split()) for line in lines]


def answered(first: str, *argv: list[str]) -> list[set[str]]:
    """Return what each command has loaded when it has answered."""
    return loaded(first, [f"main({each})" for each in argv])


def test_the_version_needs_nothing() -> None:
    heavy = {"typer", "msgspec", "asyncio", "rich", "inspect"} | LATE | CLIENT
    (found,) = answered(ENTRY, ["--version"])
    assert not heavy & found


def test_the_help_loads_no_command() -> None:
    modules = {f"outlast.cli.{each}" for each, _ in tree.COMMANDS.values()} - {
        "outlast.cli.completion"
    }
    unwanted = modules | LATE | CLIENT | {"rich", "asyncio", "outlast.store"}
    for found in answered(ENTRY, ["--help"], ["-h"], ["help"], []):
        assert not found & unwanted


def test_a_command_loads_no_driver_no_server_and_no_other_command() -> None:
    found = loaded(COMMON, [f"tree.build([{name!r}])" for name in tree.COMMANDS])
    unwanted = {
        name: LATE if name in OF_AN_APPLICATION else LATE | CLIENT for name in tree.COMMANDS
    }
    wrong = {name: unwanted[name] & each for name, each in zip(tree.COMMANDS, found, strict=True)}
    assert not any(wrong.values()), wrong


@pytest.mark.on_both_stores
def test_a_command_that_reads_loads_its_own_driver_alone(filled: Filled) -> None:
    own = {"asyncpg", "outlast.store.postgres.store"}
    if filled.url.startswith("sqlite"):
        own = {"sqlite3", "outlast.store.sqlite.store"}
    reads = [["jobs"], ["why", "1"], ["job", "1"], ["workers"], ["stats"], ["dead", "list"]]
    for found in answered(COMMON, *([*argv, "--url", filled.url] for argv in reads)):
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
