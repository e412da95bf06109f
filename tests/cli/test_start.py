"""The modules that a command loads before its first output: a person waits for each import."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from outlast.cli import main, tree
from tests.cli.conftest import Filled

LATE = {  # what a command loads once it needs it, if ever
    "asyncpg", "cryptography", "email", "importlib.metadata", "importlib.resources", "jinja2",
    "markdown_it", "matplotlib", "outlast.runner.main", "outlast.store.postgres.readable",
    "outlast.store.postgres.store", "outlast.store.sqlite.readable", "outlast.store.sqlite.store",
    "outlast.worker.worker", "prometheus_client", "pygments", "sqlite3", "starlette", "structlog",
    "uvicorn", "uvloop", "zipfile",
}  # fmt: skip
VERBS = {  # what only those need who act, and what few who read need
    "outlast.store.acts", "outlast.store.protocol", "outlast.store.finding",
    "outlast.cli.completion", "outlast.payload.option_words",
    *(
        f"outlast.store.{store}.{each}"
        for store, modules in {
            "postgres": ("acts", "checks", "enqueue", "exchange", "privileges", "workers"),
            "sqlite": ("acts", "exchange", "jobs", "lanes", "streams", "workers"),
        }.items()
        for each in (*modules, "limits", "schedules")
    ),
}  # fmt: skip
OF_OTHER_ANSWERS = {"outlast.insight.documents", "outlast.store.logs"}
CLIENT = {"outlast.client.app", "outlast.client.task"}  # what an application is made of
OF_AN_APPLICATION = {
    "worker", "dev", "enqueue", "run-task", "crash-test", "run", "rehearse", "doctor",
}  # fmt: skip
READS = [
    ["jobs"], ["why", "1"], ["jobs", "--json"], ["jobs", "--args", "x"],
    ["jobs", "--state", "queued"], ["why", "5", "--json"], ["job", "2"], ["job", "3", "--json"],
    ["logs", "3"],
    ["workers"], ["stats"], ["limits"], ["limits", "show", "none"], ["schedules"],
    ["schedules", "show", "none"], ["pauses"], ["flows"], ["flow", "show", "1"], ["actions"],
    ["dead", "list"], ["dead", "groups"], ["verify"],
]  # fmt: skip
ACT_OR_SERVE = OF_AN_APPLICATION | {
    "cancel", "requeue", "checkpoint", "report", "stack", "pause", "resume", "event", "migrate",
    "exporter", "web", "completion", "demo",
}  # fmt: skip


PROGRAM = """
import os, sys
for code in sys.argv[1:]:
    exec(code)
    os.write(2, " ".join(["loaded", *sys.modules, chr(10)]).encode())
"""
ENTRY = "from outlast.cli import main"


def loaded(*codes: str) -> list[set[str]]:
    """Return the names of the modules that Python loads for each code: one Python runs all codes,
    so a module is among those of the first code that needs it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *codes], capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
    assert len(lines) == len(codes)
    seen = [set(line.split()) for line in lines]
    return [after - before for before, after in zip([set(), *seen], seen, strict=False)]


def test_the_version_needs_nothing_and_the_help_loads_no_command() -> None:
    helps = [f"main({argv})" for argv in (["--help"], ["-h"], ["help"], [])]
    version, *rest = loaded(f"{ENTRY}; main(['--version'])", *helps)
    assert not version & ({"typer", "msgspec", "asyncio", "rich", "inspect"} | LATE | CLIENT)
    modules = {f"outlast.cli.{each}" for each, _ in tree.COMMANDS.values()}
    modules -= {"outlast.cli.completion"}
    for found in rest:
        assert not found & (modules | LATE | CLIENT | {"rich", "asyncio", "outlast.store"})


def test_a_command_loads_no_driver_and_no_server() -> None:
    """Only commands that need an application load it; they come last here."""
    names = sorted(tree.COMMANDS, key=OF_AN_APPLICATION.__contains__)
    codes = [f"tree.build([{name!r}])" for name in names]
    _, *found = loaded("from outlast.cli import tree", *codes)
    wrong = {
        name: each & (LATE if name in OF_AN_APPLICATION else LATE | CLIENT)
        for name, each in zip(names, found, strict=True)
    }
    assert not any(wrong.values()), wrong


def reading(url: str) -> list[str]:
    """Return the code that runs each reading command on a store."""
    return [f"assert main({[*argv, '--url', url]}) in {{0, 1}}, {argv}" for argv in READS]


def test_each_command_reads_or_is_named_among_the_others() -> None:
    assert {argv[0] for argv in READS} == tree.COMMANDS.keys() - ACT_OR_SERVE


@pytest.mark.on_both_stores
def test_a_command_that_reads_loads_its_own_driver_and_no_verbs(filled: Filled) -> None:
    own = {"asyncpg", "outlast.store.postgres.readable"}
    if filled.url.startswith("sqlite"):
        own = {"sqlite3", "outlast.store.sqlite.readable"}
    _, first, *others = loaded(ENTRY, *reading(filled.url))
    assert own <= first
    assert not (first | others[0]) & OF_OTHER_ANSWERS  # jobs, why
    wrong = {
        " ".join(argv): found & ((LATE | CLIENT | VERBS) - own)
        for argv, found in zip(READS, (first, *others), strict=True)
    }
    assert not any(wrong.values()), wrong


def test_a_command_that_reads_loads_rich_only_to_draw() -> None:
    codes = [f"tree.build([{argv[0]!r}])" for argv in READS]
    pages = "import outlast.cli.job_page"
    for found in loaded("from outlast.cli import tree", *codes, pages):
        assert not found & {"rich", "dataclasses"}


def test_the_list_of_commands_has_the_first_line_of_the_help_of_each() -> None:
    group = typer.main.get_command(tree.build())
    listed = {name: summary for name, (_, summary) in tree.COMMANDS.items()}
    assert listed == {
        name: (each.help or "").partition("\n\n")[0]
        for name, each in vars(group)["commands"].items()
    }


LEAVING = """
import atexit, os, sys
atexit.register(lambda: print("its handler"))
from outlast.cli import main
sys.argv = sys.argv[1:]
code = main()
print("taken apart", code, flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize(("argv", "code"), [(["--version"], 0), (["nothing"], 2)])
def test_a_process_exits_without_tearing_down_the_interpreter(argv: list[str], code: int) -> None:
    """Exit handlers of other libraries still run, and their output arrives."""
    command = [sys.executable, "-c", LEAVING, "outlast", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    assert (done.returncode, told[-1]) == (code, "its handler")
    assert f"taken apart {code}" not in told


def test_a_process_whose_threads_still_work_waits_for_them() -> None:
    thread = "import threading; threading.Thread(target=sys.stdin.read).start()"
    command = [sys.executable, "-c", f"import sys; {thread}\n{LEAVING}", "outlast", "--version"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)][1] == "taken apart 0\n"


@pytest.mark.parametrize("command", ["enqueue", "run-task"])
def test_what_an_application_has_written_is_in_its_file(tmp_path: Path, command: str) -> None:
    """Python flushes files that are still open when it tears down the interpreter."""
    (tmp_path / "jobs.py").write_text(
        "import os, outlast\napp = outlast.App()\n@app.task\ndef mail(): pass\n"
        "said = open('said', 'w')\nsaid.write('imported')\n"
    )
    argv = [sys.executable, "-m", "outlast", command, "jobs:app", "mail"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    assert (tmp_path / "said").read_text() == "imported"


def test_a_program_that_calls_a_command_keeps_its_garbage_collector(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frozen = gc.get_freeze_count()
    for argv in (["--version"], ["--help"], ["nothing"]):
        main(argv)
        assert gc.isenabled()
        assert gc.get_freeze_count() <= frozen
