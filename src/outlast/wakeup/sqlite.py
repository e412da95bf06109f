"""Wake-ups on SQLite: a look at the file's version a few times per tenth of a second.

``PRAGMA data_version`` changes when another connection has committed; it reads a number in
shared memory and takes no lock that anybody waits for. The look runs on a thread of its own:
no event loop ever waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outlast.clock import Clock
from outlast.store import sqlite_url
from outlast.store.sqlite_sql import statements

POLL_SECONDS = 0.015
REOPEN_SECONDS = 1.0  # after an error
_DATA_VERSION = statements("open")["data_version"]


class SqliteWakeup:
    """Calls ``on_wake("")`` on the loop of ``start`` soon after anybody has committed.

    It does not know what was committed, so it wakes for everything; several commits within one
    look are one call. Its own commits too: a worker looks once more after each exchange.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._path = sqlite_url.parse(url).path
        self._clock = clock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Begin to look. Errors are not raised: polling is always on underneath."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(on_wake, "")

        self._thread = threading.Thread(
            target=_watch, args=(self._path, self._ended, wake), name="outlast-wakeup", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """Stop looking. Safe to call twice."""
        self._ended.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)


def _watch(path: Path, ended: threading.Event, wake: Callable[[], None]) -> None:
    while not ended.is_set():
        with suppress(sqlite3.Error):
            _watch_connection(path, ended, wake)
        ended.wait(REOPEN_SECONDS)


def _watch_connection(path: Path, ended: threading.Event, wake: Callable[[], None]) -> None:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        seen = None
        while not ended.is_set():
            version = connection.execute(_DATA_VERSION).fetchone()[0]
            if seen is not None and version != seen:
                wake()
            seen = version
            ended.wait(POLL_SECONDS)
    finally:
        connection.close()
