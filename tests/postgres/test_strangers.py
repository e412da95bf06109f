"""A database role without privileges on the tables: what it can lock, see, and delay."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from importlib import resources
from types import SimpleNamespace
from typing import Any

import asyncpg
import msgspec
import pytest

from harness.servers import PostgresServer
from outlast.base.clock import SYSTEM
from outlast.errors import NotPermitted, StoreUnavailable
from outlast.insight.queries import read_details
from outlast.insight.why import why
from outlast.model.lease import DeathCause, Presence
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.statements import statements
from outlast.store.values import WorkerRef
from outlast.worker.lease import presence as duty
from outlast.worker.maintenance.pruner import Pruner
from tests.conformance.kit import Hands, enqueued, eventually, job
from tests.conformance.limits_kit import declare as declare_limit
from tests.conformance.limits_kit import limited, need
from tests.postgres.kit import blocked
from tests.unit.worker.worker_kit import heard_fields, lease_of

STRANGER = "stranger"
HOLD = statements("postgres", "workers")["presence_hold"]
KEYS = """SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
          WHERE locktype = 'advisory' AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
TAKE = "SELECT pg_advisory_lock($1)"
MIGRATION_KEY = int.from_bytes(b"outlast", "big")


@pytest.fixture
def stranger_url(pg_url: str, pg_server: PostgresServer) -> Iterator[str]:
    pg_server.sql(f"CREATE ROLE {STRANGER} LOGIN")
    yield pg_url.replace("postgres@", f"{STRANGER}@")
    pg_server.sql(f"DROP OWNED BY {STRANGER}; DROP ROLE {STRANGER}", pg_url.rpartition("/")[2])


@pytest.fixture
async def stranger(stranger_url: str) -> AsyncIterator[Any]:
    """A session of the role that may do nothing but connect."""
    connection = await _session(stranger_url)
    yield connection
    await connection.close()


async def _session(url: str) -> Any:
    return await asyncpg.connect(url, server_settings={"application_name": "a 'shell'"})


@pytest.fixture
async def lock(pg_url: str) -> AsyncIterator[PostgresPresence]:
    lock = PostgresPresence(pg_url, patience=10.0)
    yield lock
    await lock.release()


async def is_shown(hands: Hands, presence: Presence) -> bool:
    return (await hands.seen()).presence is presence


async def is_taken(lock: PostgresPresence, me: WorkerRef) -> bool:
    return await lock.hold(me) is None


async def robbed(hands: Hands, lock: PostgresPresence, stranger: Any) -> None:
    """Let the stranger wait for the key that it sees, and get it when the worker's session ends."""
    assert await lock.hold(hands.me) is None
    (key,) = await stranger.fetchrow(KEYS)
    waiting = asyncio.create_task(stranger.execute(TAKE, key))
    watcher = await asyncpg.connect(hands.store.url)
    await blocked(watcher)
    await watcher.close()
    await lock.release()
    await asyncio.wait_for(waiting, 25)


# ---------------------------------------------------------------------------- presence


async def test_a_lock_taken_over_by_a_stranger_is_no_presence(
    hands: Hands, lock: PostgresPresence, stranger: Any
) -> None:
    await robbed(hands, lock, stranger)
    gone = await hands.seen()
    assert gone.presence is Presence.ABSENT
    assert await hands.store.reap(gone, DeathCause.PRESENCE)


async def test_a_shared_lock_of_a_stranger_is_no_presence(
    hands: Hands, lock: PostgresPresence, stranger: Any
) -> None:
    assert await lock.hold(hands.me) is None
    (key,) = await stranger.fetchrow(KEYS)
    await lock.release()
    await stranger.execute("SELECT pg_advisory_lock_shared($1)", key)
    await eventually(lambda: is_shown(hands, Presence.ABSENT))


async def test_a_worker_whose_key_is_taken_names_the_holder_and_is_judged_by_its_beats(
    hands: Hands, lock: PostgresPresence, stranger: Any
) -> None:
    await robbed(hands, lock, stranger)
    seen = await hands.seen()
    keeper = duty.PresenceKeeper(lock, hands.store, lease_of(hands.me), clock=SYSTEM)
    with heard_fields() as events:
        async with asyncio.timeout(60.0):
            while not events:
                await SYSTEM.sleep(min(0.05, await keeper.run_once()))
    ((event, fields),) = events
    assert event == "presence_off"
    pid = stranger.get_server_pid()
    assert f"the role {STRANGER} has taken its lock (process {pid}," in fields["reason"]
    assert "pg_terminate_backend" in fields["reason"]
    assert await is_shown(hands, Presence.UNKNOWN)
    assert not await hands.store.reap(seen, DeathCause.PRESENCE)
    assert (await hands.store.heartbeat(hands.me)).renewed
    await stranger.close()
    await eventually(lambda: is_taken(lock, hands.me), 10.0)
    assert await is_shown(hands, Presence.HELD)


async def test_a_worker_that_comes_back_on_a_new_session_is_present_at_once(
    hands: Hands, lock: PostgresPresence, pg_url: str
) -> None:
    """Also before its row is written: the look sees the lock, whose role the row still names."""
    assert await lock.hold(hands.me) is None
    await lock.release()
    gone = await hands.seen()
    session = await asyncpg.connect(pg_url)
    port = session._transport.get_extra_info("sockname")[1]
    values = (hands.me.worker_id, hands.me.registration, port, session.get_server_pid())

    async def has_it() -> bool:
        return await session.fetchval(HOLD, *values) is None

    async with session.transaction():
        await eventually(has_it)
        assert await is_shown(hands, Presence.HELD)
    assert not await hands.store.reap(gone, DeathCause.PRESENCE)
    await session.close()


async def test_a_late_worker_whose_id_was_reused_takes_no_presence(
    hands: Hands, lock: PostgresPresence, pg_url: str
) -> None:
    late = PostgresPresence(pg_url, patience=10.0)
    await late.hold(WorkerRef(hands.me.worker_id, 1, "another registration"))
    assert await is_shown(hands, Presence.UNKNOWN), "it has written nothing"
    assert await lock.hold(hands.me) is None
    await lock.release()
    await eventually(lambda: is_shown(hands, Presence.ABSENT))
    await late.release()


# --------------------------------------------------------------------------- migrations


async def test_the_holder_of_the_migration_lock_is_named_with_the_remedy(
    bare_pg_url: str, stranger_url: str
) -> None:
    stranger = await _session(bare_pg_url.replace("postgres@", f"{STRANGER}@"))
    await stranger.execute(TAKE, MIGRATION_KEY)
    pid = stranger.get_server_pid()
    store = PostgresStore(bare_pg_url, statement_timeout=2.0)  # also how long the test may stall
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.open()
    finally:
        await stranger.close()
    said = str(caught.value)
    assert f"process {pid} of the role '{STRANGER}', application" in said
    assert "s ago)" in said
    assert "pg_terminate_backend" in said
    patient = PostgresStore(bare_pg_url)
    await patient.open()
    await patient.close()
    await store.close()


async def test_an_existing_schema_is_used_without_the_migration_lock(
    store: PostgresStore, pg_url: str, stranger: Any
) -> None:
    await stranger.execute(TAKE, MIGRATION_KEY)
    other = PostgresStore(pg_url, statement_timeout=25.0)
    await other.open()
    assert len(await enqueued(other)) == 1
    await other.close()


# -------------------------------------------------------------------- locks of limits and counters


HELD = {
    "keeper": (
        "SELECT outlast_keeper_lock_v1()",
        "the lock under which jobs under limits start",
    ),
    "counters": (
        "SELECT hashtextextended('outlast:minutes', 0)",
        "the lock under which counters are added up",
    ),
}
"""What a stranger locks, and how that is named."""


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("shared", ["", "_shared"])
async def test_who_holds_a_lock_of_limits_or_counters_is_named_with_the_remedy(
    store: PostgresStore, hands: Hands, stranger: Any, kind: str, shared: str
) -> None:
    await declare_limit(store, running=1)
    (waiting,) = await enqueued(store, limited(need("a")))
    keys, what = HELD[kind]
    await stranger.execute("BEGIN")  # whose age is another for each lock that is listed
    await stranger.execute(f"SELECT pg_advisory_lock{shared}(k) FROM ({keys}) AS t (k)")
    pid = stranger.get_server_pid()
    said = f"The role {STRANGER} has taken {what} (process {pid}, application a 'shell')"
    facts = await store.inspector.environment()
    (found,) = [one for one in facts.check(workers=1) if one.name == "locks_of_limits"]
    assert found.level == "problem"
    assert said in found.sentence
    assert f"pg_terminate_backend({pid})" in found.fix
    about = await read_details(store, waiting, 0.0)
    assert about is not None
    told = why(about)
    assert (f"{said}." in told.sentences) == (kind != "counters")
    assert any(f"pg_terminate_backend({pid})" in move for move in told.moves) == (
        kind != "counters"
    )
    of_a_tenant = why(msgspec.structs.replace(about, may_tell_others=False))
    assert STRANGER not in str(of_a_tenant)
    await stranger.close()
    assert len(await hands.claim()) == 1


@pytest.mark.parametrize("kind", HELD)
async def test_the_log_of_a_worker_names_who_holds_a_lock_of_limits_or_counters(
    store: PostgresStore, stranger: Any, kind: str
) -> None:
    await declare_limit(store, running=1)
    await enqueued(store, limited(need("a")))
    keys, what = HELD[kind]
    await stranger.execute(f"SELECT pg_advisory_lock(k) FROM ({keys}) AS t (k)")
    alone: Any = SimpleNamespace(peers=1)
    pruner = Pruner(store, keep_jobs=1e9, keep_workers=1e9, clock=SYSTEM, kind=alone)
    with heard_fields() as told, contextlib.suppress(StoreUnavailable):
        await pruner.run_once()
    (fields,) = [fields for name, fields in told if name == "limits_locked"]
    assert f"The role {STRANGER} has taken {what}" in fields["holder"]
    assert f"pg_terminate_backend({stranger.get_server_pid()})" in fields["fix"]


async def test_a_worker_that_holds_the_lock_of_limits_is_named_once_it_has_done_so_for_long(
    store: PostgresStore, session: Any
) -> None:
    await declare_limit(store, running=1)
    async with session.transaction():
        await session.execute("SELECT pg_advisory_xact_lock(outlast_keeper_lock_v1())")
        assert await store.inspector.lock_holders() == []
        (found,) = await store.inspector.lock_holders(longer_than=0.0)
    assert (found.process, found.may_work) == (session.get_server_pid(), True)
    assert found.seconds is not None
    assert await store.inspector.lock_holders(longer_than=0.0) == []


NAMED = {
    "outlast_keeper_lock_v1(": "lock_holders of limits.sql",
    "hashtextextended('outlast:minutes'": "lock_holders of limits.sql",
    "x'6f75746c617374'": "lock_holders of migrate.sql",
    "v_key": "outlast_hold_presence_v1",
    "0)": "tries whether the server has such locks",
}
"""The keys of advisory locks, and what names their holders."""


def test_the_holder_of_each_advisory_lock_that_is_taken_is_named() -> None:
    folder = resources.files("outlast.store").joinpath("postgres", "sql")
    texts = [each.read_text() for each in _files(folder)]
    taken = re.compile(r"pg_(?:try_)?advisory_(?:xact_)?lock(?:_shared)?\(\s*(.*)")
    keys = [key for text in texts for line in text.splitlines() for key in taken.findall(line)]
    assert len(keys) > 5
    assert [key for key in keys if not key.startswith(tuple(NAMED))] == []


def _files(folder: Any) -> Iterator[Any]:
    for each in folder.iterdir():
        yield from _files(each) if each.is_dir() else [each]


# -------------------------------------------------------------------- what it hears and sees


async def test_a_stranger_sees_only_queue_names_and_worker_ids(
    store: PostgresStore, hands: Hands, stranger: Any, session: Any
) -> None:
    heard: list[str] = []
    channel = await session.fetchval("SELECT outlast_channel_v1()")
    await stranger.add_listener(channel, lambda *said: heard.append(said[3]))
    await enqueued(store, job(queue="payroll", args='"secret"', key="alice"))
    (claimed,) = await hands.claim(1)
    await store.cancel([claimed.job_id])
    await store.request_drain([hands.me.worker_id])
    last = f"drain:{hands.me.worker_id}"

    async def has_heard_all() -> bool:
        await stranger.execute("SELECT")
        return last in heard

    await eventually(has_heard_all)
    (told, *others) = heard
    assert re.fullmatch(r"jobs:\d+:1:payroll", told)
    assert others == [f"cancel:{hands.me.worker_id}", last]


async def test_the_environment_shows_strangers_and_activity_tracking(
    store: PostgresStore, hands: Hands, lock: PostgresPresence, stranger: Any, session: Any
) -> None:
    await lock.hold(hands.me)
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert STRANGER in facts.strangers
    assert facts.worker_roles == ["postgres"]
    assert facts.track_activities == "on"
    await session.execute(f"GRANT SELECT ON outlast_jobs TO {STRANGER}")
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert STRANGER not in facts.strangers


# -- functions that run as their owner


async def kinds_of(store: PostgresStore) -> set[str]:
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    return set(facts.misled)


async def test_migrate_closes_what_a_restore_without_privileges_has_opened(
    store: PostgresStore, session: Any, stranger: Any, stranger_url: str
) -> None:
    """As `pg_restore --no-privileges` does: all may execute what is new, as its owner."""
    await session.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC")
    call = "SELECT outlast_free_keys_v1('{}')"
    await stranger.execute(call)
    assert await kinds_of(store) == {"open"}
    await session.execute("GRANT SELECT ON outlast_schema TO stranger")
    other = PostgresStore(stranger_url)
    with pytest.raises(NotPermitted, match="as their owner"):
        await other.migrate()
    await other.close()
    assert [step.name for step in await store.migrate()] == ["functions as they were made"]
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await stranger.execute(call)
    assert await kinds_of(store) == set()


async def test_migrate_gives_functions_to_the_new_owner_of_the_tables(
    store: PostgresStore, session: Any, stranger_url: str
) -> None:
    """Scripts that change the owner of each table, sequence and view leave functions out."""
    change = """
        CREATE ROLE leaver; GRANT CREATE ON SCHEMA public TO leaver, stranger;
        DO $$ DECLARE it record; BEGIN
            FOR it IN SELECT p.oid::regprocedure AS name FROM pg_proc p
                      WHERE p.prosecdef AND p.proname LIKE 'outlast\\_%' LOOP
                EXECUTE format('ALTER FUNCTION %s OWNER TO leaver', it.name);
            END LOOP;
            FOR it IN SELECT c.oid::regclass AS name FROM pg_class c
                      WHERE c.relname LIKE 'outlast\\_%' AND c.relkind = 'r' LOOP
                EXECUTE format('ALTER TABLE %s OWNER TO stranger', it.name);
            END LOOP;
        END $$"""
    try:
        await session.execute(change)
        assert await kinds_of(store) == {"owner"}
        assert [step.name for step in await store.migrate()] == ["functions as they were made"]
        assert await kinds_of(store) == set()
        owner = PostgresStore(stranger_url)
        await session.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO stranger")
        assert await enqueued(owner) != []
        await owner.close()
    finally:
        await session.execute("REASSIGN OWNED BY stranger TO postgres")
        await session.execute("DROP OWNED BY leaver; DROP ROLE leaver")
