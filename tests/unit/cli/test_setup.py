"""``outlast worker --setup``: the user's function is called, and what goes wrong in it is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outlast.cli.errors import AppImportError
from outlast.cli.worker import run_setup
from tests.cases import each_case

MODULE = """
called = []

def start():
    print("ready")
    called.append(1)

def fails():
    raise KeyError("OTEL_ENDPOINT")

def leaves():
    raise SystemExit("no key")

number = 7
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set_up_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "set_up_here", raising=False)


def test_the_function_is_called_once_and_prints_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_setup("set_up_here:start")
    assert sys.modules["set_up_here"].called == [1]
    assert capsys.readouterr() == ("", "ready\n")


@each_case(
    ("spec", "says"),
    [
        ("set_up_here", "'set_up_here' does not name a function; write MODULE:FUNCTION"),
        ("not_there:start", "no module named 'not_there'"),
        ("set_up_here:none", "'set_up_here' has no 'none'"),
        ("set_up_here:number", "set_up_here:number is of class int, not a function"),
        ("set_up_here:fails", "set_up_here:fails failed: KeyError"),
        ("set_up_here:leaves", "set_up_here:leaves exits the program"),
    ],
)
def test_what_goes_wrong_names_the_flag(spec: str, says: str) -> None:
    with pytest.raises(AppImportError) as caught:
        run_setup(spec)
    assert f"--setup: {says}" in str(caught.value)


def test_an_error_in_it_is_shown_where_it_was_raised() -> None:
    with pytest.raises(AppImportError) as caught:
        run_setup("set_up_here:fails")
    assert 'raise KeyError("OTEL_ENDPOINT")' in caught.value.tail
