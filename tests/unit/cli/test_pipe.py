"""What a pipe gets is what rich would write there."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from outlast.cli.show import PIPED_COLUMNS, Grid, Styled, bar, console, table
from outlast.model.crash import Progress
from tests.cases import each_case

JOB = {"ID": "7", "STATE": Styled("queued", "cyan"), "TASK": "a task", "TRIES": "0", "WHEN": ""}
LATER = {**JOB, "ID": "12345", "TASK": "b", "WHEN": "3 min ago"}
TABLES = {
    "one row": [JOB],
    "several": [JOB, LATER],
    "wide letters": [{**JOB, "TASK": "漢字"}, LATER],
    "a bar": [{**JOB, "PROGRESS": bar(Progress(fraction=0.5))}],
    "cut": [{**JOB, "TASK": "long " * 30, "DOING": "longer " * 30}],
    "a control code": [{**JOB, "TASK": "a\x07b"}, LATER],
    "what rich would draw": [{**JOB, "TASK": ":smile: [red]"}],
}
TEXTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "nothing": ((), {}),
    "two": (("job 7: ", Styled("dead", "bold red")), {"sep": "", "end": "\n\n"}),
    "styled": (("-> `outlast requeue 7`",), {"style": "bold", "soft_wrap": True}),
    "wrapped": (("word " * 100,), {}),
    "not wrapped": (("wörd " * 100,), {"soft_wrap": True}),
    "a tab": (("a\tb",), {"soft_wrap": True}),
    "what rich would draw": (("[red]:smile:",), {}),
}


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it


def printed_by_rich(*given: Any, **how: Any) -> str:
    out = io.StringIO()
    made: dict[str, Any] = {
        "highlight": False,
        "markup": False,
        "emoji": False,
        "width": PIPED_COLUMNS,
    }
    Console(file=out, **made).print(*given, **how)
    return out.getvalue()


@each_case("rows", TABLES.values())
def test_a_table(rows: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    made = table(rows, PIPED_COLUMNS)
    console().print(made)
    assert capsys.readouterr().out == printed_by_rich(made)


@each_case(("given", "how"), TEXTS.values())
def test_a_text(given: Any, how: Any, capsys: pytest.CaptureFixture[str]) -> None:
    console().print(*given, **how)
    assert capsys.readouterr().out == printed_by_rich(*given, **how)


def test_a_table_beside_texts(capsys: pytest.CaptureFixture[str]) -> None:
    made = table([JOB, LATER], PIPED_COLUMNS)
    assert isinstance(made, Grid)
    console().print("", made, "", sep="\n")
    assert capsys.readouterr().out == printed_by_rich("", made, "", sep="\n")


def test_a_text_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As how far a long `outlast verify` has got."""
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe))
    console().print("checked 1 job")
    assert pipe.getvalue() == b"checked 1 job\n"


def test_colours_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(console(), Console)
