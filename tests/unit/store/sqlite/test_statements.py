"""The statements of SQLite, as text."""

from __future__ import annotations

import re
from importlib.resources import files


def test_no_placeholder_has_a_number() -> None:
    """To sqlite3 ``?1`` is a name, for which it takes no sequence from Python 3.14 on."""
    folder = files("outlast.store.sqlite").joinpath("sql")
    shared = files("outlast.store").joinpath("sql").iterdir()
    statements = [each for each in [*folder.iterdir(), *shared] if each.name.endswith(".sql")]
    code = {str(each): re.sub(r"--.*", "", each.read_text()) for each in statements}
    assert len(code) > 10
    assert [name for name, text in code.items() if re.search(r"\?\d", text)] == []
