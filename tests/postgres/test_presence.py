"""Presence on a real PostgreSQL: taken, proved, seen by others, and ended with its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harness.pgbouncer import PgBouncerServer
from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.model.lease import DeathCause, Presence
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import WorkerStatus
from outlast.store.values import WorkerSeen
from tests.conformance.kit import Hands, eventually

POOLED = "a pooler or proxy stands between"
OTHER_INCARNATION = "UPDATE outlast_workers SET presence = '1.0/00000001'"
Make = Callable[..., PostgresPresence]


@pytest.fixture
async def make(pg_url: str) -> AsyncIterator[Make]:
    """Locks, all of which are released at the end."""
    made: list[PostgresPresence] = []

    def one(url: str = pg_url) -> PostgresPresence:
        made.append(PostgresPresence(url, patience=10.0))
        return made[-1]

    yield one
    for lock in made:
        await lock.release()


async def seen(hands: Hands) -> Presence:
    return (await hands.seen()).presence


async def absent(hands: Hands) -> WorkerSeen:
    """Wait until the server has ended the session that held the lock; return that look."""

    async def look() -> WorkerSeen | None:
        one = await hands.seen()
        return one if one.presence is Presence.ABSENT else None

    found: WorkerSeen = await eventually(look)
    return found


async def end_session(session: Any) -> None:
    await session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'outlast presence' AND datname = current_database()"
    )


# ------------------------------------------------------------------------- held or not


async def test_a_worker_that_never_took_presence_is_unknown(
    store: PostgresStore, hands: Hands
) -> None:
    assert await seen(hands) is Presence.UNKNOWN


async def test_presence_is_held_until_its_session_ends(hands: Hands, make: Make) -> None:
    lock = make()
    assert await lock.hold(hands.me) is None
    assert await seen(hands) is Presence.HELD
    assert (await hands.row()).presence is not None
    await lock.release()
    await absent(hands)
    assert await lock.hold(hands.me) is None
    assert await seen(hands) is Presence.HELD


async def test_presence_can_be_proved_repeatedly_in_its_session(
    hands: Hands, make: Make, session: Any
) -> None:
    lock = make()
    for _ in range(3):
        assert await lock.hold(hands.me) is None
    count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert await session.fetchval(count) == 1
    assert await seen(hands) is Presence.HELD


async def test_presence_held_by_another_session_keeps_a_worker_present(
    hands: Hands, make: Make
) -> None:
    assert await make().hold(hands.me) is None
    assert await make().hold(hands.me) == "an earlier session still has the lock"


async def test_a_terminated_session_is_noticed_and_the_lock_is_retaken(
    hands: Hands, make: Make, session: Any
) -> None:
    lock, lost = make(), asyncio.Event()
    await lock.hold(hands.me, lost.set)
    await end_session(session)
    await asyncio.wait_for(lost.wait(), 25)
    await absent(hands)

    async def taken_back() -> bool:
        return await lock.hold(hands.me) is None

    await eventually(taken_back)
    assert await seen(hands) is Presence.HELD


async def test_a_session_that_ends_during_a_proof_is_an_error_and_then_replaced(
    hands: Hands, make: Make, session: Any
) -> None:
    lock = make()
    await lock.hold(hands.me)
    async with session.transaction():
        await session.execute("LOCK TABLE outlast_workers")
        await session.execute("UPDATE outlast_workers SET presence = NULL")
        proving = asyncio.create_task(lock.hold(hands.me))
        await eventually(lambda: _is_blocked(session), 25.0)
        await end_session(session)
        with pytest.raises(StoreUnavailable):
            await proving
    assert await lock.hold(hands.me) is None


async def _is_blocked(session: Any) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return bool(await session.fetchval(query))


async def test_two_schemas_in_one_database_do_not_collide(
    pg_url: str, make: Make, session: Any
) -> None:
    hands: list[Hands] = []
    for name in ("one", "two"):
        await session.execute(f"CREATE SCHEMA {name}")
        store = PostgresStore(f"{pg_url}?options=-csearch_path%3D{name}")
        await store.open()
        hands.append(await Hands.on(store))
    assert hands[0].me.worker_id == hands[1].me.worker_id
    locks = [make(each.store.url) for each in hands]
    for lock, each in zip(locks, hands, strict=True):
        assert await lock.hold(each.me) is None
    await locks[0].release()
    await absent(hands[0])
    assert await seen(hands[1]) is Presence.HELD
    for each in hands:
        await each.store.close()


async def test_workers_do_not_collide(store: PostgresStore, make: Make) -> None:
    hands = [await Hands.on(store, f"w{n}") for n in range(5)]
    locks = [make() for _ in hands]
    for lock, each in zip(locks, hands, strict=True):
        assert await lock.hold(each.me) is None
    await locks[2].release()
    await absent(hands[2])
    held = [await seen(each) is Presence.HELD for each in hands]
    assert held == [True, True, False, True, True]


async def test_an_ordinary_role_may_take_presence_and_look(
    pg_url: str, pg_server: PostgresServer, store: PostgresStore, make: Make
) -> None:
    hands = await Hands.on(store)
    pg_server.sql(
        "DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain;"
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO plain",
        pg_url.rsplit("/", 1)[1],
    )
    url = pg_url.replace("postgres@", "plain@")
    assert await make(url).hold(hands.me) is None
    plain = PostgresStore(url)
    (look,) = (await plain.observe()).workers
    assert look.presence is Presence.HELD
    assert look.incarnation is not None
    await plain.close()
    pg_server.sql("DROP OWNED BY plain; DROP ROLE plain", pg_url.rsplit("/", 1)[1])


# -------------------------------------------------------------------------- incarnation


async def test_no_worker_of_another_incarnation_is_absent(
    hands: Hands, make: Make, session: Any
) -> None:
    lock = make()
    await lock.hold(hands.me)
    await session.execute(OTHER_INCARNATION)
    assert await seen(hands) is Presence.UNKNOWN
    await lock.release()
    assert await seen(hands) is Presence.UNKNOWN


async def test_a_proof_writes_the_present_incarnation(
    hands: Hands, make: Make, session: Any
) -> None:
    lock = make()
    await lock.hold(hands.me)
    before = (await hands.seen()).incarnation
    await session.execute(OTHER_INCARNATION)
    await lock.hold(hands.me)
    assert (await hands.seen()).incarnation == before
    assert await seen(hands) is Presence.HELD


RESTARTS: dict[str, Callable[[PostgresServer], None]] = {
    "stopped": lambda server: server.restart("fast"),
    "crashed": lambda server: server.restart("immediate"),
    "lost a process": lambda server: server.lose_a_process(),
}


@pytest.mark.slow_but("crashed")
@pytest.mark.parametrize("restart", RESTARTS.values(), ids=RESTARTS)
async def test_a_server_that_was_restarted_is_another_incarnation(
    make: Make, restart: Callable[[PostgresServer], None]
) -> None:
    with PostgresServer() as server:
        store = PostgresStore(server.create_database("again"))
        await store.open()
        hands = await Hands.on(store)
        lock = make(store.url)
        await lock.hold(hands.me)
        before = (await hands.seen()).incarnation
        restart(server)
        await store.drop_connections()
        assert await seen(hands) is Presence.UNKNOWN, "and not absent, though no session holds it"

        async def taken() -> bool:
            try:
                return await lock.hold(hands.me) is None
            except StoreUnavailable:
                return False

        await eventually(taken)
        assert await seen(hands) is Presence.HELD
        assert (await hands.seen()).incarnation != before
        await lock.release()
        await store.close()


# --------------------------------------------------------------------------------- reap


async def test_a_worker_that_retook_its_presence_is_not_reaped(hands: Hands, make: Make) -> None:
    lock = make()
    await lock.hold(hands.me)
    await lock.release()
    gone = await absent(hands)
    await lock.hold(hands.me)
    assert not await hands.store.reap(gone, DeathCause.PRESENCE)
    assert (await hands.row()).status is WorkerStatus.ACTIVE
    assert await hands.store.reap(gone, DeathCause.SILENCE), "the other causes do not ask for it"


@pytest.mark.parametrize("change", [OTHER_INCARNATION, "UPDATE outlast_workers SET presence=NULL"])
async def test_absence_counts_only_within_the_reapers_incarnation(
    hands: Hands, make: Make, session: Any, change: str
) -> None:
    lock = make()
    await lock.hold(hands.me)
    await lock.release()
    gone = await absent(hands)
    await session.execute(change)
    assert not await hands.store.reap(gone, DeathCause.PRESENCE)
    assert (await hands.row()).status is WorkerStatus.ACTIVE


async def test_a_repeated_reap_after_an_exchange_checks_the_lock_again(
    hands: Hands, make: Make, session: Any
) -> None:
    lock = make()
    await lock.hold(hands.me)
    await lock.release()
    gone = await absent(hands)
    async with session.transaction():
        await session.execute("SELECT FROM outlast_workers FOR KEY SHARE")  # as an exchange
        with pytest.raises(StoreUnavailable, match="holds its row"):
            await hands.store.reap(gone, DeathCause.PRESENCE)
        assert await lock.hold(hands.me) is None
    assert not await hands.store.reap(gone, DeathCause.PRESENCE)


async def test_a_worker_that_stays_absent_is_reaped(hands: Hands, make: Make) -> None:
    lock = make()
    await lock.hold(hands.me)
    await lock.release()
    assert await hands.store.reap(await absent(hands), DeathCause.PRESENCE)
    assert (await hands.row()).cause == DeathCause.PRESENCE


# -------------------------------------------------------------------------- why it is off


async def test_the_row_says_why_presence_is_off_until_it_is_taken(hands: Hands, make: Make) -> None:
    lock = make()
    await lock.hold(hands.me)
    await hands.store.presence_off(hands.me, "for a test")
    row = await hands.row()
    assert (row.presence, row.presence_off) == (None, "for a test")
    assert await seen(hands) is Presence.UNKNOWN
    await lock.hold(hands.me)
    row = await hands.row()
    assert row.presence is not None
    assert row.presence_off is None


@pytest.mark.pgbouncer
async def test_presence_is_not_taken_behind_an_undetected_pooler(
    pgbouncer: PgBouncerServer, pg_url: str, hands: Hands, make: Make, session: Any
) -> None:
    lock = make(pgbouncer.through(pg_url))
    for _ in range(3):
        assert await lock.hold(hands.me) == POOLED
    assert await session.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    assert await seen(hands) is Presence.UNKNOWN


async def test_presence_is_taken_on_a_unix_socket(
    pg_url: str, pg_server: PostgresServer, hands: Hands, make: Make
) -> None:
    database = pg_url.rsplit("/", 1)[1]
    local = f"postgresql://postgres@/{database}?host={pg_server.folder}&port={pg_server.port}"
    assert await make(local).hold(hands.me) is None
    assert await seen(hands) is Presence.HELD


@pytest.mark.pgbouncer
@pytest.mark.parametrize("onwards", ["tcp", "unix"])
async def test_presence_is_not_taken_behind_a_pooler_on_a_unix_socket(
    pg_url: str,
    pg_server: PostgresServer,
    pgbouncer: PgBouncerServer,
    hands: Hands,
    make: Make,
    onwards: str,
) -> None:
    database = pg_url.rsplit("/", 1)[1]
    socket = f"postgresql://postgres@/{database}?host={pg_server.folder}&port={pg_server.port}"
    upstream = socket if onwards == "unix" else pg_url
    with PgBouncerServer(upstream, settings={"unix_socket_dir": "/tmp"}) as pooler:
        local = f"postgresql://postgres@/{database}?host=/tmp&port={pooler.port}"
        assert await make(local).hold(hands.me) == POOLED
