"""A third store is one entry: applications, workers, callers and the doctor need nothing else.

It keeps its jobs as SQLite does, behind URLs, connections and facts of its own.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast import credentials
from outlast.cli import main
from outlast.clock import Clock
from outlast.credentials import redacted
from outlast.errors import ConfigError
from outlast.store import backend
from outlast.store.backend import Backend, Callers, StoreOptions, register
from outlast.store.finding import CheckContext, Environment, Finding, ok
from outlast.store.presence import NoPresence
from outlast.store.sqlite import callers as sqlite_callers
from outlast.store.sqlite.inspector import SqliteInspector
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.url import parse
from outlast.store.sqlite.wakeup import SqliteWakeup

DEADLINE = 60.0  # seconds until a test says that something never happened


def as_sqlite(url: str) -> str:
    return url.replace("third:", "sqlite:", 1)


class ThirdFacts(msgspec.Struct, frozen=True):
    """What this store tells the doctor."""

    pages: int

    def check(self, context: CheckContext) -> Iterator[Finding]:
        yield ok("third_pages", f"There are {self.pages} pages for {context.workers} workers.")


class ThirdInspector(SqliteInspector):
    """Reads that know an environment of their own."""

    async def environment(self) -> Environment:
        return ThirdFacts(pages=3)


class ThirdStore(SqliteStore):
    """Jobs as SQLite keeps them."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        super().__init__(
            as_sqlite(url), clock=options.clock, read_only=options.read_only, lock=options.lock
        )
        self.url = url
        self.inspector = ThirdInspector(self._connection, options.clock)


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
            open_wakeup=self.open_wakeup,
            load_callers=self.load_callers,
            open_presence=self.open_presence,
            find_file=lambda url: parse(as_sqlite(url)).path,
        )

    def open_wakeup(self, url: str, clock: Clock) -> SqliteWakeup:
        self.asked.append("wakeup")
        return SqliteWakeup(as_sqlite(url), clock)

    def open_presence(self, url: str, patience: float) -> NoPresence:
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


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Third:
    """The third store, for one test."""
    monkeypatch.setattr(backend, "_backends", [*backend._backends])
    monkeypatch.setattr(backend, "FILE_SCHEMES", files := {*credentials.FILE_SCHEMES})
    monkeypatch.setattr(credentials, "FILE_SCHEMES", files)
    entry = Third()
    register(entry.backend)
    return entry


@pytest.fixture
def url(third: Third, tmp_path: Path) -> str:
    return f"third:///{tmp_path / 'jobs.db'}"


def application(url: str) -> outlast.App:
    app = outlast.App(url)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    return app


async def test_a_job_runs(third: Third, url: str, tmp_path: Path) -> None:
    app = application(url)
    async with app.worker():
        job = await app.tasks["double"].enqueue(21)
        assert await job.result(timeout=DEADLINE) == 42
        assert list((tmp_path / "jobs.db-locks").glob("*.lock"))
    await app.close()
    assert sorted(third.asked) == ["presence", "wakeup"]


async def test_a_job_is_part_of_the_callers_transaction(url: str, tmp_path: Path) -> None:
    app = application(url)
    before = await app.tasks["double"].enqueue(1)
    mine = ThirdConnection(tmp_path / "jobs.db")
    job = await app.tasks["double"].using(connection=mine).enqueue(2)
    mine.raw.rollback()
    with pytest.raises(outlast.JobNotFound):
        await app.get(job.id)
    assert (await app.get(before.id)).id == before.id
    mine.raw.close()
    await app.close()


def test_the_doctor_makes_its_checks(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = application(url)
    app.tasks["double"].enqueue_sync(1)
    app.close_sync()
    code = main(["doctor", "--json", "--url", url])
    document = json.loads(capsys.readouterr().out)
    found = {one["name"]: one for one in document["findings"]}
    assert found["third_pages"]["sentence"] == "There are 3 pages for 0 workers."
    assert found["lock_directory"]["sentence"].startswith(f"Lock files are in {document['store']}-")
    assert not {"durability", "sqlite_library", "tls"} & set(found)
    assert code == (document["problems"] > 0)


def test_a_command_makes_no_file(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--url", url]) == 3
    assert "there is no database file" in capsys.readouterr().err


def test_its_urls_name_files(url: str) -> None:
    assert redacted(f"{url} a@b") == f"{url} a@b"
    with pytest.raises(ConfigError, match="a messenger is for jobs on a server"):
        asyncio.run(_publish(url))


async def _publish(url: str) -> None:
    app = outlast.App(url, wakeup="nats://localhost")
    await app.stores.store()


def test_an_unknown_connection_is_told_of_it(url: str) -> None:
    app = application(url)
    with pytest.raises(outlast.ConnectionMismatch, match="ThirdConnection"):
        app.tasks["double"].using(connection=object()).enqueue_sync(1)
    app.close_sync()


def test_without_its_entry_it_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a store"):
        outlast.App(f"third:///{tmp_path / 'jobs.db'}")
    assert redacted("third:///a b@c.db") == "third://***"
