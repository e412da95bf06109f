"""A third store: it keeps its jobs as SQLite does, with URLs, connections and facts of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from outlast.base.clock import Clock
from outlast.store.backend import Backend, Callers, StoreOptions
from outlast.store.finding import Environment, Finding, Level
from outlast.store.protocol import NoPresence
from outlast.store.sqlite import callers as sqlite_callers
from outlast.store.sqlite.inspector import SqliteInspector
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.url import parse
from outlast.store.sqlite.wakeup import SqliteWakeup
from outlast.store.wakeup import Wakeup


def as_sqlite(url: str) -> str:
    return url.replace("third:", "sqlite:", 1)


class ThirdFacts(msgspec.Struct, frozen=True):
    """What this store tells the doctor."""

    pages: int
    limited_to: str | None = None

    def check(self, workers: int) -> Iterator[Finding]:
        said = f"There are {self.pages} pages for {workers} workers."
        yield Finding(level=Level.OK, name="third_pages", sentence=said)


class ThirdInspector(SqliteInspector):
    """Reads that know an environment of their own."""

    async def environment(self) -> Environment:
        return ThirdFacts(pages=3)


class ThirdStore(SqliteStore):
    """Jobs as SQLite keeps them."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        super().__init__(as_sqlite(url), options)
        self.url = url
        self.inspector = ThirdInspector(self._connection)


class ThirdConnection:
    """What a driver of this store gives its users."""

    def __init__(self, path: Path) -> None:
        self.raw = sqlite3.connect(path)


class Third:
    """The entry, and which parts of it were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.backend = Backend(
            schemes=("third",),
            forms=("third:///jobs.db",),
            open_store=ThirdStore,
            open_readable=ThirdStore,
            open_wakeup=self.open_wakeup,
            load_callers=self.load_callers,
            open_presence=self.open_presence,
            find_file=lambda url: parse(as_sqlite(url)).path,
        )

    def open_wakeup(self, url: str, clock: Clock) -> SqliteWakeup:
        self.asked.append("wakeup")
        return SqliteWakeup(as_sqlite(url), clock)

    def open_presence(self, url: str, patience: float, wakeup: Wakeup) -> NoPresence:
        self.asked.append("presence")
        return NoPresence()

    def load_callers(self) -> Callers:
        return Callers(
            kinds="a ThirdConnection",
            drivers=((ThirdConnection.__module__, "ThirdConnection", self.drive),),
            engines="third+driver",
            engine_drivers=("third",),
            defers_commit=lambda _: False,
            connect=sqlite_callers.CALLERS.connect,
        )

    def drive(self, connection: ThirdConnection) -> Any:
        ((_, _, make), *_) = sqlite_callers.CALLERS.drivers
        return make(connection.raw)
