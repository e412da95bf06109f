"""Defines the entry of PostgreSQL among the kinds of stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outlast.base.clock import Clock
from outlast.errors import ConfigError
from outlast.store.backend import Backend, Callers, StoreOptions

if TYPE_CHECKING:
    from outlast.store.finding import Route
    from outlast.store.postgres.presence import PostgresPresence
    from outlast.store.postgres.readable import ReadablePostgres
    from outlast.store.postgres.store import PostgresStore
    from outlast.store.postgres.wakeup import PostgresWakeup
    from outlast.store.wakeup import Wakeup


def _open_store(url: str, options: StoreOptions) -> PostgresStore:
    with _driver_for(url):
        from outlast.store.postgres.store import PostgresStore
    return PostgresStore(url, options)


def _open_readable(url: str, options: StoreOptions) -> ReadablePostgres:
    with _driver_for(url):
        from outlast.store.postgres.readable import ReadablePostgres
    return ReadablePostgres(url, options)


@contextmanager
def _driver_for(url: str) -> Iterator[None]:
    """Raise ConfigError if the driver is not installed, or for an invalid URL."""
    from outlast.store.postgres.url import read_url

    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("asyncpg"):
            raise
        raise ConfigError(
            "PostgreSQL needs the driver asyncpg: pip install 'outlast[postgres]'"
        ) from error
    read_url(url)


def _open_wakeup(url: str, clock: Clock) -> PostgresWakeup:
    from outlast.store.postgres.wakeup import PostgresWakeup

    return PostgresWakeup(url, clock)


def _open_presence(url: str, patience: float, wakeup: Wakeup) -> PostgresPresence:
    from outlast.store.postgres.presence import PostgresPresence

    return PostgresPresence(url, patience=patience, wakeup=wakeup)


def _read_route(url: str, environ: Mapping[str, str]) -> Route:
    from outlast.store.postgres.route import read_route

    return read_route(url, environ)


def _make_query(options: Mapping[str, Any]) -> dict[str, str]:
    from outlast.store.postgres.url import make_query

    return make_query(options)


def _load_callers() -> Callers:
    from outlast.store.postgres.callers import CALLERS

    return CALLERS


POSTGRES = Backend(
    schemes=("postgresql", "postgres"),
    forms=("postgresql://user@host/database",),
    open_store=_open_store,
    open_readable=_open_readable,
    open_wakeup=_open_wakeup,
    load_callers=_load_callers,
    open_presence=_open_presence,
    read_route=_read_route,
    make_query=_make_query,
)
