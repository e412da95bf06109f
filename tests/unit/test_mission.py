"""docs/mission.md names tests, examples and rows that exist."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from outlast.worker.assemble import unique_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mission.md").read_text()
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [A-E]\d+ \|", line)]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/__main__.py"))
ASKED = {"A": 12, "B": 7, "C": 7, "D": 7, "E": 4}


def test_each_row_of_the_mission_is_there_once() -> None:
    asked = [f"{letter}{number + 1}" for letter, count in ASKED.items() for number in range(count)]
    assert [row.split("|")[1].strip() for row in ROWS] == asked


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_test_named_by_a_row_exists(row: str) -> None:
    cells = row.split(" | ")
    assert all(cell.strip(" |") for cell in cells), "asked for, here, shown by, original, measured"
    assert len(cells) == 6
    shown_by = cells[3]
    for path, name in re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", shown_by):
        assert (ROOT / path).is_file(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(), name
    for folder in re.findall(r"`(examples/\w+)`", shown_by):
        assert (ROOT / folder / "README.md").is_file(), folder
    assert "`tests/" in shown_by
    assert "**Open**" not in row


@pytest.mark.parametrize("folder", EXAMPLES)
def test_each_example_has_a_target_a_test_and_a_row(folder: str) -> None:
    assert f"-m examples.{folder}\n" in (ROOT / "Makefile").read_text()
    assert f'"{folder}"' in (ROOT / "tests" / "crash" / "test_examples.py").read_text()
    assert f"`examples/{folder}`" in PAGE


def test_a_worker_has_a_name_of_its_own() -> None:
    first, second = unique_name(), unique_name()
    assert first.startswith(f"{socket.gethostname()}-{os.getpid()}-")
    assert first != second
