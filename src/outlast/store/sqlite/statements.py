"""Loads the SQL of the SQLite store: all of it lives in files, none is assembled.

A file is named as the verb it serves. Its head argues why it is right; below, each statement
follows a line ``-- name: WORD``.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(verb: str) -> dict[str, str]:
    """Return the statements of ``sqlite/sql/VERB.sql`` by their names, without comments."""
    file = resources.files("outlast.store").joinpath("sqlite", "sql", f"{verb}.sql")
    parts = _NAME.split(file.read_text("utf-8"))
    return {name: _bare(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("--"))
