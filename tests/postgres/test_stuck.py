"""A client that stops reading in the middle of a large reply, on PostgreSQL.

Its session waits in the server to write on, with the transaction open and its worker's row held.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest

from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.model.job import Policy, State
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import ORPHANS_MAX, Store
from outlast.store.values import Cancelled, NewJob
from outlast.worker.maintenance.reaper import Reaper
from tests.conformance.kit import Hands, enqueued, eventually, job, lost_worker, reap
from tests.conformance.limits_kit import declare, limited, need
from tests.manual_clock import ManualClock
from tests.postgres.kit import blocked
from tests.unit.worker.worker_kit import FakeOwner

LARGE = 30  # jobs with large arguments: more than all buffers between the two hold
WAITS = """SELECT count(*) FROM pg_stat_activity
           WHERE datname = current_database() AND wait_event = 'ClientWrite'"""


def by_socket(url: str, server: PostgresServer) -> str:
    """Return the address of the same database by way of the server's Unix socket."""
    database = url.rpartition("/")[2]
    return f"postgresql://postgres@/{database}?host={quote(str(server.folder))}&port={server.port}"


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, pg_url: str, pg_server: PostgresServer) -> str:
    """How the client that stops reading has connected."""
    return pg_url if request.param == "tcp" else by_socket(pg_url, pg_server)


@contextlib.asynccontextmanager
async def unread_claim(
    url: str, jobs: Sequence[NewJob], later: Sequence[NewJob] = (), **settings: Any
) -> AsyncIterator[Hands]:
    """Yield a worker that claims these jobs, and reads nothing of the reply. It knows all lanes but
    those of the jobs that come ``later``."""
    calm, store = PostgresStore(url), PostgresStore(url, **settings)
    await calm.open()
    await enqueued(calm, *jobs)
    hands = await Hands.on(store, "stuck")
    await hands.claim(
        1, tasks=["none"]
    )  # prepares the statement and reads the floors: what follows is one reply
    if later:
        await enqueued(calm, *later)
    for connection in store._connections.loop_pool().idle[False]:
        connection._transport.pause_reading()
        connection._config = connection._config._replace(command_timeout=None)  # nor gives up
    claiming = asyncio.create_task(hands.claim(len(jobs), bytes_max=10**9))
    try:
        yield hands
    finally:
        claiming.cancel()
        with contextlib.suppress(asyncio.CancelledError, StoreUnavailable):
            await claiming
        await store.close()
        await calm.close()


@contextlib.asynccontextmanager
async def stuck_claim(url: str, session: Any, **settings: Any) -> AsyncIterator[Hands]:
    """Yield a worker that has stopped reading in the middle of the reply to a large claim."""
    async with unread_claim(url, [large(900_000)] * LARGE, **settings) as hands:
        assert await eventually(lambda: session.fetchval(WAITS))
        yield hands


def large(size: int) -> NewJob:
    return job(args=arguments(size))


def arguments(size: int) -> str:
    return '"' + "x" * size + '"'


@pytest.mark.parametrize("what", ["limits", pytest.param("line", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "sizes",
    [[1_000] * 499, [60_000] * 40, [900_000] * 30, [9_000_000], [10, 9_000_000] * 2],
    ids=lambda sizes: f"{len(sizes)}x{max(sizes)}",
)
async def test_who_does_not_read_its_reply_keeps_no_other_from_jobs_under_limits(
    pg_url: str, pg_server: PostgresServer, store: Store, session: Any, sizes: list[int], what: str
) -> None:
    """Its claim commits all the same, and so gives up the lock under which one exchange at a time
    claims such jobs. By the socket, whose buffers are smaller than those of TCP."""
    await declare(store, running=1_000)
    jobs = [large(size) for size in sizes]
    if what == "limits":
        jobs = [limited(need("a"), args=each.args) for each in jobs]
    async with unread_claim(by_socket(pg_url, pg_server), [limited(need("a")), *jobs]):
        await eventually(lambda: _is_claimed(session))
        other = await Hands.on(store, "other")
        await enqueued(store, limited(need("a"), args=arguments(1), priority=5))
        assert await eventually(other.claim)


@pytest.mark.parametrize("what", ["policy", "names"])
async def test_who_does_not_read_a_reply_of_wide_rows_keeps_no_other_from_jobs_under_limits(
    pg_url: str, pg_server: PostgresServer, store: Store, session: Any, what: str
) -> None:
    """Each text of a claimed job is sent, not its arguments alone."""
    await declare(store, running=1_000)
    wide: dict[str, Any] = {"queue": "ü" * 200, "fair": "ü" * 500}
    if what == "policy":
        wide = {"policy": Policy(meta=arguments(5_000))}
    jobs = [limited(need("a"), args=f"[{n}]", **wide) for n in range(400)]
    async with unread_claim(by_socket(pg_url, pg_server), jobs):
        await eventually(lambda: _is_claimed(session))
        other = await Hands.on(store, "other")
        await enqueued(store, limited(need("a"), args=arguments(1), priority=5))
        assert await eventually(other.claim)


async def test_who_does_not_read_of_many_lanes_keeps_no_other_from_jobs_under_limits(
    pg_url: str, pg_server: PostgresServer, store: Store, session: Any
) -> None:
    """Each of their names is sent to a worker that does not know them."""
    await declare(store, running=1_000)
    lanes = [job(queue="ü" * 195 + str(n)) for n in range(1_000)]
    async with unread_claim(by_socket(pg_url, pg_server), [limited(need("a"))] * 9, lanes):
        await eventually(lambda: _is_answered(session))
        other = await Hands.on(store, "other")
        (job_id,) = await enqueued(store, limited(need("a"), priority=5))

        async def takes() -> bool:
            return job_id in [each.job_id for each in await other.claim()]

        assert await eventually(takes, 25.0)


async def _is_answered(session: Any) -> bool:
    """Whether a claim has committed, or waits for its client."""
    running = "SELECT count(*) FROM outlast_jobs WHERE state = 'running'"
    return bool(await session.fetchval(WAITS) or await session.fetchval(running))


async def _is_claimed(session: Any) -> bool:
    """Whether a claim has committed; it must not wait for its client."""
    assert not await session.fetchval(WAITS)
    return bool(await session.fetchval("SELECT count(*) FROM outlast_jobs WHERE state = 'running'"))


async def test_the_worker_of_a_stuck_session_is_reaped_and_its_claims_are_rolled_back(
    address: str, store: Store, session: Any
) -> None:
    async with stuck_claim(address, session) as stuck:
        gone = (await store.observe()).workers[0]
        assert gone.worker_id == stuck.me.worker_id
        with pytest.raises(StoreUnavailable, match="was ended, since its client does not read"):
            await store.reap(gone)
        assert await reap(store, gone)
    assert await store.inspector.counts() == {("default", State.QUEUED): LARGE}
    claimed = await (await Hands.on(store, "w2")).claim(LARGE, bytes_max=10**9)
    assert len(claimed) == LARGE


async def test_other_gone_workers_are_reaped_in_the_same_look(store: Store, session: Any) -> None:
    """Also while the session that locks a row may not be ended."""
    gone = [await Hands.on(store, name, lease=3.0) for name in ("a", "b", "c")]
    clock = ManualClock(boot=0.0)
    reaper = Reaper(FakeOwner(), store, clock=clock)
    async with session.transaction():
        await session.execute(
            "SELECT FROM outlast_workers WHERE id = $1 FOR KEY SHARE", gone[0].me.worker_id
        )
        for _ in range(5):
            await reaper.run_once()
            clock.advance(1.0)
        assert await lost(store) == {"b", "c"}
    await reaper.run_once()
    assert await lost(store) == {"a", "b", "c"}


async def lost(store: Store) -> set[str]:
    return {row.name for row in await store.inspector.workers() if row.status == "lost"}


async def test_only_a_stuck_session_is_ended(store: Store, hands: Hands, session: Any) -> None:
    seen = await hands.seen()
    async with session.transaction():
        await session.execute(
            "SELECT FROM outlast_workers WHERE id = $1 FOR KEY SHARE", hands.me.worker_id
        )
        with pytest.raises(StoreUnavailable, match="holds its row"):
            await store.reap(seen)
        assert (await store.heartbeat(hands.me)).renewed
    assert not await store.reap(seen), "it has beaten since"


async def test_the_server_ends_a_stuck_session_before_the_lease_is_over(
    pg_url: str, store: Store, session: Any
) -> None:
    """The kernel's answer, where no reaper may end a session: on TCP only."""
    async with stuck_claim(pg_url, session, statement_timeout=4.0):
        await eventually(lambda: _none_waits(session), seconds=30.0)
    assert await store.inspector.counts() == {("default", State.QUEUED): LARGE}


async def _none_waits(session: Any) -> bool:
    return not await session.fetchval(WAITS)


async def test_orphans_with_locked_rows_do_not_hide_others(
    store: Store, hands: Hands, session: Any
) -> None:
    """A task's own transaction may outlive its worker, and its `complete_in` holds the row."""
    await enqueued(store, *[job() for _ in range(ORPHANS_MAX + 20)])
    claimed = await hands.claim(ORPHANS_MAX) + await hands.claim(20)
    await hands.vanish()
    async with session.transaction():
        held = [each.job_id for each in claimed[:ORPHANS_MAX]]
        await session.execute("SELECT FROM outlast_jobs WHERE id = ANY ($1) FOR UPDATE", held)
        behind = {each.job_id for each in claimed[ORPHANS_MAX:]}
        assert {end.job_id for end in await store.reclaim(lost_worker)} == behind
    assert sorted(end.job_id for end in await store.reclaim(lost_worker)) == sorted(held)


async def test_overdue_attempts_whose_rows_are_held_do_not_hide_those_behind_them(
    store: Store, hands: Hands, session: Any
) -> None:
    late = job(policy=Policy(timeout=0.001))
    await enqueued(store, *[late for _ in range(ORPHANS_MAX + 20)])
    claimed = await hands.claim(ORPHANS_MAX) + await hands.claim(20)

    async def all_late() -> list[tuple[int, int]] | None:
        told = [(each.job_id, each.token) for each in await store.overdue(0.0)]
        return told if len(told) == len(claimed) else None

    due = await eventually(all_late)
    held = [each.job_id for each in claimed[:ORPHANS_MAX]]
    async with session.transaction():
        await session.execute("SELECT FROM outlast_jobs WHERE id = ANY ($1) FOR UPDATE", held)
        behind = {each.job_id for each in claimed[ORPHANS_MAX:]}
        assert {end.job_id for end in await store.reclaim(lost_worker, only=due)} == behind
    assert sorted(end.job_id for end in await store.reclaim(lost_worker, only=due)) == sorted(held)


async def test_a_locked_job_does_not_block_the_cancelling_of_others(
    store: Store, other_store: Store, session: Any, watcher: Any
) -> None:
    held, *others = await enqueued(store, *[job() for _ in range(3)])
    async with session.transaction():
        await session.execute("SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE", held)
        cancelling = asyncio.create_task(store.cancel([held, *others]))
        await blocked(watcher)
        counts = await other_store.inspector.counts()
        assert counts == {("default", State.CANCELLED): 2, ("default", State.QUEUED): 1}
    assert await cancelling == dict.fromkeys((held, *others), Cancelled.CANCELLED)
