"""Completion at the Tab key, as the shells ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SECONDS, Outlast, environment


def test_bash_is_told_what_could_follow(outlast: Outlast) -> None:
    def follow(words: str) -> list[str]:
        count = str(words.count(" "))
        env = {"COMP_WORDS": words, "COMP_CWORD": count, "_OUTLAST_COMPLETE": "complete_bash"}
        said = outlast(**env)
        assert said.code == 0, said.err
        return said.out.split()

    assert follow("outlast work") == ["worker", "workers"]
    assert follow("outlast dead re") == ["requeue"]
    assert "--since" in follow("outlast jobs --si")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_it_with_its_help(outlast: Outlast, shell: str) -> None:
    said = outlast(
        _OUTLAST_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="outlast dead re",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert said.code == 0, said.err
    assert "requeue" in said.out
    assert "Revive dead jobs" in said.out


def test_the_application_is_not_imported_for_that(outlast: Outlast, folder: Path) -> None:
    (folder / "shop.py").write_text("raise SystemExit('it was imported')\n")
    words = "outlast worker shop:app --re"
    env = {"COMP_WORDS": words, "COMP_CWORD": "3", "_OUTLAST_COMPLETE": "complete_bash"}
    assert "--reload" in outlast(**env).out.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(outlast: Outlast, shell: str) -> None:
    said = outlast("completion", shell)
    assert said.code == 0, said.err
    assert f"_OUTLAST_COMPLETE=complete_{shell}" in said.out
    outlast("completion", "tcsh").refused(2, "bash")


def test_a_real_bash_completes_by_the_script(outlast: Outlast, folder: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    program = folder / "bin" / "outlast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m outlast.cli "$@"\n')
    program.chmod(0o755)
    (folder / "completion").write_text(outlast("completion", "bash").out)
    asked = (
        "source ./completion; COMP_WORDS=(outlast dead dis) COMP_CWORD=2;"
        ' _outlast_completion outlast; echo "${COMPREPLY[@]}"'
    )
    said = subprocess.run(
        [bash, "--norc", "-c", asked],
        cwd=folder,
        env=environment(PATH=f"{program.parent}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert said.stdout == "discard\n", said.stderr
