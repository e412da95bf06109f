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
from contextlib import closing, suppress

from outlast.clock import Clock
from outlast.store import sqlite_url
from outlast.store.sqlite_sql import statements
from outlast.wakeup.base import Health

POLL_SECONDS = 0.015
REOPEN_SECONDS = 1.0  # after an error
_DATA_VERSION = statements("open")["data_version"]


class SqliteWakeup:
    """Calls ``on_wake("")`` on the loop of ``start`` soon after anybody has committed.

    It does not know what was committed, so it wakes for everything; several commits within one
    look are one call. It is in good health while the last look worked.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self.health = Health("file")
        self._path = sqlite_url.parse(url).path
        self._clock = clock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] = lambda: None

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Begin to look. Errors are not raised: polling is always on underneath."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(on_wake, "")

        self._wake = wake
        self._thread = threading.Thread(target=self._watch, name="outlast-wakeup", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Stop looking. Safe to call twice."""
        self._ended.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
        self.health.ended()

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                self._watch_connection()
            except sqlite3.Error as error:
                self.health.ill(error)
            self._ended.wait(REOPEN_SECONDS)

    def _watch_connection(self) -> None:
        uri = f"{self._path.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            seen = None
            while not self._ended.wait(POLL_SECONDS):
                version = connection.execute(_DATA_VERSION).fetchone()[0]
                self.health.well()
                if seen is not None and version != seen:
                    self._wake()
                seen = version
