"""Runs one connection on a separate thread, so that no disk ever blocks an event loop.

All SQL runs in plain functions of a cursor, passed as ``work``; this module opens the connection,
brackets transactions, waits for locks and turns errors into Outlast's.

A file that is deleted or replaced lives on only for processes that have it open. So each call first
looks whether the file at the path is still the open one, and after a commit looks again.

A fork would copy SQLite's record of this process's locks into a process that holds none; so
connections are closed just before a fork and opened again when next needed.

A queue and a future for each call take a third of the processor time of a ThreadPoolExecutor.
"""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import stat
import tempfile
import threading
import weakref
from _queue import SimpleQueue  # gevent replaces queue.SimpleQueue
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from sqlite3 import Cursor
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from outlast.base.clock import SYSTEM
from outlast.base.forks import at_fork
from outlast.base.greenlets import start
from outlast.base.sync import serve
from outlast.errors import ConfigError, StoreUnavailable
from outlast.store.backend import StoreOptions
from outlast.store.environment import is_there, mode_of
from outlast.store.sqlite.errors import is_busy, translate
from outlast.store.sqlite.statements import statements

T = TypeVar("T")
P = ParamSpec("P")
ROUND_SECONDS = 0.05  # sqlite3's own wait; more patience is more rounds of it

_SESSION = statements("session")
_DATA_VERSION = statements("wakeup")["data_version"]
_alive: weakref.WeakSet[SqliteConnection] = weakref.WeakSet()
_held: list[SqliteConnection] = []  # between the hooks of one fork
_forking = threading.Lock()  # two threads may fork at once; each must release what it took
_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite adds to the name of a file
_PAUSE = threading.Event()  # never set: waiting for it is a pause on the thread
CLOSING_SECONDS = 1.0  # that calls still wait for the locks of others once close() is called
PAUSE_SECONDS = 0.005  # some locks are refused without sqlite3's own wait
OPEN_TRIES = 3  # if the file at the path is just being replaced

Place = tuple[int, int]  # device and inode
_text = partial(str, encoding="utf-8", errors="replace")
Work = Callable[[Cursor, float], T]  # with a cursor and the time
Verb: TypeAlias = "Callable[Concatenate[Any, P], CoroutineType[Any, Any, T]]"
Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
Calls = SimpleQueue[Call | None]


class OneThread:
    """Runs functions one after the other, as they come from any loop. A call that is cancelled
    before its turn does not run. After the calls that it was given, the thread ends with ``end`` or
    with the last reference to this object."""

    def __init__(self, name: str) -> None:
        self._calls: Calls = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._starting, self._is_started = threading.Lock(), False
        self._end = weakref.finalize(self, _end, self._calls, self._thread, os.getpid())

    def submit(self, job: Callable[..., T], /, *args: Any) -> asyncio.Future[T]:
        """Return the future of ``job(*args)``, on the running loop. RuntimeError after the end."""
        if self.has_ended():
            raise RuntimeError("this thread has ended")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((loop, future, job, args))
        if not self._is_started:
            with self._starting:
                if not self._is_started:  # no other loop's thread has started it first
                    self._is_started = True
                    start(self._thread)
        return future

    def end(self) -> None:
        """Finish the calls that were given, and end. Safe to call twice."""
        self._end()

    def has_ended(self) -> bool:
        """Whether it takes no more calls: after ``end``, and once the interpreter has begun to
        exit, when handlers of atexit may still call."""
        return not self._end.alive


def _end(calls: Calls, thread: threading.Thread, pid: int) -> None:
    calls.put(None)
    is_other = thread.ident is not None and thread is not threading.current_thread()
    if is_other and os.getpid() == pid:  # in a fork that Python has not seen it is not there
        thread.join()


def _serve(calls: Calls) -> None:
    serve()
    while (call := calls.get()) is not None:
        loop, future, job, args = call
        if not future.cancelled():
            result, error = _outcome(job, args)
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_resolve, future, result, error)
            del result, error
        del call, loop, future, job, args  # nothing is kept alive until the next call


def _outcome(job: Callable[..., T], args: tuple[Any, ...]) -> tuple[T | None, BaseException | None]:
    try:
        return job(*args), None
    except BaseException as error:
        return None, error


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    with suppress(asyncio.InvalidStateError):  # cancelled, maybe by a signal at this very moment
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class SqliteConnection:
    """A lazily opened connection, and the one thread that uses it, for calls from any loop."""

    def __init__(self, path: Path, options: StoreOptions) -> None:
        self.path = path
        self.options = options
        self._clock = options.clock
        self._rounds = max(1, round(options.busy_timeout / ROUND_SECONDS))
        self._connection: sqlite3.Connection | None = None
        self._place: Place | None = None  # of the file that is open
        self.thread: OneThread | None = None
        self._give_up_at = math.inf  # on SYSTEM's clock
        self.lock = threading.RLock()
        with _forking:
            _alive.add(self)

    async def run(self, job: Callable[[], T]) -> T:
        thread = self.thread
        if thread is None or thread.has_ended():
            thread = self.thread = OneThread("outlast-sqlite")
            self._give_up_at = math.inf
        return await thread.submit(self._guard, job)

    async def read(self, work: Work[T]) -> T:
        """Run ``work(cursor, now)``, which only reads, without the write lock."""
        return await self.run(lambda: self.read_now(work))

    async def write(self, work: Work[T]) -> T:
        """Run ``work(cursor, now)`` in one transaction under the write lock, all or nothing."""
        return await self.run(lambda: self.write_now(work))

    def read_now(self, work: Work[T]) -> T:
        return self._patiently(
            lambda: work(self.connect().cursor(), self._clock.wall()), self._rounds
        )

    def write_now(self, work: Work[T], *, brief: bool = False) -> T:
        """``brief``: give up after one round."""
        return self._patiently(lambda: self._transaction(work), 1 if brief else self._rounds)

    def create_now(self) -> None:
        """Make the file if there is none."""
        self._patiently(lambda: self.connect(create=True), self._rounds)

    def connect(self, *, create: bool = False) -> sqlite3.Connection:
        """On the thread only. Raises StoreUnavailable, once, if the file that was open is no longer
        at its path."""
        if self._connection is not None:
            self._check_place("nothing was done")
            return self._connection
        mode = "ro" if self.options.read_only else "rwc" if create else "rw"
        connection, place = _opened(self.path, mode)
        if not self.options.durable:
            connection.execute(_SESSION["off"])
        self._connection, self._place = connection, place
        # what holds it is no garbage, as this object may be: freed open, it would make Python warn
        self._close = weakref.finalize(self, _close, connection)
        self._close.atexit = False
        return connection

    def _check_place(self, so: str) -> None:
        if place_of(self.path) != self._place:
            self.disconnect()
            raise StoreUnavailable(
                f"{self.path} was deleted, or another file has taken its place: {so}"
            )

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection = None
            self._close()

    async def close(self) -> None:
        """Safe to call twice. Calls that wait for the locks of others soon give up."""
        self._give_up_at = min(self._give_up_at, SYSTEM.boot() + CLOSING_SECONDS)
        thread, self.thread = self.thread, None
        if thread is not None:
            try:
                await thread.submit(self._guard, self.disconnect)
            except RuntimeError:  # the interpreter is ending: no thread takes work
                self._guard(self.disconnect)
            thread.end()

    def _guard(self, job: Callable[[], T]) -> T:
        with self.lock:
            try:
                return job()
            except Exception as error:
                other = translate(error, self.path)
                if other is error:
                    raise
                raise other from error

    def _patiently(self, attempt: Callable[[], T], rounds: int) -> T:
        """Try again, from the start, while others hold locks: a failed try has changed nothing."""
        for _ in range(rounds - 1):
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or SYSTEM.boot() >= self._give_up_at:
                    raise
            _PAUSE.wait(PAUSE_SECONDS)
        return attempt()

    def _transaction(self, work: Work[T]) -> T:
        result = self._bracket(self.connect().cursor(), work)
        self._check_place("the last writes may be lost")
        return result

    def _bracket(self, cursor: Cursor, work: Work[T]) -> T:
        cursor.execute(_SESSION["begin"])
        try:
            result = work(cursor, self._clock.wall())
            cursor.execute(_SESSION["commit"])
        except BaseException:
            if cursor.connection.in_transaction:
                with suppress(sqlite3.Error):
                    cursor.execute(_SESSION["rollback"])
            raise
        return result


def _close(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        connection.close()


def place_of(path: Path) -> Place | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _opened(path: Path, mode: str) -> tuple[sqlite3.Connection, Place | None]:
    for _ in range(OPEN_TRIES):
        before = place_of(path)
        connection = _connected(path, mode)
        place = place_of(path)
        if before in {None, place}:
            return connection, place
        connection.close()
    raise StoreUnavailable(f"{path} keeps being replaced: stop the program that does this")


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    check_path(path, must_exist=mode != "rwc")
    if mode == "rwc" and not is_there(path):
        _make_private(path)
    with suppress(FileNotFoundError):  # SQLite reports a missing file
        if mode == "rwc":
            _check_made(path)
        _check_beside(path)
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=ROUND_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.text_factory = _text  # another program's text may not be UTF-8
    try:
        if mode != "ro":
            _set_up(connection, path)
            _check_beside(path)  # again: SQLite uses files that another user has made meanwhile
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """Make an empty file that no other user can read under any umask; SQLite gives its mode to the
    files beside it. The file is named only once it is closed: closing it later would drop the locks
    that this process has on it. If it cannot be made, SQLite makes one, or reports why not."""
    with suppress(OSError):
        fd, made = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
        os.close(fd)
        try:
            with suppress(FileExistsError):
                os.link(made, path)
        finally:
            os.unlink(made)


def _check_made(path: Path) -> None:
    """Raise ConfigError, as Linux refuses it (fs.protected_regular), if the file belongs to another
    user who may only make files in its directory."""
    directory, file = path.parent.stat(), path.stat()
    every = stat.S_ISVTX | stat.S_IWOTH
    if directory.st_mode & every == every:
        _check_owner(path, file, {directory.st_uid})


def _check_beside(path: Path) -> None:
    """Raise ConfigError if a user who may not write the database has made the files beside it:
    SQLite takes the contents of the log for written."""
    real = Path(os.path.realpath(path))
    file = real.stat()
    if file.st_mode & stat.S_IWOTH:
        return
    for end in _BESIDE:
        beside = real.with_name(f"{real.name}{end}")
        with suppress(FileNotFoundError):
            found = beside.lstat()
            in_group = file.st_mode & stat.S_IWGRP and found.st_gid == file.st_gid
            if not in_group or stat.S_ISLNK(found.st_mode):
                _check_owner(beside, found, {file.st_uid})


def _check_owner(path: Path, found: os.stat_result, others: set[int]) -> None:
    if found.st_uid not in {os.geteuid(), 0, *others}:
        raise ConfigError(
            f"{path} belongs to user {found.st_uid}, who can therefore read and change the"
            " arguments of jobs. Remove it, or keep the store in a directory where other users"
            " create nothing"
        )


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute(_SESSION["wal"]).fetchone()[0]
    if mode != "wal":
        raise StoreUnavailable(f"{path} cannot be put into WAL mode (it stays in {mode!r} mode)")
    for name in ("full", "log", "cache", "temporary"):
        connection.execute(_SESSION[name])
    connection.execute(_DATA_VERSION).fetchone()  # a look opens the log, or makes it


def check_path(path: Path, *, must_exist: bool) -> None:
    """Raise a clear error for a path that SQLite could not open, or would wait for without end."""
    mode = mode_of(path)
    if mode is None:
        if not path.parent.is_dir():
            raise StoreUnavailable(f"the directory {path.parent} does not exist: create it first")
        if must_exist:
            raise StoreUnavailable(f"{path} does not exist")
        return
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{path} is a directory: the URL must name a file in it")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path} is not a file, but a pipe, a socket or a device")
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(f"{path} cannot be read by this user")


def writes(verb: Callable[Concatenate[Cursor, float, P], T]) -> Verb[P, T]:
    """Return the verb of a store that runs ``verb(cursor, now, …)`` as ``write`` does."""

    async def call(store: Any, /, *args: P.args, **named: P.kwargs) -> T:
        connection: SqliteConnection = store._connection  # noqa: SLF001
        return await connection.write(lambda cursor, now: verb(cursor, now, *args, **named))

    return call  # type: ignore[return-value]  # mypy takes it for any Coroutine


def reads(verb: Callable[Concatenate[Cursor, float, P], T]) -> Verb[P, T]:
    """Return the verb of a store that runs ``verb(cursor, now, …)`` as ``read`` does."""

    async def call(store: Any, /, *args: P.args, **named: P.kwargs) -> T:
        connection: SqliteConnection = store._connection  # noqa: SLF001
        return await connection.read(lambda cursor, now: verb(cursor, now, *args, **named))

    return call  # type: ignore[return-value]


def _before_fork() -> None:
    """Leave nothing open that a child would inherit."""
    _forking.acquire()
    _held[:] = _alive
    for connection in _held:
        connection.lock.acquire()
        connection.disconnect()


def _after_fork_in_parent() -> None:
    for connection in _held:
        connection.lock.release()
    _held.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    """The threads do not exist in the child."""
    for connection in _held:
        connection.lock = threading.RLock()
        connection.thread = None
    _held.clear()
    _forking.release()


at_fork(_before_fork, _after_fork_in_parent, _after_fork_in_child)
