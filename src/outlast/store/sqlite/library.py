"""Knows which SQLite libraries work, and which are known to damage a database in WAL mode."""

from __future__ import annotations

import sqlite3

from outlast.errors import ConfigError

Version = tuple[int, int, int]

OLDEST: Version = (3, 37, 0)  # STRICT tables

WAL_RESET = "WAL-reset fault (it can very rarely damage a file: sqlite.org/wal.html#walresetbug)"
MENDED: list[Version] = [(3, 44, 6), (3, 50, 7), (3, 51, 3)]  # in each line of releases


def check(version: Version = sqlite3.sqlite_version_info) -> list[str]:
    """Return a warning for each known fault. Raises ConfigError if the library is too old."""
    if version < OLDEST:
        raise ConfigError(
            f"SQLite {_text(version)} is too old: Outlast needs {_text(OLDEST)} or later (install a"
            " newer Python or libsqlite3)"
        )
    line = [each for each in MENDED if each[:2] == version[:2]]
    if version >= min(line or [MENDED[-1]]):
        return []
    fixed_in = ", ".join(map(_text, MENDED))
    fault = f"SQLite {_text(version)} has a known {WAL_RESET}"
    return [f"{fault}; fixed in {fixed_in} and later: a newer libsqlite3 is advised"]


def _text(version: Version) -> str:
    return ".".join(map(str, version))
