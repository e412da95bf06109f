"""What a SQLite URL names: a file, and how strict to be about where it lies.

sqlite:///jobs.db (relative), sqlite:////var/lib/app/jobs.db (absolute), sqlite:///~/jobs.db.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from outlast.credentials import redacted
from outlast.errors import ConfigError

PREFIX = "sqlite:///"
UNSAFE = "unsafe_filesystem"


class SqliteLocation(msgspec.Struct, frozen=True):
    """An absolute path; ``unsafe_filesystem``: do not refuse network file systems."""

    path: Path
    unsafe_filesystem: bool = False


def parse(url: str) -> SqliteLocation:
    """Return what the URL names. Raises ConfigError with what to write instead."""
    if not url.startswith(PREFIX):
        raise ConfigError(
            f"{redacted(url)!r} is not a SQLite URL: write sqlite:///jobs.db for a file in this"
            " directory, or sqlite:////var/lib/jobs.db (four slashes) for an absolute path"
        )
    text, _, query = url.removeprefix(PREFIX).partition("?")
    _refuse_memory(url, text, query)
    path = Path(os.path.abspath(Path(unquote(text)).expanduser()))
    return SqliteLocation(path, _unsafe(url, query))


def _refuse_memory(url: str, text: str, query: str) -> None:
    if text == ":memory:" or "mode=memory" in query:
        raise ConfigError(
            f"{url!r}: a database in memory is gone with its process and no worker could open it;"
            " Outlast needs a file, such as sqlite:///jobs.db"
        )
    if not text or "\x00" in unquote(text):
        raise ConfigError(f"{url!r} names no file: write sqlite:///jobs.db")


def _unsafe(url: str, query: str) -> bool:
    settings = dict(parse_qsl(query, keep_blank_values=True))
    value = settings.pop(UNSAFE, "0")
    if settings or value not in {"0", "1"}:
        raise ConfigError(f"{url!r}: the only setting of a SQLite URL is ?{UNSAFE}=1")
    return value == "1"
