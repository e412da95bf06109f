"""tests/mission.md names tests, examples and rows that exist."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from outlast.worker.assemble import unique_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests" / "mission.md").read_text()
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [A-E]\d+ \|", line)]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/__main__.py"))
ASKED = {"A": 12, "B": 7, "C": 7, "D": 7, "E": 4}


def test_each_row_of_the_mission_is_there_once() -> None:
    asked = [f"{letter}{number + 1}" for letter, count in ASKED.items() for number in range(count)]
    assert [row.split("|")[1].strip() for row in ROWS] == asked


def is_there(path: str, name: str) -> bool:
    """Whether a file is there, and has a test of that name, if one is given."""
    file = ROOT / path
    return file.is_file() and (not name or f"def {name}(" in file.read_text())


def test_each_row_is_whole_and_what_it_names_is_there() -> None:
    rows = [row.split(" | ") for row in ROWS]
    whole = [cells for cells in rows if len(cells) == 6 and all(cell.strip(" |") for cell in cells)]
    assert [cells[0] for cells in rows if cells not in whole] == []
    assert [cells[0] for cells in whole if "`tests/" not in cells[3]] == []
    assert [cells[0] for cells in rows if any("**Open**" in cell for cell in cells)] == []
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", PAGE)
    folders = re.findall(r"`(examples/\w+)`", PAGE)
    named += [(f"{folder}/README.md", "") for folder in folders]
    assert [each for each in named if not is_there(*each)] == []


def test_each_example_has_a_target_a_test_and_a_row() -> None:
    makefile = (ROOT / "Makefile").read_text()
    tests = (ROOT / "tests" / "crash" / "test_examples.py").read_text()
    assert EXAMPLES
    for folder in EXAMPLES:
        assert re.search(rf"-m examples\.{folder}( |\n)", makefile)
        own = ROOT / "tests" / "crash" / f"test_{folder}.py"
        assert own.exists() or f'"{folder}"' in tests
        assert f"`examples/{folder}`" in PAGE


def test_a_worker_has_a_name_of_its_own() -> None:
    first, second = unique_name(), unique_name()
    assert first.startswith(f"{socket.gethostname()}-{os.getpid()}-")
    assert first != second
