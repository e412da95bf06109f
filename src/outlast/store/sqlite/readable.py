"""Opens a SQLite file to read it, without the store's verbs: a command that reads starts sooner."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.errors import ConfigError
from outlast.store.backend import DEFAULTS, StoreOptions
from outlast.store.environment import is_there
from outlast.store.inspector import Inspector
from outlast.store.lockfile import is_mounted_alone, refuses
from outlast.store.migrations import check_made, check_same, check_usable, known, load
from outlast.store.sqlite import library, schema
from outlast.store.sqlite import url as sqlite_url
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.inspector import SqliteInspector
from outlast.store.values import Migration


class ReadableSqlite:
    """The ``ReadableStore`` on a SQLite file. ``more``: changes to the options.

    Attributes:
        path: the absolute path of the file.
        created_file: whether ``open`` made it.

    Raises ConfigError for a wrong URL, a network file system, a file that is mounted alone or a too
    old library.
    """

    def __init__(self, url: str, options: StoreOptions = DEFAULTS, **more: Any) -> None:
        location = sqlite_url.parse(url)
        library.check()  # `outlast doctor` reports its known faults
        self.url = url
        self.path = location.path
        self.created_file = False
        self._options = msgspec.structs.replace(options, **more)
        self._connection = SqliteConnection(self.path, self._options)
        self.inspector: Inspector = SqliteInspector(self._connection)
        if location.unsafe_filesystem:
            return
        if is_mounted_alone(self.path):
            raise ConfigError(
                f"{self.path} is mounted alone: its log, {self.path.name}-wal, and lock files would"
                " stay in this container, and so would accepted jobs; mount its directory instead"
            )
        if kind := refuses(self.path):
            raise ConfigError(
                f"{self.path} is on {kind}: SQLite's locks are not safe on network and FUSE file"
                f" systems; use a local disk or PostgreSQL (or ?{sqlite_url.UNSAFE}=1 at your risk)"
            )

    async def open(self, *, make: bool = True) -> None:
        await self._connection.run(lambda: self._open_now(make=make))

    async def close(self) -> None:
        await self._connection.close()

    async def store_id(self) -> str:
        found = await self._connection.run(
            lambda: schema.store_id(self._connection.connect().cursor())
        )
        if found is None:
            check_usable(load(schema.DIALECT), [])
        return str(found)

    async def migrations(self) -> list[Migration]:
        steps = load(schema.DIALECT)
        if not is_there(self.path):
            return known(steps, [])
        look = SqliteConnection(self.path, msgspec.structs.replace(self._options, read_only=True))
        try:
            return known(steps, await look.read(schema.applied))
        finally:
            await look.close()

    def _open_now(self, *, make: bool) -> None:
        if not make:
            applied = self._connection.read_now(schema.applied)
            check_made(self.url, applied)
            check_same(applied, self._options.only)
        fresh = not is_there(self.path)
        if not self._options.read_only:
            self._connection.create_now()
        before = self._connection.read_now(schema.applied)
        if before or self._options.read_only:
            check_usable(load(schema.DIALECT), before)
        else:
            self._connection.write_now(schema.migrate)
        self.created_file = self.created_file or fresh
