"""PostgreSQL whose synchronous standby is away: leases go on, while jobs wait for the standby."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from harness.servers import PostgresServer
from harness.stores import held_open
from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.postgres import checks, hangs
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import WorkerStatus
from outlast.store.values import Enqueued, NewJob
from tests.cli import conftest as cli
from tests.cli.conftest import Outlast
from tests.conformance.kit import Hands, enqueued, eventually, job
from tests.crash.kit import scene
from tests.web.kit import page_on

folder, fork_server, outlast = cli.folder, cli.fork_server, cli.outlast

pytestmark = pytest.mark.xdist_group("standby away")  # one server for all of them

PATIENCE = 20.0  # seconds; a commit that waits for the standby waits forever
CUT_SHORT = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
WRITES = "SELECT pg_logical_emit_message(true, 'a', 'b')"
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
QUEUES = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, whose standbys the tests name."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    server.drop_database("standby_away")
    url = server.create_database("standby_away")
    async with held_open(PostgresStore(url, connections=2)) as store:
        yield store


@pytest.fixture
async def session(store: PostgresStore) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(store.url)
    yield connection
    await connection.close()


@contextlib.asynccontextmanager
async def standby_away(store: PostgresStore, session: Any) -> AsyncIterator[None]:
    """Let commits wait for a missing standby."""
    await _name_standby(session, "gone")
    try:
        await _see_one_wait(store, session)
        yield
    finally:
        await _name_standby(session, "")


async def _name_standby(session: Any, name: str) -> None:
    await session.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    await session.execute("SELECT pg_reload_conf()")
    await eventually(lambda: _is_set(session, name))


async def _see_one_wait(store: PostgresStore, session: Any) -> None:
    """Return once commits wait: that begins when the checkpointer has read the new name, which may
    be after all sessions have."""
    connection = await asyncpg.connect(store.url)
    while True:
        commit = asyncio.create_task(connection.execute(WRITES))
        await eventually(partial(_waits_or_is_done, session, commit), PATIENCE)
        if not commit.done():
            await session.execute(CUT_SHORT)
            await asyncio.wait_for(commit, PATIENCE)
            break
        await commit
    await connection.close()


async def _is_set(session: Any, name: str) -> bool:
    return bool(await session.fetchval("SHOW synchronous_standby_names") == name)


Verb = Callable[[Hands], Awaitable[Any]]


async def _hold(hands: Hands) -> None:
    lock = PostgresPresence(hands.store.url, patience=PATIENCE)
    assert await lock.hold(hands.me) is None
    await lock.release()


async def _drain(hands: Hands) -> None:
    assert await hands.store.request_drain([hands.me.worker_id])


VERBS: dict[str, Verb] = {
    "heartbeat": lambda hands: hands.store.heartbeat(hands.me),
    "announce": lambda hands: hands.store.announce(hands.me, ["a"], {}),
    "tell_wakeup": lambda hands: hands.store.tell_wakeup(hands.me, "notify"),
    "presence": _hold,
    "presence_off": lambda hands: hands.store.presence_off(hands.me, "for a test"),
    "request_drain": _drain,
    "reconnect": lambda hands: hands.store.reconnect(hands.me, 0),
    "draining": lambda hands: hands.store.set_status(hands.me, WorkerStatus.DRAINING),
    "reap": lambda hands: hands.vanish(),
}


async def test_updates_of_a_workers_row_wait_for_no_standby(
    store: PostgresStore, session: Any
) -> None:
    each_on_its_own = [(await Hands.on(store, name), verb) for name, verb in VERBS.items()]
    async with standby_away(store, session):
        for hands, verb in each_on_its_own:
            async with asyncio.timeout(PATIENCE):
                await verb(hands)


async def test_a_worker_beats_beside_an_exchange_that_waits_for_the_standby(
    store: PostgresStore, session: Any
) -> None:
    hands = await Hands.on(store)
    await enqueued(store, job(), job())
    async with standby_away(store, session):
        claiming = asyncio.create_task(hands.claim(1))
        assert await eventually(lambda: session.fetchval(WAITS))
        async with asyncio.timeout(PATIENCE):
            for _ in range(3):
                assert (await store.heartbeat(hands.me)).renewed
        with pytest.raises(StoreUnavailable, match="holds its row"):
            await store.reap(await hands.seen())
        assert not claiming.done(), "a claim is as durable as the database's settings"
        assert await store.inspector.counts() == {("default", State.QUEUED): 2}
    assert len(await claiming) == 1


async def test_a_lower_synchronous_commit_is_kept(store: PostgresStore, session: Any) -> None:
    hands = await Hands.on(store)
    async with session.transaction():
        await session.execute("SET LOCAL synchronous_commit = off")
        await session.execute("UPDATE outlast_workers SET wakeup = 'x'")
        assert await session.fetchval("SHOW synchronous_commit") == "off"
    assert await session.fetchval("SHOW synchronous_commit") == "on"
    assert (await store.heartbeat(hands.me)).renewed


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "among others"])
async def test_a_job_that_is_found_by_its_key_is_as_durable_as_one_that_is_stored(
    others: int, store: PostgresStore, session: Any
) -> None:
    """The first enqueue was given up while it waited: what it had stored is there for all to see,
    and not on the standby. The second one may not call that accepted."""
    for key in ("one", "two"):  # from now on the session names no lane
        await store.enqueue([NewJob(task="a", key=key)])
    batch = [NewJob(task="a", key=f"k{number}") for number in range(1 + others)]
    async with standby_away(store, session):
        given_up = asyncio.create_task(store.enqueue(batch))
        assert await eventually(lambda: session.fetchval(WAITS), PATIENCE)
        await session.execute(CUT_SHORT)
        stored = await asyncio.wait_for(given_up, PATIENCE)
        again = asyncio.create_task(store.enqueue(batch))
        assert await eventually(lambda: _waits_or_is_done(session, again), PATIENCE)
        assert not again.done(), "it was called accepted before the standby had it"
    found = await asyncio.wait_for(again, PATIENCE)
    assert found == [Enqueued(each.job_id, False) for each in stored]


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "among others"])
@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
async def test_a_call_that_is_cancelled_as_its_commit_waits_shows_no_job_before_the_standby_has_it(
    key: str | None, others: int, store: PostgresStore, session: Any
) -> None:
    """A worker would run what a failover may take back, and the caller stores again."""
    batch = [NewJob(task="a", key=key and f"{key}{number}") for number in range(1 + others)]
    await store.enqueue([NewJob(task="a", key=key)])
    before = await store.inspector.counts()
    async with standby_away(store, session):
        call = asyncio.create_task(store.enqueue(batch))
        assert await eventually(lambda: session.fetchval(WAITS), PATIENCE)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while left := store._connections.loop_pool().left:
            await asyncio.wait(left)
        assert await store.inspector.counts() == before
        assert await session.fetchval(WAITS)


async def _waits_or_is_done(session: Any, call: asyncio.Task[Any]) -> bool:
    return call.done() or bool(await session.fetchval(WAITS))


async def test_it_is_said_that_commits_wait_for_a_standby_and_since_when(
    store: PostgresStore, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what gives a call up, and by the doctor."""
    monkeypatch.setattr(hangs, "HUNG_SECONDS", 0.1)
    monkeypatch.setattr(hangs, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(checks, "STANDBY_LATE", 0.1)
    async with standby_away(store, session):
        waits = asyncio.create_task(store.enqueue([NewJob(task="a")]))
        assert await eventually(lambda: _why_late(store), PATIENCE) == hangs.WAITS_FOR_STANDBY

        async def reported() -> Any:
            found = (await store.inspector.environment()).check(0)
            return [one for one in found if one.name == "replication" and one.level == "problem"]

        (problem,) = await eventually(reported, PATIENCE)
        assert "Commits wait for a synchronous standby, the oldest for " in problem.sentence
        assert "gone" in problem.fix
    await waits
    assert not await reported()


async def test_what_waits_for_a_transaction_whose_commit_waits_says_so(
    store: PostgresStore, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a worker that claims behind the commit of another one does."""
    monkeypatch.setattr(hangs, "HUNG_SECONDS", 0.1)
    monkeypatch.setattr(hangs, "LOOK_SECONDS", 0.05)
    (same,) = await enqueued(store, job())
    other = await asyncpg.connect(store.url)
    async with standby_away(store, session):
        first = asyncio.create_task(other.execute("UPDATE outlast_jobs SET priority = 1"))
        assert await eventually(lambda: session.fetchval(WAITS), PATIENCE)
        second = asyncio.create_task(store.cancel([same]))
        assert await eventually(lambda: session.fetchval(QUEUES), PATIENCE)
        assert await eventually(lambda: _why_late(store), PATIENCE) == hangs.WAITS_FOR_STANDBY
    await asyncio.gather(first, second)
    await other.close()


async def _why_late(store: PostgresStore) -> str:
    return store.why_late()


ALL_SECONDS = 60.0  # for all ways of asking, again and again, on a busy machine
ASKED = ("why 1", "job 1", "jobs", "workers", "workers --json", "stats", "doctor")
SAYS = r"ommits? waits? for a synchronous standby"


async def test_each_way_of_asking_says_that_commits_wait_for_a_standby_and_since_when(
    store: PostgresStore, session: Any, tmp_path: Path, outlast: Outlast
) -> None:
    """Under a real worker, over connections to the same server; and none of them does later."""
    async with scene(store.url, tmp_path) as stage:
        worker = await stage.worker()
        running = await stage.enqueue("waits")
        await stage.in_state(running, State.RUNNING)
        (me,) = await stage.worker_rows()
        pages = ("/", "/jobs/1", "/workers", f"/workers/{me.id}")

        async def silent(ways: Collection[str]) -> list[str]:
            """Return which of these do not say so, with a time."""
            said: dict[str, str] = {}
            asked = [each for each in ASKED if each in ways]
            told = await asyncio.gather(*(asyncio.to_thread(ask, each) for each in asked))
            said |= dict(zip(asked, told, strict=True))
            async with page_on(store.url) as page:
                for each in [one for one in pages if one in ways]:
                    await page.see(each)
                    said[each] = " ".join((await page.see(each)).split())
            if "log" in ways:
                said["log"] = " ".join(each["error"] for each in worker.told("store_unavailable"))
            return [each for each, text in said.items() if not re.search(SAYS, text)]

        def ask(command: str) -> str:
            told = outlast(*command.split(), "--url", store.url)
            return " ".join(f"{told.out} {told.err}".split())

        async def row_says_so() -> bool:
            return bool(re.search(SAYS, (await stage.worker_rows())[0].failing or ""))

        left = [*ASKED, *pages, "log"]

        async def all_say_so() -> bool:
            left[:] = await silent(left)
            return not left

        async with standby_away(store, session):
            await stage.told(worker, "store_unavailable")
            await eventually(row_says_so, ALL_SECONDS)
            try:
                await eventually(all_say_so, ALL_SECONDS)
            except TimeoutError:
                pytest.fail(f"these do not say so: {left}\n{stage.logs()}")
            found = await asyncio.to_thread(ask, "doctor")
            assert len(re.findall(SAYS, found)) == 1, found
        await stage.ended(await stage.enqueue("noop"))

        async def is_well() -> bool:
            return (await stage.worker_rows())[0].failing is None

        async def none_says_so() -> bool:
            return {*await silent([*ASKED, *pages])} == {*ASKED, *pages}

        assert await eventually(is_well, ALL_SECONDS)
        assert await eventually(none_says_so, ALL_SECONDS)
        assert worker.told("store_recovered")
