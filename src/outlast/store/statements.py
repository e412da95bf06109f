"""Loads the SQL of the stores, which lives in files.

A file ``STORE/sql/TOPIC.sql`` holds the statements of one topic, each after a line ``-- name:
NAME``. Comments argue why they are right: at the head of the file for all of them, below a name for
one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import resources
from typing import Any

Row = dict[str, Any]
"""A row by the names of its columns."""
Rows = Callable[..., Awaitable[list[Row]]]
"""``rows(topic, name, **values)``: returns the rows of a statement, given the values that it names.
"""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(store: str, topic: str) -> dict[str, str]:
    """Return the statements of a topic by their names, without comments."""
    file = resources.files("outlast.store").joinpath(store, "sql", f"{topic}.sql")
    parts = _NAME.split(file.read_text("utf-8"))
    return {name: _bare(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("--"))
