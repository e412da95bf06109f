"""Keeps the sessions that a worker can do without: they go where the server has too few places.

A worker runs jobs with two sessions, its exchange's and its beats'. One that listens, and one that
holds a presence, only let it be quicker. If the server refuses one of the two, this process ends
its spare ones, and opens none for ``APART_SECONDS``.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.store.backend import StoreOptions
from outlast.store.postgres.connection import connect

APART_SECONDS = 60.0

_lock = threading.Lock()  # beats have a thread of their own
_open: dict[str, dict[Any, asyncio.AbstractEventLoop]] = {}
_apart_until: dict[str, float] = {}


async def connect_spare(url: str, options: StoreOptions) -> Any:
    if not _is_apart(url):
        connection = await connect(url, options)
        with _lock:
            _open.setdefault(url, {})[connection] = asyncio.get_running_loop()
        connection.add_termination_listener(lambda it: _open[url].pop(it, None))
        if not _is_apart(url):
            return connection
        connection.terminate()
    raise ConnectionError("the server accepts too few connections: sessions that run jobs go first")


def let_go(url: str) -> None:
    """End the spare sessions of this process. From any thread."""
    _apart_until[url] = SYSTEM.boot() + APART_SECONDS
    with _lock:
        spare = list(_open.get(url, {}).items())
    for connection, loop in spare:
        if not loop.is_closed():
            loop.call_soon_threadsafe(connection.terminate)


def _is_apart(url: str) -> bool:
    return SYSTEM.boot() < _apart_until.get(url, 0.0)
