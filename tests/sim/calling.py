"""``python -m tests.sim.calling FIRST LAST [TWIN]``: seeds in which callers enqueue in transactions
of their own.

Each stays open for a while, in which no other one can write, and is committed late
or rolled back.
The laws: what was rolled back is never there, and what was committed ends. With the name of a twin,
which lacks the guard, the first violation is printed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec

from outlast.base.clock import seeded
from outlast.store.lockfile import directory_for
from outlast.store.sqlite import foreign
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.values import Upstream
from tests.conformance.kit import on
from tests.sim.awaiting import AwaitingWorld
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.disk import Disk
from tests.sim.host import StoreClock
from tests.sim.nemesis import SERVED
from tests.sim.tasks import drawn
from tests.sim.world import Laws, World

CALLERS = 6
OPEN_SECONDS = 1.5  # at most: beats fail meanwhile, and a lease is longer


class CallingWorld(AwaitingWorld):
    """A world with callers' transactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # a file, whose readers wait for no writer
        self.disk = Disk(self.folder, seeded(seed * 7919 + 2), file=True)
        # where an observer reads beats, which wait for no writer
        self.locks = directory_for(self.folder / "sim.db")
        self.committed = 0
        self.laws: Laws = {"callers hold: what was rolled back is not there": self._there}

    def _draw_theme(self) -> str | None:
        theme = super()._draw_theme()
        return "deaths" if theme in SERVED else theme

    def _make_hosts(self) -> None:
        real, self.chance = self.chance, lambda: 0.9  # one machine
        super()._make_hosts()
        self.chance = real

    def _there(self) -> list[Any]:
        return self.witness.read("SELECT id FROM outlast_jobs WHERE key LIKE 'rolled back %'")

    def _some_job(self, index: int) -> Any:
        return World._some_job(self, index)

    def app_of(self, owner: Any) -> Any:
        return World.app_of(self, owner)

    async def _enqueue(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(World._enqueue(self))
            for number in range(CALLERS):
                group.create_task(self._call(number))

    async def _call(self, number: int) -> None:
        await asyncio.sleep(8.0 * self._own_chance())
        own = self.disk.connected(self.folder / "sim.db", "rw")
        while not _begins(own):
            await asyncio.sleep(0.1)
        commits = self._own_chance() < 0.6
        clock = StoreClock(self, self.store_host)
        new = [drawn(self._own_chance, 1_000 + number, poisons=False, themed=False)] * 2
        keys = [f"{'committed' if commits else 'rolled back'} {number} {place}" for place in (0, 1)]
        jobs = [msgspec.structs.replace(job, key=key) for job, key in zip(new, keys, strict=True)]
        jobs[1] = msgspec.structs.replace(jobs[1], key=keys[1], after=(Upstream(-1),))
        made = await on(own, clock).enqueue(jobs)
        await asyncio.sleep(OPEN_SECONDS * self._own_chance())
        own.execute("COMMIT" if commits else "ROLLBACK")
        own.close()
        if commits:
            self.committed += 1
            for each in made:
                self.witness.accept(each.job_id)
        self.tell("queue:default")

    def _stand_ins(self) -> Iterator[Any]:
        """Let no call wait for the write lock in real time: one that meets it fails."""
        yield from super()._stand_ins()
        real = self.disk.connected

        def connected(*args: Any) -> sqlite3.Connection:
            connection = real(*args)
            connection.execute("PRAGMA busy_timeout = 0")
            return connection

        self.disk.connected = connected  # type: ignore[method-assign,assignment]
        yield mock.patch("outlast.store.sqlite.connection._connected", connected)

        def at_once(_: Any, attempt: Callable[[], Any], rounds: int) -> Any:
            return attempt()

        yield mock.patch.object(SqliteConnection, "_patiently", at_once)


def _begins(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def _committed_at_once() -> Patches:
    real = sqlite_jobs.enqueue

    def enqueue(cursor: Any, *args: Any) -> Any:
        made = real(cursor, *args)
        cursor.execute("COMMIT")
        cursor.execute("BEGIN IMMEDIATE")
        return made

    yield mock.patch.object(foreign, "enqueue", enqueue)


TWINS: Twins = {"an enqueue commits its caller's transaction": (_committed_at_once, 1)}


if __name__ == "__main__":
    play_kind(
        CallingWorld,
        TWINS,
        lambda world: world.committed,
        lambda committed: f"{sum(committed)} transactions committed late",
    )
