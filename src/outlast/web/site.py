"""Hold the settings of one dashboard, as its pages use them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response

from outlast.base.clock import SYSTEM, Clock
from outlast.client.stores import StoreProvider
from outlast.store.protocol import Store
from outlast.web.access import Judge
from outlast.web.bulk_runner import BulkRunner
from outlast.web.covering import Covering
from outlast.web.hiding import Hiding
from outlast.web.reader import StoreReader
from outlast.web.rendered import RenderedPages
from outlast.web.sampler import Sampler

Refuse = Callable[[Request], Response | Awaitable[Response | None] | None]
"""Answers a request of a stranger, as by asking for a password; None: it is refused plainly."""


STREAM_SECONDS = 15.0


class Site:
    """One dashboard: its store, its users, and its appearance.

    Attributes:
        reader: the reading side of the store.
        pages: the pages rendered a moment ago.
        bulk: carries out actions on many jobs.
        judge: returns the user of a request.
        refuse: returns the answer to an unknown visitor, instead of a plain refusal.
        name, colour: of the installation, shown on each page, so that production looks like
            production.
        hiding: hides secrets in payloads, output and messages.
        hosts: names by which the page may be requested; ``*``: any.
        read_only: no user may change anything.
        encryption_of: ``Payloads.encryption`` of a task's application, if it is known.
        stream_seconds: for how long one answer sends hints. A server that stops waits for open
            answers; one that ends them itself (``stop_streams``) may let them last.
    """

    def __init__(
        self,
        url: str,
        judge: Judge,
        *,
        refuse: Refuse | None = None,
        name: str = "",
        colour: str = "",
        hiding: Hiding | None = None,
        hosts: frozenset[str] = frozenset(),
        read_only: bool = False,
        encryption_of: Callable[[str], str] = lambda _: "none",
        clock: Clock = SYSTEM,
    ) -> None:
        self.url = url
        self.judge = judge
        self.refuse = refuse
        self.name, self.colour = name, colour
        self.hosts = hosts
        self.read_only = read_only
        self.encryption_of = encryption_of
        self.stream_seconds = STREAM_SECONDS
        self.clock = clock
        self._hiding = hiding or Hiding()
        self.reader = StoreReader(url, clock, self._hiding)
        self.pages = RenderedPages(self.reader, clock)
        self._samplers: WeakKeyDictionary[asyncio.AbstractEventLoop, Sampler] = WeakKeyDictionary()
        self._writers = StoreProvider(url, connections=1, application="outlast-web")
        self.bulk = BulkRunner(self.writer, clock, read_only=read_only)

    async def writer(self) -> Store:
        """Return the store for actions. StoreError if there is none: opening it would create it,
        and a typing error in a path must not create a queue."""
        await self.reader.ask("store id", lambda store: store.store_id())
        return await self._writers.store()

    def sampler(self) -> Sampler:
        """Return the sampler for the clients of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._samplers:
            self._samplers[loop] = Sampler(self.reader, self.clock)
        return self._samplers[loop]

    def stop_streams(self) -> None:
        """End the streams of hints of the running loop: its server is about to stop."""
        self.sampler().stopped.set()

    @property
    def hides(self) -> bool:
        """Whether anything is to be hidden."""
        return self._hiding.is_needed

    def covering(self, *, payload: bool) -> Covering:
        """Return the covering for visitors with, or without, this right."""
        return Covering(self._hiding, payload=payload)

    async def close(self) -> None:
        """Close the stores of the running loop."""
        await self.bulk.close()
        await self.reader.close()
        await self._writers.close()
