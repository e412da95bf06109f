"""Hold the settings of one dashboard, as its pages use them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response

from outlast.base.clock import SYSTEM, Clock
from outlast.client.stores import StoreProvider
from outlast.errors import ConfigError
from outlast.insight.hiding import Hiding
from outlast.store.backend import resolve_url
from outlast.store.protocol import Store
from outlast.web.access import Judge
from outlast.web.bulk_runner import BulkRunner
from outlast.web.reader import StoreReader
from outlast.web.render import OUTLAST

if TYPE_CHECKING:
    from outlast.metrics.exporter import Exporter

Refuse = Callable[[Request], Response | Awaitable[Response | None] | None]
"""Answers a request of a stranger, as by asking for a password; None: it is refused plainly."""

_PREFIX = re.compile(r"(/[\w.~-]+)*", re.ASCII)
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "grey")


class Site:
    """One dashboard: its store, its users, and its appearance. Raises ConfigError for invalid
    settings.

    Attributes:
        reader: the reading side of the store.
        bulk: carries out actions on many jobs.
        exporters: of metrics, one for each event loop.
        judge: returns the user of a request.
        refuse: returns the answer to an unknown visitor, instead of a plain refusal.
        name, colour: of the installation, shown on each page, so that production looks like
            production.
        hiding: hides secrets in payloads, output and messages.
        hosts: names by which the page may be requested; ``*``: any.
        read_only: no user may change anything.
        encryption_of: ``Payloads.encryption`` of a task's application, if it is known.
        command: how the command line is called here.
        prefix: the path below which the page is requested, such as ``/jobs``; "": the root.
    """

    def __init__(
        self,
        url: str,
        judge: Judge,
        *,
        refuse: Refuse | None = None,
        name: str = "",
        colour: str = "",
        hide: str | None = None,
        hide_keys: Iterable[str] = (),
        hosts: Iterable[str] = (),
        read_only: bool = False,
        encryption_of: Callable[[str], str] = lambda _: "none",
        command: str = OUTLAST,
        prefix: str = "",
    ) -> None:
        if colour and colour not in COLOURS:
            raise ConfigError(f"colour={colour!r}: colours are {', '.join(COLOURS)}")
        self.url = resolve_url(url)
        self.judge = judge
        self.refuse = refuse
        self.name, self.colour, self.command = name, colour, command
        self.prefix = "/" + prefix.strip("/") if prefix.strip("/") else ""
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(f"prefix={prefix!r}: write a path, such as /jobs")
        self.hosts = frozenset(host.lower() for host in hosts)
        self._read_only = read_only
        self.encryption_of = encryption_of
        self.hiding = Hiding(hide, hide_keys)
        self.clock: Clock = SYSTEM
        self.reader = StoreReader(self.url, self.clock, self.hiding)
        self.exporters: WeakKeyDictionary[asyncio.AbstractEventLoop, Exporter]
        self.exporters = WeakKeyDictionary()
        self._writers = StoreProvider(
            self.url, enqueues=False, connections=1, application="outlast-web"
        )
        self.bulk = BulkRunner(self.writer, self.clock, read_only=read_only)

    @property
    def read_only(self) -> bool:
        """Whether no user may change anything, or no user can."""
        found = self.reader.no_writes
        return self._read_only or (found is not None and found.is_refused)

    async def writer(self) -> Store:
        """Return the store for actions. StoreError if there is none: opening it would create it,
        and a typing error in a path must not create a queue."""
        await self.reader.ask("store id", lambda store: store.store_id())
        return await self._writers.store()

    async def close(self) -> None:
        """Close the stores of the running loop."""
        await self.bulk.close()
        await self.reader.close()
        await self._writers.close()
