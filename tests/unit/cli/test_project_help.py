"""Help of commands that a project of Django runs: they know the application and the store."""

from __future__ import annotations

import pytest

from outlast.cli.program import run

PROGRAM = "python manage.py outlast"
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
