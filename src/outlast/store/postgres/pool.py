"""Shares a store's connections to PostgreSQL among its calls.

It keeps a small constant number of connections, last used first. asyncpg's own pool would not do:
its reset costs a round trip per release and runs ``pg_advisory_unlock_all()``. A connection whose
statement broke off is never used again, nor is one from another event loop or process.

A call that its caller cancels leaves its session to the next call, once the session is open or has
ended its statement. Otherwise, where a new session takes longer than the calls' deadlines, no call
would succeed: each would take with it the session that the next one needs.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from outlast.base.credentials import make_hider, redact
from outlast.errors import SchemaMismatch, StoreCorrupt, StoreUnavailable, text_of
from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.postgres.connection import Transaction, begin_text, connect
from outlast.store.postgres.errors import (
    TROUBLE,
    Collision,
    LockHeld,
    NotifyQueueFull,
    has_no_place,
    is_of_driver,
    remedy_of,
    translate,
)
from outlast.store.postgres.hangs import HUNG_SECONDS, Lent
from outlast.store.postgres.spare import end_spare

R = TypeVar("R")

LEFT = "the session did not answer, and another server answers in its place"
RETRIES = 4  # of a transaction that was rolled back in favour of another one
CROWDED_SECONDS = 10.0  # before the next try to open one more, where the server had no place for it
CANCELLED_MAX = 100  # calls of a session that goes on after that
_COMMIT = "COMMIT"
_REPLAN = "SET plan_cache_mode = force_custom_plan"


class _LoopPool:
    """The connections of one event loop. ``idle``: connections that plan each statement again
    (False), and connections that keep plans (True); ``lent``: how many are in use or being opened,
    ``held``: in use; ``free``: how many more may be lent, to the callers for whom some are reserved
    (True) and to the others."""

    def __init__(self, limit: int, reserved: int, connections: Connections) -> None:
        others = asyncio.Semaphore(limit - reserved)
        connect = partial(connections.connect, keeps_plans=False)
        self.in_use = Lent(connect, self.leave)
        self.free = {True: asyncio.Semaphore(reserved) if reserved else others, False: others}
        self.limit = limit
        self.idle: dict[bool, list[Any]] = {False: [], True: []}
        self.lent = self.held = 0
        self.generation = 0
        self.crowded_until = 0.0  # on the loop's clock: the server had no place for one more
        self.came_back = asyncio.Event()
        self.used_at = 0.0  # when a replanning connection was last given back, on the loop's clock
        self.closes: asyncio.TimerHandle | None = None
        self.closing: set[asyncio.Task[None]] = set()
        self.left: set[asyncio.Task[Any]] = set()  # by cancelled calls, for the next ones

    def take(self, *, keeps_plans: bool) -> tuple[Any, bool]:
        """Return an idle connection and its kind; None: there is room to open one. Only a call
        that allows cached plans gets a connection that keeps them, and it does without."""
        fitting, others = self.idle[keeps_plans], self.idle[not keeps_plans]
        while fitting:
            connection = fitting.pop()
            if not connection.is_closed():  # the server may have ended it meanwhile
                return connection, keeps_plans
        others[:] = [each for each in others if not each.is_closed()]
        if others and len(others) + self.lent > self.limit:
            if keeps_plans and len(others) == 1:
                return others.pop(), False
            others.pop().terminate()
        return None, keeps_plans

    def count_idle(self) -> int:
        return len(self.idle[False]) + len(self.idle[True])

    def take_any(self) -> tuple[Any, bool]:
        """Return an idle connection of either kind, and its kind."""
        for kind, idle in self.idle.items():
            if idle:
                return idle.pop(), kind
        return None, False

    def leave(self, sessions: Iterable[Any]) -> None:
        """End these sessions, which are in use, and the idle ones: another server answers."""
        for each in [*sessions, *self.empty()]:
            each.is_left = True
            each.terminate()

    def empty(self) -> list[Any]:
        self.generation += 1
        idle = [*self.idle[False], *self.idle[True]]
        self.idle = {False: [], True: []}
        return idle


class _Checkout:
    """Lends a connection for the length of an ``async with``; errors of the driver leave as errors
    of Outlast.

    ``own``: for a worker's own trips, for which some connections may be reserved. ``kind``: in one
    transaction, committed at the end.

    A call that breaks off takes the connection with it, except for a cancelled one (``_leave``). A
    cancelled caller gets the cancellation, even if the driver's own clean-up (a rollback on a
    connection that is gone) has put another error in its place.
    """

    __slots__ = (
        "_began", "_cancels", "_connection", "_connections", "_free", "_generation", "_keeps_plans",
        "_kind", "_loop_pool", "_opening", "_own", "_task",
    )  # fmt: skip

    def __init__(
        self,
        connections: Connections,
        *,
        keeps_plans: bool = False,
        own: bool = False,
        kind: Transaction | None = None,
    ) -> None:
        self._connections = connections
        self._connection: Any = None
        self._keeps_plans = keeps_plans and connections.options.connections > 1
        self._kind = kind
        self._opening: asyncio.Task[Any] | None = None
        self._own = own
        self._task = asyncio.current_task()
        self._cancels = self._task.cancelling() if self._task else 0
        self._loop_pool = loop_pool = connections.loop_pool()
        self._free = loop_pool.free[own]

    async def __aenter__(self) -> Any:
        loop_pool = self._loop_pool
        await self._free.acquire()
        self._began = asyncio.get_running_loop().time()
        loop_pool.lent += 1
        self._generation = loop_pool.generation
        try:
            connection, keeps = loop_pool.take(keeps_plans=self._keeps_plans)
            if connection is None:
                connection, keeps = await self._find(keeps=keeps)
        except BaseException:
            if self._opening is None:
                self._give_back(keep=False)
            else:
                self._leave(self._opening)
            raise
        self._connection = connection
        loop_pool.held += 1
        loop_pool.in_use.add(connection)
        if keeps and not self._keeps_plans and not self._connection.is_pooled:
            await self._command(_REPLAN)
        self._keeps_plans = self._keeps_plans and keeps
        if self._connection.is_pooled:  # there each call is a transaction
            self._kind = self._kind or Transaction.COMMITTED
            options, local = self._connections.options, self._connection.local
            timeout, read_only = options.statement_timeout, options.read_only
            await self._command(begin_text(self._kind, timeout, local, read_only=read_only))
            loop_pool.in_use.add(connection)  # again: it is in a transaction from now on
        elif self._kind is not None:
            await self._command(begin_text(self._kind))
        return self._connection

    async def _find(self, *, keeps: bool) -> tuple[Any, bool]:
        """Open a connection, or wait for one; return it and its kind. Where the server has no place
        for one more, a worker waits for one of its own to be idle: it works with one."""
        loop_pool = self._loop_pool
        while True:
            connection = await self._open(keeps_plans=keeps)
            if connection is None:
                connection, keeps = loop_pool.take_any()
            if connection is None:
                loop_pool.came_back.clear()
                await loop_pool.came_back.wait()
                connection, keeps = loop_pool.take(keeps_plans=self._keeps_plans)
            if connection is not None:
                return connection, keeps

    async def _open(self, *, keeps_plans: bool) -> Any:
        """Open one more connection; None where the server has no place for it, but others are
        open."""
        loop_pool, now = self._loop_pool, asyncio.get_running_loop().time
        waits = self._connections.options.reserved > 0
        others = loop_pool.count_idle() + (loop_pool.held if waits else 0)
        if others and now() < loop_pool.crowded_until:
            return None
        connect = self._connections.connect(keeps_plans=keeps_plans)
        self._opening = opening = asyncio.create_task(connect, name="outlast-connect")
        await asyncio.wait([opening])
        self._opening = None
        try:
            return opening.result()
        except StoreUnavailable as error:
            if not has_no_place(error):
                raise
            if not others:
                end_spare(self._connections.url)
                raise
            loop_pool.crowded_until = now() + CROWDED_SECONDS
            return None

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            if self._kind is not None:
                await self._command(_COMMIT)
            self._give_back(keep=True)
            return
        mapped = self._translate(error)
        if self._hand_on(error, "SELECT" if self._kind is None else "ROLLBACK"):
            return
        keep = _is_clean(error, mapped)
        if keep and self._kind is not None:
            await self._command("ROLLBACK")
        self._give_back(keep=keep)
        self._raise(error, mapped)

    def _hand_on(self, error: BaseException, end: str) -> bool:
        """Leave the session of a cancelled call to the next one, once its statement has ended, and
        then ``end``. Not of a worker's own trip, which asks all hosts then, nor of a pooler. Each
        cancelled call may leave a prepared statement there."""
        connection = self._connection
        if not isinstance(error, asyncio.CancelledError) or connection.is_closed():
            return False
        connection.cancelled += 1
        if self._own or connection.is_pooled or connection.cancelled > CANCELLED_MAX:
            return False
        self._leave(asyncio.create_task(connection.execute(end), name="outlast-cancelled"))
        return True

    def _leave(self, task: asyncio.Task[Any]) -> None:
        """Let a task go on that opens a session or ends its statement. The session counts as lent
        until then, but no longer than a call may hang."""
        self._loop_pool.left.add(task)
        asyncio.get_running_loop().call_at(self._began + HUNG_SECONDS, task.cancel)
        task.add_done_callback(self._take_back)

    def _take_back(self, task: asyncio.Task[Any]) -> None:
        self._loop_pool.left.discard(task)
        is_usable = not task.cancelled() and task.exception() is None
        if is_usable and self._connection is None:
            self._connection = task.result()
            self._loop_pool.held += 1
        self._give_back(keep=is_usable)

    async def _command(self, text: str) -> None:
        try:
            await self._connection.execute(text)
        except BaseException as error:
            if text == _COMMIT and self._hand_on(error, "SELECT"):
                raise
            mapped = self._translate(error)
            self._give_back(keep=False)
            self._raise(error, mapped)
            raise

    def _translate(self, error: BaseException) -> Exception | None:
        mapped = translate(error)
        if isinstance(mapped, StoreUnavailable):
            if self._connection.is_left:
                return StoreUnavailable(f"PostgreSQL: {LEFT}")
            if isinstance(error, TimeoutError) and (why := self._loop_pool.in_use.why_late):
                return StoreUnavailable(f"PostgreSQL: no answer: {why}")
        return mapped

    def _raise(self, error: BaseException, mapped: Exception | None) -> None:
        if mapped is None:
            return
        if self._task is not None and self._task.cancelling() > self._cancels:
            raise asyncio.CancelledError from error
        raise mapped from error

    def _give_back(self, *, keep: bool) -> None:
        loop_pool, connection = self._loop_pool, self._connection
        loop_pool.in_use.remove(connection)
        keep = keep and self._generation == loop_pool.generation
        keep = keep and not self._connections.is_closed
        if keep and not connection.is_closed() and not connection.is_in_transaction():
            loop_pool.idle[self._keeps_plans].append(connection)
            if not self._keeps_plans:
                loop_pool.used_at = asyncio.get_running_loop().time()
                if loop_pool.closes is None:
                    self._connections.close_when_idle(loop_pool)
        elif connection is not None:
            connection.terminate()
        if connection is not None:
            loop_pool.held -= 1
            loop_pool.came_back.set()
        loop_pool.lent -= 1
        self._free.release()


class Connections:
    """Opens connections when they are needed, at most ``options.connections`` per event loop.

    Statements are planned again each time, since a plan made on an empty table must not outlive
    that. If there may be several connections, some keep plans, for statements whose plan never
    depends on the contents of the tables.
    """

    def __init__(self, url: str, options: StoreOptions = DEFAULTS) -> None:
        self.url = url
        self.options = options
        self.is_closed = False  # a call that goes on then keeps no session
        self.codec = "utf-8"  # of the database, in Python's words, once a session has shown it
        self._pid = os.getpid()
        self._loop_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopPool] = (
            WeakKeyDictionary()
        )
        self._last: tuple[ref[asyncio.AbstractEventLoop], _LoopPool] | None = None
        self._left_to_parent: list[object] = []

    async def run(
        self,
        work: Callable[[Any], Awaitable[R]],
        *,
        keeps_plans: bool = False,
        own: bool = False,
        kind: Transaction | None = None,
    ) -> R:
        """As ``use``, but run ``work`` again if the server has rolled it back in favour of another
        transaction."""
        return await self.run_notifying(
            lambda it, _: work(it), keeps_plans=keeps_plans, own=own, kind=kind
        )

    async def run_notifying(
        self,
        work: Callable[[Any, bool], Awaitable[R]],
        *,
        keeps_plans: bool = False,
        own: bool = False,
        kind: Transaction | None = None,
    ) -> R:
        """As ``run``, with ``work(connection, notify)``. Run it again without notifying if the
        server's queue of notifications, which any role can fill, is full; workers then look by
        themselves, a little later."""
        notify, tries = self.options.notify, RETRIES
        while True:
            try:
                async with _Checkout(self, keeps_plans=keeps_plans, own=own, kind=kind) as lent:
                    return await work(lent, notify)
            except Collision:
                if not tries:
                    raise
                tries -= 1
            except NotifyQueueFull:
                if not notify:
                    raise
                notify = False

    def use(
        self, *, keeps_plans: bool = False, own: bool = False, kind: Transaction | None = None
    ) -> _Checkout:
        return _Checkout(self, keeps_plans=keeps_plans, own=own, kind=kind)

    async def close(self) -> None:
        """Close idle connections: politely in this loop, abruptly in other loops and if they only
        read. One in use closes when it is given back."""
        self.is_closed = True
        loop_pool = self.loop_pool()
        await loop_pool.in_use.close()
        for task in loop_pool.left:
            task.cancel()
        await asyncio.gather(*loop_pool.left, return_exceptions=True)
        if not self.options.read_only:
            for connection in loop_pool.empty():
                await _close(connection)
        await asyncio.gather(*loop_pool.closing)
        self.drop()

    def drop(self) -> None:
        """Throw away idle connections now, and the others when they are returned."""
        for loop, loop_pool in list(self._loop_pools.items()):
            idle = loop_pool.empty()
            if not loop.is_closed():
                for connection in idle:
                    loop.call_soon_threadsafe(connection.terminate)

    def loop_pool(self) -> _LoopPool:
        if os.getpid() != self._pid:  # the sockets are the parent's: keep them open, send nothing
            self._left_to_parent.append(self._loop_pools)
            self._loop_pools, self._last = WeakKeyDictionary(), None
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        if self._last is not None and self._last[0]() is loop:
            return self._last[1]
        loop_pool = self._loop_pools.get(loop)
        if loop_pool is None:
            loop_pool = self._loop_pools[loop] = _LoopPool(
                self.options.connections, self.options.reserved, self
            )
        self._last = (ref(loop), loop_pool)
        return loop_pool

    def close_when_idle(self, loop_pool: _LoopPool) -> None:
        """Close replanning connections once none of them has been used for ``idle_seconds``."""
        seconds = self.options.idle_seconds
        if seconds is not None:
            loop = asyncio.get_running_loop()
            loop_pool.closes = loop.call_later(seconds, self._close_idle, loop, loop_pool, seconds)

    def _close_idle(
        self, loop: asyncio.AbstractEventLoop, loop_pool: _LoopPool, seconds: float
    ) -> None:
        loop_pool.closes = None
        if not loop_pool.idle[False]:
            return
        left = loop_pool.used_at + seconds - loop.time()
        if left > 0:
            loop_pool.closes = loop.call_later(left, self._close_idle, loop, loop_pool, seconds)
            return
        idle, loop_pool.idle[False] = loop_pool.idle[False], []
        for connection in idle:
            closing = loop.create_task(_close(connection), name="outlast-close-idle")
            loop_pool.closing.add(closing)
            closing.add_done_callback(loop_pool.closing.discard)

    async def connect(self, *, keeps_plans: bool) -> Any:
        try:
            connection = await connect(self.url, self.options, keeps_plans=keeps_plans)
        except Exception as error:
            mapped = translate(error)
            if mapped is None:
                raise
            text = "; ".join(filter(None, [make_hider(self.url)(text_of(error)), remedy_of(error)]))
            raise StoreUnavailable(f"cannot connect to {redact(self.url)}: {text}") from error
        self.codec = _codec_of(connection.get_settings().server_encoding)
        return connection


def _codec_of(encoding: str) -> str:
    """Return Python's name of an encoding of PostgreSQL; UTF-8 for one that converts nothing, and
    for one that Python lacks."""
    try:
        return codecs.lookup(encoding.replace("WIN", "cp").replace("KOI8", "koi8_")).name
    except LookupError:
        return "utf-8"


def _is_clean(error: BaseException, mapped: Exception | None) -> bool:
    """Whether the connection is as before. If the driver refuses a value, the server has parsed the
    statement and waits in an implicit transaction, in which no other can begin."""
    if isinstance(mapped, (Collision, LockHeld, NotifyQueueFull)):
        return True
    if isinstance(mapped or error, SchemaMismatch):
        return False  # its search_path may be out of date, too
    if isinstance(mapped, (StoreUnavailable, StoreCorrupt)):
        return False
    if is_of_driver(error):
        return False
    return isinstance(error, Exception)


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=2.0)
    except TROUBLE:
        connection.terminate()


class Verbs:
    """Runs statements on the connections of a store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def _fetch(
        self, statement: str, *values: Any, own: bool = False, keeps_plans: bool = False
    ) -> list[Any]:
        rows: list[Any] = await self._connections.run(
            methodcaller("fetch", statement, *values), own=own, keeps_plans=keeps_plans
        )
        return rows
