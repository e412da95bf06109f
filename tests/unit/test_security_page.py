"""The threat model: each line of what must not be names a test that is there, or says that it is
not defended; and each finding of the doctor that it names is one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
OPERATING = (ROOT / "docs" / "operating.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LEAST = 40  # lines of the model: fewer, and the page is read wrongly here


@cache
def names_in(path: str) -> set[str]:
    """Return the names of the tests in a file; none where there is no such file."""
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {each.name for each in tree.body if isinstance(each, functions)}
    return {name for name in names if name.startswith("test_")}


def missing(page: str) -> list[str]:
    """Return the tests that a page names and that are not there."""
    named = NAMED.findall(page)
    return [f"{path}::{name}" for path, name in named if name not in names_in(path)]


def lines_of(page: str) -> list[tuple[str, str]]:
    """Return the rows of all tables that say what must not be: what, and by what it is shown."""
    tables = re.findall(r"^\| must not.*?\|\n\|---\|---\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    rows = [row.strip("|").split("|") for table in tables for row in table.splitlines()]
    return [(what.strip(), shown.strip()) for what, shown in rows]


def unproven(page: str) -> list[str]:
    """Return what has neither a test nor the word that it is not defended."""
    return [
        what
        for what, shown in lines_of(page)
        if not NAMED.search(shown) and not shown.startswith("not defended")
    ]


def test_each_test_that_the_threat_model_names_is_there() -> None:
    assert missing(PAGE) == []


def test_each_line_of_the_threat_model_names_a_test_or_is_said_not_to_be_defended() -> None:
    assert unproven(PAGE) == []
    assert len(lines_of(PAGE)) >= LEAST


def test_what_looks_like_a_test_is_named_as_one() -> None:
    """A path in another form would pass unseen."""
    assert len(re.findall(r"tests/\S*test_", PAGE)) == len(NAMED.findall(PAGE))


@pytest.mark.parametrize(
    "shown",
    ["`tests/unit/test_docs.py::test_no_such`", "`tests/unit/test_none.py::test_no_such`"],
)
def test_a_test_that_is_not_there_is_found(shown: str) -> None:
    assert missing(f"| must not | shown by |\n|---|---|\n| read | {shown} |\n") == [
        shown.strip("`")
    ]


def test_a_line_without_a_test_is_found() -> None:
    table = "| must not | shown by |\n|---|---|\n| read | not defended: so |\n| write | surely |\n"
    assert unproven(table) == ["write"]


def test_each_finding_of_the_doctor_that_the_page_names_is_one() -> None:
    (seen,) = re.findall(
        r"^## What `outlast doctor` sees.*?\n\|---\|---\|\n(.*?)\n\n",
        PAGE,
        re.DOTALL | re.MULTILINE,
    )
    (known,) = re.findall(
        r"^## Is everything in order\?\n(.*?)^## ", OPERATING, re.DOTALL | re.MULTILINE
    )
    names = set(re.findall(r"`(\w+)`", seen))
    assert names
    assert {name for name in names if f"`{name}`" not in known} == set()
