"""Defines the entry of SQLite among the kinds of stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outlast.base.clock import Clock
from outlast.store.backend import Backend, Callers, StoreOptions

if TYPE_CHECKING:
    from outlast.store.sqlite.readable import ReadableSqlite
    from outlast.store.sqlite.store import SqliteStore
    from outlast.store.sqlite.wakeup import SqliteWakeup


def _open_store(url: str, options: StoreOptions) -> SqliteStore:
    from outlast.store.sqlite.store import SqliteStore

    return SqliteStore(url, options)


def _open_readable(url: str, options: StoreOptions) -> ReadableSqlite:
    from outlast.store.sqlite.readable import ReadableSqlite

    return ReadableSqlite(url, options)


def _open_wakeup(url: str, clock: Clock) -> SqliteWakeup:
    from outlast.store.sqlite.wakeup import SqliteWakeup

    return SqliteWakeup(url, clock)


def _find_file(url: str) -> Path:
    from outlast.store.sqlite.url import parse

    return parse(url).path


def _load_callers() -> Callers:
    from outlast.store.sqlite.callers import CALLERS

    return CALLERS


SQLITE = Backend(
    schemes=("sqlite",),
    forms=(
        "sqlite:///jobs.db (a file in this directory)",
        "sqlite:////var/lib/jobs.db (an absolute path: four slashes)",
    ),
    open_store=_open_store,
    open_readable=_open_readable,
    open_wakeup=_open_wakeup,
    load_callers=_load_callers,
    find_file=_find_file,
)
