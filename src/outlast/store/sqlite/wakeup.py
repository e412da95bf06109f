"""Wakes workers on SQLite: the kernel reports writes, and a look at the file shows commits.

``PRAGMA data_version`` changes when another connection has committed; it reads a number in shared
memory and takes no lock that others wait for. The look runs on a separate thread: no event loop
ever waits for the disk.

An event for the write-ahead log comes once, when a page is written to the log, and so before the
commit can be seen. So after an event looks follow at growing intervals, from a quarter of a
millisecond to a second, which is also the interval without any event. While this connection is open
the log stays the same file.

If there is no inotify, or it sends no events, each look follows the last after 15 ms.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import select
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from outlast.base.clock import Clock
from outlast.store.sqlite import url as sqlite_url
from outlast.store.sqlite.connection import Place, place_of
from outlast.store.sqlite.statements import statements
from outlast.store.wakeup import Health

POLL_SECONDS = 0.015  # between looks if writes are not reported, or do not end
FIRST_SECONDS = POLL_SECONDS / 64  # from the event of a write to the first look for its commit
AGAIN_SECONDS = POLL_SECONDS / 4  # after a commit: further commits of the same work, often our own
GROWTH = 1.5  # a commit t seconds after its event is seen within t / 2
REST_SECONDS = 1.0  # between two looks while there are no events
REOPEN_SECONDS = 1.0  # after an error
_DATA_VERSION = statements("wakeup")["data_version"]
IN_MODIFY = 0x2
READ_BYTES = 65_536  # of events; the kernel merges equal ones in a row, so one read gets all


class FileWatch:
    """Notices every write to the files that it watches, by any process of this kernel; only
    ``interrupt`` may be called from another thread. OSError: there is no inotify, or this user
    has no more of it."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "inotify is Linux's")
        self._fd = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            os.close(self._fd)
            raise
        self._poll = select.poll()
        for each in (self._fd, self._bell):
            self._poll.register(each, select.POLLIN)

    def follow(self, path: Path) -> None:
        _call("inotify_add_watch", self._fd, os.fsencode(path), IN_MODIFY)

    def has_events(self, seconds: float = 0.0) -> bool:
        """Return whether there were writes since the last call; wait ``seconds`` for the first."""
        self._poll.poll(seconds * 1000)
        with suppress(BlockingIOError):
            return bool(os.read(self._fd, READ_BYTES))
        return False

    def interrupt(self) -> None:
        """End all waits, now and later."""
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._bell)


def _call(name: str, *values: int | bytes) -> int:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    result = int(function(*values))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


class Pace:
    """Decides how long to wait before the next look, and whether an event may shorten that: less
    and less often after an event, but every POLL_SECONDS while events come in each pause."""

    def __init__(self) -> None:
        self.pause = self._start = FIRST_SECONDS
        self.ignores_events = True

    def note_look(self, *, told: bool, changed: bool) -> None:
        """``told``: an event came; ``changed``: the look has found a commit."""
        if told or changed:
            self.pause = max(self._start, AGAIN_SECONDS) if changed else self._start
            self._start = min(2 * self.pause, POLL_SECONDS)
            self.ignores_events = True
        else:
            self.pause = min(GROWTH * self.pause, REST_SECONDS)
            self._start = FIRST_SECONDS
            self.ignores_events = self.pause < AGAIN_SECONDS


class SqliteWakeup:
    """Calls ``on_wake("")`` on the loop of ``start`` soon after any process has committed anything.
    It is in good health while the last look worked."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.health = Health("file", sees_all=True)
        self._path = sqlite_url.parse(url).path
        self._clock = clock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch: FileWatch | None = None
        self._wake: Callable[[], None] = lambda: None

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Errors are not raised: polling goes on underneath."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(on_wake, "")

        self._wake = wake
        try:
            self._watch = FileWatch()
        except OSError as error:
            self._poll_often(error)
        self._thread = threading.Thread(target=self._look_on, name="outlast-wakeup", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._ended.set()
        thread, self._thread = self._thread, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.interrupt()
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
        if watch is not None:
            watch.close()
        self.health.note_closed()

    def _look_on(self) -> None:
        watch, again = self._watch, False
        while not self._ended.is_set():
            try:
                place = place_of(self._path)
                uri = f"{self._path.as_uri()}?mode=ro"
                with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
                    self._look(connection, watch, place, again=again)
            except Exception as error:  # of any kind: otherwise this thread would end unnoticed
                self.health.note_trouble(error)
            again = True
            self._ended.wait(REOPEN_SECONDS)

    def _look(
        self,
        connection: sqlite3.Connection,
        watch: FileWatch | None,
        place: Place | None,
        *,
        again: bool,
    ) -> None:
        """Look until another file is there. ``again``: commits since the last look may have gone
        unseen."""
        pace = Pace()
        seen = _version(connection)  # from here on the log exists
        watch = self._follow_log(watch)
        self.health.note_ready()
        if again:
            self._wake()
        while not self._ended.is_set() and place_of(self._path) == place:
            told = self._rest(pace, watch)
            version = _version(connection)
            changed, seen = version != seen, version
            if changed:
                self._wake()
            if watch is not None and changed and pace.pause >= REST_SECONDS:
                watch = self._keep_if_it_reports(watch, told=told)
            pace.note_look(told=told, changed=changed)

    def _rest(self, pace: Pace, watch: FileWatch | None) -> bool:
        if watch is None:
            self._ended.wait(POLL_SECONDS)
            return False
        if pace.ignores_events:
            self._ended.wait(pace.pause)
            return watch.has_events()
        return watch.has_events(pace.pause)

    def _keep_if_it_reports(self, watch: FileWatch, *, told: bool) -> FileWatch | None:
        """Return the watch unless it missed a commit that was seen: its event comes before."""
        if told or watch.has_events():
            return watch
        self._poll_often("for commits come without an event of the kernel")
        return None

    def _follow_log(self, watch: FileWatch | None) -> FileWatch | None:
        path = self._path.resolve()  # SQLite follows links, too
        try:
            if watch is not None:
                watch.follow(path.with_name(f"{path.name}-wal"))
        except OSError as error:
            self._poll_often(error)
            return None
        return watch

    def _poll_often(self, why: OSError | str) -> None:
        """Note for people that looks are frequent, unless this system has no inotify at all."""
        if isinstance(why, str) or why.errno != errno.ENOSYS:
            self.health.note = f"looks every {POLL_SECONDS * 1000:g} ms: {why}"


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute(_DATA_VERSION).fetchone()[0])
