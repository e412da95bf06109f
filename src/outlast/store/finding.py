"""What a check of the doctor finds, and what a store's own checks are given.

A store checks itself: its facts know what is amiss with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Level(StrEnum):
    """How bad it is: only a ``problem`` makes the exit code 1."""

    OK = "ok"
    HINT = "hint"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. ``mend`` says what to do; empty where nothing is to be done."""

    level: Level
    name: str
    sentence: str
    mend: str = ""


def ok(name: str, sentence: str) -> Finding:
    """Return what is as it should be."""
    return Finding(level=Level.OK, name=name, sentence=sentence)


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside a store's own facts. ``now`` is this machine's, in seconds since 1970;
    ``asked_at``: what it was when the facts were read; ``workers``: how many live."""

    now: float
    asked_at: float | None
    workers: int


class Environment(Protocol):
    """What a store knows of its server, or of its file and disk."""

    @property
    def limited_to(self) -> str | None:
        """What the role of this command may do, in words, where that is less than a worker does;
        None: it is a worker's, or is for nothing that ``outlast migrate --only`` grants."""
        ...

    def check(self, context: CheckContext) -> Iterator[Finding]:
        """Yield what is amiss, or as it should be."""
        ...


class Route(Protocol):
    """How safe the way to a server is, as URL and environment variables tell without connecting."""

    @property
    def keys(self) -> Sequence[str]:
        """The files of private keys that are used on it."""
        ...

    def check(self) -> Iterator[Finding]:
        """Yield what is amiss, or as it should be; nothing where the server is on this machine."""
        ...
