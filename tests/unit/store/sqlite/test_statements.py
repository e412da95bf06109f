"""The statements of SQLite, as text."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

FILES = sorted(
    each.name
    for each in files("outlast.store.sqlite").joinpath("sql").iterdir()
    if each.name.endswith(".sql")
)


@pytest.mark.parametrize("name", FILES)
def test_no_placeholder_has_a_number(name: str) -> None:
    """To sqlite3 ``?1`` is a name, for which it takes no sequence from Python 3.14 on."""
    text = files("outlast.store.sqlite").joinpath("sql", name).read_text()
    code = re.sub(r"--.*", "", text)
    assert re.findall(r"\?\d+", code) == []
