"""Defines findings of the doctor's checks, and what a store's own checks are given.

A store checks itself: its facts know which faults they may show.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """One thing that was checked. ``mend`` tells people what to do; empty if there is nothing to
    do."""

    level: Level
    name: str
    sentence: str
    mend: str = ""


def ok(name: str, sentence: str) -> Finding:
    """Return a finding without a fault."""
    return Finding(level=Level.OK, name=name, sentence=sentence)


def hint(name: str, sentence: str, mend: str) -> Finding:
    """Return a finding that may be left as it is."""
    return Finding(level=Level.HINT, name=name, sentence=sentence, mend=mend)


def warning(name: str, sentence: str, mend: str) -> Finding:
    """Return a finding that can do harm."""
    return Finding(level=Level.WARNING, name=name, sentence=sentence, mend=mend)


def problem(name: str, sentence: str, mend: str) -> Finding:
    """Return a finding that does harm."""
    return Finding(level=Level.PROBLEM, name=name, sentence=sentence, mend=mend)


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts beside a store's own. ``now`` is this machine's time, in seconds since 1970;
    ``asked_at``: its time when the facts were read; ``workers``: how many are alive."""

    now: float
    asked_at: float | None
    workers: int


class Environment(Protocol):
    """A store's facts about its server, or about its file and disk."""

    @property
    def limited_to(self) -> str | None:
        """Return what the role of this command may do, in words, if that is less than a worker
        does; None: it may do all that a worker does, or has none of the purposes that ``outlast
        migrate --only`` grants."""
        ...

    def check(self, context: CheckContext) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        ...


class Route(msgspec.Struct, frozen=True):
    """How safe the network path to a server is, judged from URL and environment variables without
    connecting; no finding if the server is on this machine. ``keys``: the files of private keys
    that the connection uses."""

    findings: list[Finding]
    keys: list[str] = []
