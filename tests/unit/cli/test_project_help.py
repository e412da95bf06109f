"""Help of commands that a project of Django runs: they know the application and the store."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlast
from outlast.cli.program import run
from tests.cases import each_case

PROGRAM = "python manage.py outlast"
TOLD = [
    ["why", "1"],
    ["job", "1"],
    ["logs", "1"],
    ["schedules", "show", "nightly"],
    ["limits", "show", "mail"],
    ["limits", "set", "mail", "--running", "1"],
    ["resume", "queue", "mail"],
    ["dead", "discard", "1"],
]
COMMANDS = [[], ["worker"], ["dev"], ["enqueue"], ["run-task"], ["jobs"], ["dead", "requeue"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_a_project_names_no_application_and_its_own_store(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run([*command, "--help"], app="shop.runner:app", program=PROGRAM) == 0
    shown = capsys.readouterr().out
    assert f"Usage: {' '.join([PROGRAM, *command])}" in shown
    assert "the database" in shown
    for word in ("MODULE:APP", "OUTLAST_URL", "shop.jobs:app", " outlast jobs", " `outlast "):
        assert word not in shown.replace(PROGRAM, "")
    assert f"Background jobs that {PROGRAM}" not in shown


def test_the_help_of_the_program_itself_names_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", "--help"]) == 0
    assert "MODULE:APP" in capsys.readouterr().out
    assert run(["--help"]) == 0
    assert "$OUTLAST_URL" in capsys.readouterr().out


@each_case("command", TOLD)
def test_commands_that_are_advised_are_those_of_the_project(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTLAST_URL", f"sqlite:///{tmp_path}/jobs.db")
    app = outlast.App()
    app.task(name="mail")(print).enqueue_sync("ann").cancel_sync()
    app.close_sync()
    run(command, app="shop.runner:app", program=PROGRAM)
    told = "".join(capsys.readouterr())
    assert f"`{PROGRAM} " in told
    assert "`outlast " not in told
