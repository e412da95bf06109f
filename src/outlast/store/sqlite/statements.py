"""Loads SQLite's statements, of which the shared ones are written for PostgreSQL."""

from __future__ import annotations

import re

from outlast.store import statements as shared

_CAST = re.compile(r"::\w+(?:\[\])?")
_HINT = re.compile(r"/\*! (.*?) \*/")


def statements(topic: str) -> dict[str, str]:
    return shared.statements("sqlite", topic, _adapt)


def _adapt(text: str) -> str:
    """Drop casts, and make the hint ``/*! … */``, which names an index, a part of the statement."""
    return _HINT.sub(r"\1", _CAST.sub("", text.replace("strpos(", "instr(")))
