"""What the demo prints to go on with can be typed as it stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from examples.census.__main__ import main, own_command


def install(folder: Path) -> Path:
    """Make an environment that has the command."""
    folder.mkdir(parents=True)
    program = folder / "outlast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment of its own, which runs this, and nothing on the PATH."""
    install(tmp_path / ".venv" / "bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return tmp_path


def test_without_the_command_on_the_path_it_is_named_by_its_own_path() -> None:
    assert own_command() == ".venv/bin/outlast"


def test_a_command_on_the_path_is_named_as_people_type_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(install(here / "bin").parent))
    assert own_command() == "outlast"


def test_a_python_without_the_command_beside_it_invents_no_path(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(here / "other" / "python"))
    assert own_command() == "outlast"


def test_without_the_library_of_the_picture_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["census"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main() == 2
    assert "matplotlib: `make demo` installs it" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["1", "1001", "many"])
def test_a_number_of_commits_out_of_range_is_refused(
    number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["census", "--commits", number])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"from 2 to 1,000, not {number}" in capsys.readouterr().err
