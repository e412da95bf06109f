"""Knows which SQLite libraries work, and which are known to damage a database in WAL mode."""

from __future__ import annotations

import sqlite3

from outlast.errors import ConfigError

Version = tuple[int, int, int]

OLDEST: Version = (3, 37, 0)  # STRICT tables

WAL_FAULTS: list[tuple[str, Version, list[Version]]] = [
    # (what, first release that has it, releases that fix it: one per line of releases)
    (
        "WAL-reset fault (it can very rarely damage a file: sqlite.org/wal.html#walresetbug)",
        (3, 7, 0),
        [(3, 44, 6), (3, 50, 7), (3, 51, 3)],
    ),
]


def check(version: Version = sqlite3.sqlite_version_info) -> list[str]:
    """Return a warning for each known fault. Raises ConfigError if the library is too old."""
    if version < OLDEST:
        raise ConfigError(
            f"SQLite {_text(version)} is too old: Outlast needs {_text(OLDEST)} or later (install a"
            " newer Python or libsqlite3)"
        )
    return [
        f"SQLite {_text(version)} has a known {what}; fixed in"
        f" {', '.join(map(_text, fixed_in))} and later: a newer libsqlite3 is advised"
        for what, since, fixed_in in WAL_FAULTS
        if since <= version and not _is_fixed(version, fixed_in)
    ]


def _is_fixed(version: Version, fixed_in: list[Version]) -> bool:
    return version >= max(fixed_in) or any(
        version[:2] == fix[:2] and version >= fix for fix in fixed_in
    )


def _text(version: Version) -> str:
    return ".".join(map(str, version))
