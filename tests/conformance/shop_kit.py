"""A shop with a table of its own, an application, and the kind of connection that is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

import outlast
from outlast.client.attempt import Attempt
from outlast.client.job import Job
from outlast.client.task import Task
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from tests.conformance.connections_kit import (
    KINDS,
    NAMES,
    Asyncpg,
    AsyncSqlalchemySession,
    Caller,
    Django,
    Psycopg,
    Sqlalchemy,
    SqlalchemySession,
    Sqlite3,
    opened,
)
from tests.conformance.kit import Hands

every_kind = pytest.mark.parametrize("kind", KINDS, ids=NAMES, indirect=True)
# One of each way to lead to a connection. The others do the same through the same code, with
# another library in between: `make test` tries them only in tests of `every_kind`.
CHIEF = {
    ("sqlite_url", Sqlite3),
    ("sqlite_url", AsyncSqlalchemySession),
    ("sqlite_url", Django),
    ("pg_url", Asyncpg),
    ("pg_url", Psycopg),
    ("pg_url", Sqlalchemy),
}


def params(*kinds: type[Caller]) -> list[Any]:
    """These kinds, on the stores that they can be on; slow but for the chief ones, if any."""
    chosen = {each: name for each, name in zip(KINDS, NAMES, strict=True) if each[1] in kinds}
    chief = CHIEF.intersection(chosen) or set(chosen)
    return [
        pytest.param(each, id=name, marks=[] if each in chief else [pytest.mark.slow])
        for each, name in chosen.items()
    ]


def of(*kinds: type[Caller]) -> Any:
    """Only these kinds."""
    return pytest.mark.parametrize("kind", params(*kinds), indirect=True)


# As `every_kind`, where it is about a rule that holds for all of them.
ALL = {kind for _, kind in KINDS}
chief_kinds = of(*ALL)
# A session of SQLAlchemy is led to its connection at once. Where only what is done on it differs,
# the connections say all.
every_connection = of(*(ALL - {SqlalchemySession, AsyncSqlalchemySession}))


@dataclass
class Link:
    """As much of a worker as ``complete_in`` asks."""

    store_id: str
    worker_id: int = 1


@dataclass
class Shop:
    """An application, its store, and the kind of connection that is tried on it."""

    url: str
    kind: type[Caller]
    app: outlast.App
    store: Store

    @property
    def mail(self) -> Task[Any, Any]:
        return self.app.tasks["mail"]

    async def jobs(self) -> list[str]:
        """The arguments of all jobs, first first."""
        rows = await self.store.inspector.jobs(JobFilter())
        return [row.args for row in sorted(rows, key=lambda row: row.id)]

    async def row(self, job: Job[Any] | Attempt) -> StoredJob:
        """What the store knows of a job."""
        found = await self.store.inspector.job(job.job_id if isinstance(job, Attempt) else job.id)
        assert found is not None
        return found

    async def attempt(self) -> tuple[Attempt, Hands]:
        """A running attempt and its worker."""
        await self.mail.enqueue("first")
        hands = await Hands.on(self.store, tasks=["mail"])
        (claimed,) = await hands.claim(1, tasks=["mail"])
        return Attempt(Link(await self.store.store_id()), claimed), hands  # type: ignore[arg-type]


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> tuple[str, type[Caller]]:
    url, kind = request.param
    return request.getfixturevalue(url.replace("pg_url", "kept_url")), kind


@pytest.fixture
def bare_kind(request: pytest.FixtureRequest) -> tuple[str, type[Caller]]:
    """Where there are no tables yet."""
    url, kind = request.param
    return request.getfixturevalue(url.replace("pg_url", "bare_pg_url")), kind


@pytest.fixture
async def shop(kind: tuple[str, type[Caller]]) -> AsyncIterator[Shop]:
    url, of_kind = kind
    shop = Shop(url, of_kind, an_app(url), open_store(url))
    await shop.store.open()
    yield shop
    await shop.store.close()
    await shop.app.close()


def an_app(url: str) -> outlast.App:
    app = outlast.App(url)

    @app.task
    async def mail(to: str) -> int:
        return len(to)

    return app


@pytest.fixture
async def caller(shop: Shop) -> AsyncIterator[Caller]:
    await make_orders(shop.url)
    async with opened(shop.kind, shop.url) as caller:
        yield caller


def plainest(url: str) -> Any:
    return opened(Sqlite3 if url.startswith("sqlite") else Asyncpg, url)


async def make_orders(url: str) -> None:
    async with plainest(url) as other:
        await other.call(other.execute, "CREATE TABLE orders (id INTEGER)")


async def orders(shop: Shop) -> int:
    """How many rows the caller's own table has, as another connection sees it."""
    async with plainest(shop.url) as other:
        if isinstance(other, Sqlite3):
            count = "SELECT count(*) FROM orders"
            return await other.call(lambda: other.connection.execute(count).fetchone()[0])
        return await other.connection.fetchval("SELECT count(*) FROM orders")


async def write(caller: Caller) -> None:
    await caller.call(caller.begin)
    await caller.call(caller.execute, "INSERT INTO orders VALUES (1)")
