"""Defines the doctor's findings as rows of tables, and the tables that a store brings.

A store checks itself: its facts know which faults they may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Level(StrEnum):
    """How bad it is: only a ``problem`` makes the exit code 1."""

    OK = "ok"
    HINT = "hint"
    WARNING = "warning"
    PROBLEM = "problem"


OK, HINT, WARNING, PROBLEM = Level


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. ``fix`` tells people what to do; empty: nothing."""

    level: Level
    name: str
    sentence: str
    fix: str = ""


class NoWrites(NamedTuple):
    """Why a store stores nothing at present, and since when; it refuses writes, or they wait."""

    why: str
    is_refused: bool


class Check(NamedTuple, Generic[T]):
    """A row of a table: whether a finding applies to the facts, and its words. ``True``: it applies
    if no row of its name above it does."""

    level: Level
    name: str
    applies: Callable[[T], object] | Literal[True]
    sentence: str | Callable[[T], str]
    fix: str | Callable[[T], str] = ""


class Each(Generic[T]):
    """Rows about parts of the facts: they are judged for each part."""

    def __init__(self, parts: Callable[[T], Iterable[Any]], *rows: Check[Any] | Each[Any]) -> None:
        self.parts = parts
        self.rows = rows


Table = tuple[Check[T] | Each[T], ...]


def judge(table: Table[T], facts: T) -> Iterator[Finding]:
    """Yield the findings of a table, in its order. Of rows with one name, the first that applies
    is the finding."""
    told = set[str]()
    for row in table:
        if isinstance(row, Each):
            for part in row.parts(facts):
                yield from judge(row.rows, part)
        elif row.name not in told and (row.applies is True or row.applies(facts)):
            told.add(row.name)
            said, fix = (
                each if isinstance(each, str) else each(facts) for each in (row.sentence, row.fix)
            )
            yield Finding(level=row.level, name=row.name, sentence=said, fix=fix)


class Environment(Protocol):
    """A store's facts about its server, or about its file and disk."""

    @property
    def limited_to(self) -> str | None:
        """Return in words what the role of this command may do, if that is less than a worker does
        and is a purpose of ``outlast migrate --only``, else None."""
        ...

    def check(self, workers: int) -> Iterator[Finding]:
        """Yield findings, good and bad. ``workers``: how many are alive."""
        ...


class Route(msgspec.Struct, frozen=True):
    """How safe the network path to a server is, judged without connecting; no finding for a server
    on this machine. ``keys``: the files of private keys that the connection uses."""

    findings: list[Finding]
    keys: list[str] = []
