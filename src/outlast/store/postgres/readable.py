"""Opens a store on PostgreSQL to read it, without its verbs: a command that reads starts sooner."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from outlast.base.clock import SYSTEM
from outlast.base.credentials import check_encoded
from outlast.errors import StoreUnavailable
from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.inspector import Inspector
from outlast.store.postgres.errors import has_no_place
from outlast.store.postgres.inspector import PostgresInspector
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.schema import PostgresSchema

PLACE_SECONDS = 60.0  # that a worker waits for its first session if the server is full
TURN_SECONDS = 0.5  # between two tries


class ReadablePostgres(PostgresSchema):
    """The ``ReadableStore`` on PostgreSQL. ``more``: changes to the options."""

    def __init__(self, url: str, options: StoreOptions = DEFAULTS, **more: Any) -> None:
        self.url = check_encoded(url)
        super().__init__(Connections(url, replace(options, **more)))
        self.inspector: Inspector = PostgresInspector(self._connections)

    async def open(self, *, make: bool = True) -> None:
        """A worker waits for its first session if the server has no place for one: others that
        start at the same time then give up their spare ones."""
        give_up_at = SYSTEM.boot() + (PLACE_SECONDS if self._connections.options.reserved else 0)
        while True:
            try:
                return await self.ensure(make=make)
            except StoreUnavailable as error:
                if not has_no_place(error) or SYSTEM.boot() >= give_up_at:
                    raise
            await SYSTEM.sleep(TURN_SECONDS)

    async def close(self) -> None:
        await self._connections.close()
