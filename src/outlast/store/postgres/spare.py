"""Keeps the sessions that a worker can do without: they go where the server has too few places.

A worker runs jobs with two sessions, that of its exchange and that of its beats. A session that
listens, and one that holds a presence, only make it quicker. If the server refuses one of the first
two, this process ends its spare sessions, and opens no others for ``REOPEN_SECONDS``.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.store.backend import StoreOptions
from outlast.store.postgres.connection import connect

REOPEN_SECONDS = 60.0

_lock = threading.Lock()  # beats have a thread of their own
_open: dict[str, dict[Any, asyncio.AbstractEventLoop]] = {}
_refused_until: dict[str, float] = {}


async def connect_spare(url: str, options: StoreOptions) -> Any:
    if not _is_refused(url):
        connection = await connect(url, options)
        with _lock:
            _open.setdefault(url, {})[connection] = asyncio.get_running_loop()
        connection.add_termination_listener(lambda it: _open[url].pop(it, None))
        if not _is_refused(url):
            return connection
        connection.terminate()
    raise ConnectionError("the server accepts too few connections: sessions that run jobs go first")


def end_spare(url: str) -> None:
    """End the spare sessions of this process. From any thread."""
    _refused_until[url] = SYSTEM.boot() + REOPEN_SECONDS
    with _lock:
        spare = list(_open.get(url, {}).items())
    for connection, loop in spare:
        if not loop.is_closed():
            loop.call_soon_threadsafe(connection.terminate)


def _is_refused(url: str) -> bool:
    return SYSTEM.boot() < _refused_until.get(url, 0.0)
