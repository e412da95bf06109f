"""The place where an application's jobs live: its URL, and a store for each event loop.

A store is opened at first use and belongs to one event loop in one process: an asyncpg
connection cannot be used from another loop, and no connection survives a fork.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import resolve_wakeup
from outlast.base.credentials import redact
from outlast.base.forks import importing
from outlast.base.sync import hop, run_in_background
from outlast.client.back_pressure import QueueMaxima
from outlast.errors import StoreUnavailable, UsageError, text_of
from outlast.payload.payloads import PLAIN, Payloads
from outlast.store.backend import file_of, resolve_url
from outlast.store.batches import split
from outlast.store.protocol import ForeignConnection, Store
from outlast.store.values import Enqueued, NewJob, Spawn

if TYPE_CHECKING:
    from outlast.wakeup.messenger import Messenger

R = TypeVar("R")

Enqueue = Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]
Sender = Callable[[Sequence[NewJob], Enqueue], Awaitable[list[Enqueued]]]
"""Stores jobs through the function that it is given, and returns that function's result."""

CONNECTIONS = 4  # to a server, at most, per event loop
FAREWELL_SECONDS = 1.0  # to close a store whose event loop is gone
CLOSING_SECONDS = 2.0  # for another thread's event loop, which may be blocked, to close its store
LOOK_SECONDS = 0.05  # between checks whether an event loop of another thread still runs


class _Opened(msgspec.Struct):
    """The store of one event loop: the task that opens it, the generator that closes it with the
    loop, and, once a call has waited for it, the store itself."""

    opening: asyncio.Task[Store]
    life: AsyncGenerator[Store]
    store: Store | None = None
    is_closed: bool = False

    def failed(self) -> bool:
        """Whether it could not be opened."""
        done = self.opening.done()
        return done and (self.opening.cancelled() or self.opening.exception() is not None)

    async def close(self) -> None:
        """Close it, on this loop."""
        with suppress(Exception):
            await self.opening
        with suppress(Exception):
            await self.life.aclose()
        self.is_closed = True


_imported: list[str] = []  # the application that is being imported, if any


@contextmanager
def refuse_enqueuing(module: str) -> Iterator[None]:
    """Refuse to enqueue while a worker or a command imports an application: each runner, and most
    commands, import it and would enqueue the same again."""
    _imported.append(module)
    try:
        yield
    finally:
        _imported.pop()


def _check_not_importing() -> None:
    if _imported:
        raise UsageError(
            f"{_imported[-1]} enqueues a job while it is imported: each runner and each command"
            ' would enqueue it again. Put the call under `if __name__ == "__main__":` or into a'
            " file of its own"
        )


class StoreProvider:
    """The stores of one application, one for each event loop."""

    def __init__(
        self,
        url: str | None,
        *,
        notify: bool = True,
        wakeup: str | None = None,
        enqueues: bool = True,
        payloads: Payloads = PLAIN,
        **options: Any,
    ) -> None:
        """``notify``: whether enqueuing wakes idle workers, where the store can. ``wakeup``: the
        URL of a messenger that wakes them instead. ``enqueues``: False for a program that enqueues
        nothing here, and so opens no messenger. ``payloads``: how payloads are encoded for the
        store. ``options``: further ``StoreOptions``."""
        self.payloads = payloads
        self._url = None if url is None else resolve_url(url)
        self.wakeup = wakeup
        self._messengers: dict[asyncio.AbstractEventLoop, Messenger] = {}
        self._notify = notify
        self._enqueues = enqueues
        self.only: str | None = None  # the id of the only store to use; None: any, made if missing
        self._options = {"connections": CONNECTIONS} | options
        self._stores: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self._store_id: str | None = None
        self._is_replaced = False
        self._senders: list[Sender] = []
        self.clock: Clock = SYSTEM
        self.queues = QueueMaxima()
        _providers.add(self)

    @property
    def url(self) -> str:
        """The store's address; read from the environment at first use if none was given."""
        if self._url is None:
            self._url = resolve_url(None)
        return self._url

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "an application, its jobs and its limits hold connections, and cannot be pickled or"
            " copied: import the application there, and pass job.id for app.get(id)"
        )

    def move(self, url: str) -> None:
        """Use another store. UsageError once one has been opened."""
        if self._stores:
            raise UsageError(
                f"the application has already opened {redact(self.url)}: call this before its"
                " first job"
            )
        self._url = resolve_url(url)

    async def store(self) -> Store:
        """Return the open store of the running loop."""
        loop = asyncio.get_running_loop()
        opened = self._stores.get(loop)
        if opened is not None and opened.store is not None:
            return opened.store
        if opened is None or opened.failed():
            life = self._life()
            opened = self._stores[loop] = _Opened(loop.create_task(_first(life)), life)
            await self._close_where(lambda other: other.is_closed())
        store = await asyncio.shield(opened.opening)
        opened.store = store
        return store

    async def ask(self, verb: Callable[[Store], Awaitable[R]]) -> R:
        """Return the result of ``verb(store)``; works with and without a running loop."""

        async def there() -> R:
            return await verb(await self.store())

        return await hop(there)

    async def store_id(self) -> str:
        """Return the id of the store's schema."""
        if self._store_id is None:
            self._store_id = await self.ask(lambda store: store.store_id())
        return self._store_id

    def wrap(self, sender: Sender) -> None:
        """Enqueue through ``sender`` from now on: it gets the jobs and the function that stores
        them, and may change the jobs before it calls this function."""
        self._senders.append(sender)

    def enqueue(
        self, batch: Sequence[NewJob], connection: object = None
    ) -> Awaitable[list[Enqueued]]:
        """Store at most ENQUEUE_MAX jobs in their order, all or none: on a connection of the store,
        or in the caller's transaction on ``connection``; or, for a ``Spawn``, any number of jobs as
        the children of an attempt."""
        return self._sending(lambda jobs: self._store_jobs(jobs, connection))(batch)

    async def enqueue_many(
        self,
        jobs: Sequence[NewJob],
        take: Callable[[list[Enqueued]], None],
        connection: object = None,
    ) -> None:
        """Store any number of jobs in their order, in consecutive batches.

        ``take`` receives the stored jobs, batch by batch in order.
        """

        async def store(wanted: Sequence[NewJob]) -> list[Enqueued]:
            await self._store_many(wanted, take, connection)
            return []

        await self._sending(store)(jobs)

    def _sending(self, store: Enqueue) -> Enqueue:
        """Return a function that stores jobs with this one, through all senders, newest first."""
        for sender in self._senders:
            store = _through(sender, store)
        return store

    async def admit(self, jobs: Sequence[NewJob], wait: float = 0.0) -> None:
        """Wait up to that many seconds for room in the queues of these jobs; QueueFull."""
        if self.queues.maxima:
            await self.queues.admit(
                jobs,
                lambda queue, most: self.ask(lambda store: store.inspector.waiting(queue, most)),
                self.clock,
                wait,
            )

    def note_stored(self, jobs: Sequence[NewJob], stored: Sequence[Enqueued]) -> None:
        """Note the answer of the store for admitted jobs."""
        if self.queues.maxima:
            self.queues.note_stored(jobs, stored)

    def _store_jobs(self, batch: Sequence[NewJob], connection: object) -> Awaitable[list[Enqueued]]:
        _check_not_importing()
        if connection is None or isinstance(connection, Spawn):
            return hop(lambda: self._enqueue_here(batch, connection))
        return self._enqueue_there(batch, connection)

    async def _enqueue_there(self, batch: Sequence[NewJob], connection: object) -> list[Enqueued]:
        return await (await self._foreign(connection)).enqueue(batch)

    async def ask_on(
        self, connection: object, verb: Callable[[Store | ForeignConnection], Awaitable[R]]
    ) -> R:
        """Return the result of ``verb``, on the store or in the caller's transaction."""
        if connection is None:
            return await self.ask(verb)
        _check_not_importing()
        return await verb(await self._foreign(connection))

    async def _foreign(self, connection: object) -> ForeignConnection:
        """Return the caller's connection, checked to be on this store."""
        with importing:
            from outlast.store.foreign import checked

        try:
            store_id = await self.store_id()
        except StoreUnavailable as error:
            raise _unless_opened_before(error, self.url) from error
        notify, file = self._notifies(), file_of(self.url)
        return await checked(connection, store_id, notify=notify, clock=self.clock, file=file)

    async def _store_many(
        self,
        jobs: Sequence[NewJob],
        take: Callable[[list[Enqueued]], None],
        connection: object,
    ) -> None:
        _check_not_importing()
        batches = list(split(jobs, lambda job: (1, len(job.args))))
        if connection is None:
            await hop(lambda: self._enqueue_in_turn(batches, take))
            return
        for batch in batches:
            take(await self._store_jobs(batch, connection))

    async def _enqueue_in_turn(
        self, batches: Sequence[Sequence[NewJob]], take: Callable[[list[Enqueued]], None]
    ) -> None:
        """Store batches. ``call_soon`` runs ``take`` while the next batch is on its way, so that
        client and server work at the same time."""
        stored: list[list[Enqueued]] = []

        def catch_up() -> None:
            while stored:
                take(stored.pop(0))

        try:
            for batch in batches:
                asyncio.get_running_loop().call_soon(catch_up)
                stored.append(await self._enqueue_here(batch))
        finally:
            catch_up()

    async def _enqueue_here(
        self, batch: Sequence[NewJob], spawn: Spawn | None = None
    ) -> list[Enqueued]:
        """Store jobs; once they are committed, announce them to the messenger, if there is one."""
        store = await self.store()
        stored = await (store.enqueue(batch) if spawn is None else store.spawn(batch, spawn))
        messengers = self._messengers  # usually empty
        messenger = messengers.get(asyncio.get_running_loop()) if messengers else None
        if messenger is not None:
            from outlast.wakeup.notice import notices_of

            await messenger.announce(notices_of(batch, stored))
        return stored

    @contextmanager
    def replace(self, url: str, clock: Clock) -> Iterator[None]:
        """Within the block, use a test's store instead, with its clock and without a messenger; its
        commits need not survive a power cut.

        A store that an event loop opened in the block is closed when that loop ends.
        """
        own: dict[asyncio.AbstractEventLoop, _Opened] = {}
        before = self._url, self.clock, self._store_id, self._is_replaced
        opened = self._stores, self._messengers
        self._url, self.clock = resolve_url(url), clock
        self._store_id, self._is_replaced = None, True
        self._stores, self._messengers = own, {}
        try:
            yield
        finally:
            if own:
                run_in_background(lambda: self._close_where(_is_here))
            self._url, self.clock, self._store_id, self._is_replaced = before
            self._stores, self._messengers = opened
            _keep_until_closed(own)

    @property
    def is_durable(self) -> bool:
        """Whether a commit has to survive a power cut."""
        return not self._is_replaced

    @property
    def messenger_url(self) -> str | None:
        """The messenger's URL: as given, else ``$OUTLAST_WAKEUP``; None: there is no messenger."""
        return None if self._is_replaced else resolve_wakeup(self.wakeup)

    async def close(self) -> None:
        """Close the stores of this process, each on its own loop. They open again when needed."""
        await hop(lambda: self._close_where(lambda _: True))
        self._store_id = None

    async def _close_where(self, wanted: Callable[[asyncio.AbstractEventLoop], bool]) -> None:
        for loop in list(self._stores):  # a copy: other threads add loops
            if wanted(loop) and (opened := self._stores.pop(loop, None)) is not None:
                await _close_on(loop, opened)

    async def _life(self) -> AsyncGenerator[Store]:
        """Yield a store until ``close``, or until ``asyncio.run`` closes the loop's generators."""
        with importing:
            from outlast.store import open_store

            store = open_store(
                self.url,
                notify=self._notifies(),
                clock=self.clock,
                durable=self.is_durable,
                only=self.only,
                **self._options,
            )
        loop = asyncio.get_running_loop()
        try:
            await store.open(make=self.only is None)
            await self._open_messenger(loop, store)
            yield store
        finally:
            messenger = self._messengers.pop(loop, None)
            if messenger is not None:
                await messenger.close()
            await store.close()

    async def _open_messenger(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        wakeup = self.messenger_url
        if self._enqueues and wakeup is not None:
            store_id = await store.store_id()
            with importing:
                from outlast.wakeup import open_messenger

                messenger = open_messenger(wakeup, self.url, store_id)
            await messenger.start()
            self._messengers[loop] = messenger

    def _notifies(self) -> bool:
        return self._notify and self.messenger_url is None

    def forget(self) -> None:
        """Start over in a child process, without touching the parent's connections."""
        _inherited.append((self._stores, self._messengers))
        self._stores, self._messengers = {}, {}


def _through(sender: Sender, enqueue: Enqueue) -> Enqueue:
    return lambda jobs: sender(jobs, enqueue)


def _unless_opened_before(error: StoreUnavailable, url: str) -> StoreUnavailable:
    """Return the error of a store that could not be opened, with advice in case the caller's own
    transaction holds the lock on the file."""
    if file_of(url) is None:
        return error
    return StoreUnavailable(
        f"{text_of(error)}; if your own open transaction holds the lock: the first call creates the"
        " tables on another connection, so run `outlast migrate` or `async with app:` before it"
    )


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    return loop is asyncio.get_running_loop()


def _keep_until_closed(stores: dict[asyncio.AbstractEventLoop, _Opened]) -> None:
    """Keep alive the stores that their loops will close when they end: the garbage collector might
    begin to close them earlier, and a loop that ends just then would not wait for it."""
    _left_open.extend(stores.items())
    _left_open[:] = [
        (loop, opened) for loop, opened in _left_open if not (opened.is_closed or loop.is_closed())
    ]


async def _first(life: AsyncGenerator[Store]) -> Store:
    return await anext(life)


async def _close_on(loop: asyncio.AbstractEventLoop, opened: _Opened) -> None:
    """Close a store on its own loop, or as far as possible if that loop is gone."""
    if loop is asyncio.get_running_loop():
        await opened.close()
    elif loop.is_running():
        await _close_there(loop, opened)
    elif opened.opening.done():
        with suppress(Exception):
            await asyncio.wait_for(opened.life.aclose(), FAREWELL_SECONDS)


async def _close_there(loop: asyncio.AbstractEventLoop, opened: _Opened) -> None:
    """Close a store on another thread's running loop. Give up after CLOSING_SECONDS, since that
    thread may wait for this very call: the loop then closes the store when it next runs, or at its
    end."""
    _keep_until_closed({loop: opened})
    there = asyncio.run_coroutine_threadsafe(opened.close(), loop)
    closing = asyncio.wrap_future(there)
    give_up_at = SYSTEM.boot() + CLOSING_SECONDS
    while loop.is_running() and not closing.done() and SYSTEM.boot() < give_up_at:
        await asyncio.wait({closing}, timeout=LOOK_SECONDS)


_providers: weakref.WeakSet[StoreProvider] = weakref.WeakSet()
_inherited: list[Any] = []
_left_open: list[tuple[asyncio.AbstractEventLoop, _Opened]] = []


def _forget_after_fork() -> None:
    for stores in list(_providers):
        stores.forget()


os.register_at_fork(after_in_child=_forget_after_fork)
