"""Parses a SQLite URL: a file, and how strict to be about its file system.

sqlite:///jobs.db (relative), sqlite:////var/lib/app/jobs.db (absolute), sqlite:///~/jobs.db.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from outlast.base.config import absolute
from outlast.base.credentials import redact
from outlast.errors import ConfigError

PREFIX = "sqlite:///"
UNSAFE = "unsafe_filesystem"


class SqliteLocation(msgspec.Struct, frozen=True):
    """An absolute path; ``unsafe_filesystem``: do not refuse network file systems."""

    path: Path
    unsafe_filesystem: bool = False


def parse(url: str) -> SqliteLocation:
    if not url.startswith(PREFIX):
        raise ConfigError(
            f"{redact(url)!r} is not a SQLite URL: write sqlite:///jobs.db for a file in this"
            " directory, or sqlite:////var/lib/jobs.db (four slashes) for an absolute path"
        )
    quoted, _, query = url.removeprefix(PREFIX).partition("?")
    text = unquote(quoted, errors="surrogateescape")
    _refuse_memory(url, text, query)
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # the home of a user that does not exist
        raise ConfigError(f"{redact(url)!r} names the home of a user who does not exist") from None
    whole = absolute(path)
    if not whole.name:  # the root
        raise ConfigError(f"{redact(url)!r} names no file: write sqlite:////var/lib/jobs.db")
    return SqliteLocation(whole, _unsafe(url, query))


def _refuse_memory(url: str, text: str, query: str) -> None:
    if text == ":memory:" or "mode=memory" in query:
        raise ConfigError(
            f"{redact(url)!r}: a database in memory ends with its process, and no worker could open"
            " it; Outlast needs a file, such as sqlite:///jobs.db"
        )
    if not text or "\x00" in text or not _is_encodable(text):
        raise ConfigError(f"{redact(url)!r} names no file: write sqlite:///jobs.db")


def _is_encodable(text: str) -> bool:
    """Bytes that are not UTF-8 are allowed, lone surrogates are not."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _unsafe(url: str, query: str) -> bool:
    settings = dict(parse_qsl(query, keep_blank_values=True))
    value = settings.pop(UNSAFE, "0")
    if settings or value not in {"0", "1"}:
        raise ConfigError(f"{redact(url)!r}: the only setting of a SQLite URL is ?{UNSAFE}=1")
    return value == "1"
