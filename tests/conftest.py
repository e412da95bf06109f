"""Fixtures that every kind of test uses: stores to run on."""

from __future__ import annotations

import asyncio
import gc
import locale
import logging
import os
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from harness.browser import Browser, BrowserMissing
from harness.front import FrontMissing
from harness.pgbouncer import PgBouncerServer
from harness.rounds import MOST, lowered_constants
from harness.servers import PostgresMissing, PostgresServer
from harness.stores import opened
from outlast.store.postgres import pool
from tests.databases import Databases, make_tables
from tests.dispositions import restore_signals
from tests.kept import Kept
from tests.scratch import use_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from outlast.store.protocol import Store

restore_signals()
use_memory()
for patch in lowered_constants(MOST):
    patch.start()
gc.disable()  # until all tests are there: what they import stays, and is never looked through
STORES = {"store_url", "bare_store_url"}
# The tests that run on each store reach PostgreSQL by a PgBouncer that pools so: `make matrix`.
THROUGH: Any = os.environ.get("OUTLAST_TEST_THROUGH")
# What is above the store's protocol, which tests/conformance tries on both: `make test` runs these
# on SQLite, unless a test is marked `slow_on("sqlite")` or `on_both_stores`.
ABOVE = ("tests/app/", "tests/cli/", "tests/metrics/", "tests/unit/client/", "tests/web/")
HANDLED = [  # not SIGALRM: pytest-timeout's, which lets go of it where a test fails
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGTSTP,
]  # fmt: skip
LIMITED = [resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE]
settings.register_profile("outlast", deadline=None)  # a slow machine is not a failure
settings.register_profile("quick", settings.get_profile("outlast"), max_examples=25)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer random examples where slow tests are left out."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "outlast")


@pytest.hookimpl(tryfirst=True)  # before the expression of -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow or long what is so on this store, or in this case; what is long is slow, too.
    Mark as `server` what starts a PostgreSQL server by a fixture."""
    for item in items:
        if is_on(item, "postgres") or "pg_server" in getattr(item, "fixturenames", ()):
            item.add_marker("server")
        if is_left_out(item, "long"):
            item.add_marker("long")
        is_above = item.nodeid.startswith(ABOVE) and is_on(item, "postgres")
        if (
            item.get_closest_marker("long")
            or is_left_out(item, "slow")
            or (is_above and not any(map(item.get_closest_marker, ("on_both_stores", "slow_on"))))
        ):
            item.add_marker("slow")


def is_left_out(item: pytest.Item, what: str) -> bool:
    """Whether `slow_on` or `slow_but` (`long_on`, `long_but`) says so of this case of a test."""
    on, but = (item.get_closest_marker(f"{what}_{which}") for which in ("on", "but"))
    if on is not None and is_on(item, *on.args):
        return True
    return but is not None and not any(f"{end}]" in item.name for end in but.args)


def is_on(item: pytest.Item, store: str) -> bool:
    """Whether a test that runs on each store runs on this one here."""
    given = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    return any(given.get(name) == store for name in STORES)


def pytest_collection_finish() -> None:
    """Leave what was imported out of all later collections, each of which would take 0.3 s, and
    collect after ten times as many objects: what a test leaves is small, and soon gone."""
    gc.freeze()
    gc.set_threshold(7_000)
    gc.enable()


@pytest.fixture(autouse=True)
def _surroundings() -> Iterator[None]:
    """Fail a test that leaves other surroundings: later tests run, and start programs, in them."""
    before = surroundings()
    yield
    left = surroundings() ^ before
    assert not left


def surroundings() -> set[tuple[Any, Any]]:
    """Return what a program started now would inherit, and what later code of this process meets.
    This takes some 30 us."""
    variables = {**os.environ, "the folder": os.getcwd()}
    variables.pop("PYTEST_CURRENT_TEST", None)  # pytest's own, for each test
    root = logging.root
    met = {
        "imports": (*sys.path, *map(type, sys.meta_path)),
        "blocked": frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "locale": (locale.setlocale(locale.LC_ALL), *time.tzname),
        "log": (root.level, root.manager.disable, *root.handlers),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "interpreter": (sys.getswitchinterval(), sys.getrecursionlimit(), gc.isenabled()),
        **{f"handler of {number}": signal.getsignal(number) for number in HANDLED},
        **{f"limit {number}": resource.getrlimit(number) for number in LIMITED},
    }
    return {*variables.items(), *met.items()}


@pytest.fixture(scope="session")
def pg_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server shared by the session (each xdist process has its own).

    Tests that stop or kill a server make their own: `with PostgresServer() as server: …`.
    """
    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"PostgreSQL is needed in CI: {missing}")
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def databases(pg_server: PostgresServer) -> Iterator[Databases]:
    """What makes databases on `pg_server`."""
    with Databases(pg_server) as made:
        yield made


@pytest.fixture
def pg_url(pg_server: PostgresServer, databases: Databases) -> Iterator[str]:
    """The address of a PostgreSQL database with Outlast's empty tables; gone after the test."""
    name = databases.make()
    yield pg_server.url(name)
    databases.drop(name)


@pytest.fixture
def bare_pg_url(pg_server: PostgresServer, databases: Databases) -> Iterator[str]:
    """The address of a PostgreSQL database that has no tables yet; gone after the test."""
    name = databases.make(bare=True)
    yield pg_server.url(name)
    databases.drop(name)


@pytest.fixture(scope="session")
def kept(databases: Databases) -> Iterator[Kept]:
    """The database that tests share which need none of their own."""
    made = Kept(databases)
    yield made
    made.end()


@pytest.fixture
def kept_url(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of the shared database, which is empty; see `tests/kept.py`."""
    monkeypatch.setattr(pool, "connect", kept.connect)
    monkeypatch.setattr(pool, "_close", kept.close)
    yield kept.url
    kept.empty()


@pytest.fixture(scope="session")
def pgbouncer(pg_server: PostgresServer) -> Iterator[PgBouncerServer]:
    """A PgBouncer in front of `pg_server` that pools transactions: `pgbouncer.through(pg_url)`;
    sessions, if `OUTLAST_TEST_THROUGH` says so.

    For tests marked `pgbouncer`. Those that stop it, or want other settings, make their own, and
    use this one too, so that they are skipped where there is none.
    """
    try:
        pool = {"default_pool_size": "100"} if THROUGH == "session" else None
        server = PgBouncerServer(pg_server.url(), THROUGH or "transaction", pool)
    except FrontMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A browser shared by the session (each xdist process has its own)."""
    try:
        made = Browser()
    except BrowserMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser, with no page, no session and nothing said on its console.

    For tests marked `browser`. Wait for what a page comes to by `browser.wait`.
    """
    chromium.start_over()
    yield chromium
    chromium.start_over()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'outlast.db'}"


@pytest.fixture(scope="session")
def sqlite_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with Outlast's empty tables, to copy."""
    path = tmp_path_factory.mktemp("tables") / "outlast.db"
    asyncio.run(make_tables(f"sqlite:///{path}"))
    return path


@pytest.fixture
def pg_store_url(pg_url: str) -> str:
    """The address of the PostgreSQL database for tests that run on each store."""
    return pg_url


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind: a test that uses this runs twice."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_tables"), tmp_path / "outlast.db")
    fixture = {"sqlite": "sqlite_url", "postgres": "pg_store_url"}[request.param]
    url: str = request.getfixturevalue(fixture)
    if request.param == "postgres" and THROUGH is not None:
        return str(request.getfixturevalue("pgbouncer").through(url))
    return url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open, empty store of each kind."""
    async with opened(store_url) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def bare_store_url(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of a store that does not exist yet."""
    fixture = {"sqlite": "sqlite_url", "postgres": "bare_pg_url"}[request.param]
    url: str = request.getfixturevalue(fixture)
    return url
