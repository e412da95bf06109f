"""An administrator works on the tables of Outlast in PostgreSQL while workers run."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from harness.servers import PostgresServer
from outlast.errors import BadData, NotPermitted, StoreUnavailable
from outlast.model.crash import CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.errors import translate
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import JobFilter
from outlast.store.values import Answer, Purpose
from outlast.worker.claims.exchange import exchange_bisecting
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import declare as declare_limit
from tests.conformance.limits_kit import limited, need
from tests.postgres.kit import blocked

ROLE = "outlast_guarded"


# -- a table that is rewritten (VACUUM FULL, CLUSTER, ALTER TABLE)


async def test_a_worker_beats_while_the_jobs_are_rewritten(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(store)
    held = await hands.claim_one()
    await store.cancel([held.job_id])
    async with session.transaction():
        await session.execute("LOCK TABLE outlast_jobs IN ACCESS EXCLUSIVE MODE")
        await store.request_drain([hands.me.worker_id])
        async with asyncio.timeout(25):
            beat = await store.heartbeat(hands.me)
        assert (beat.renewed, beat.cancels, beat.drain) == (True, [], True)
    assert (await store.heartbeat(hands.me)).cancels == [(held.job_id, held.token)]


async def test_a_worker_beats_while_a_rewrite_of_the_jobs_table_waits_for_a_lock(
    store: PostgresStore, hands: Hands, session: Any, other_session: Any, watcher: Any
) -> None:
    async with session.transaction():
        await session.execute("SELECT count(*) FROM outlast_jobs")
        rewriting = asyncio.create_task(other_session.execute("VACUUM FULL outlast_jobs"))
        await blocked(watcher)
        async with asyncio.timeout(25):
            assert (await store.heartbeat(hands.me)).renewed
    await rewriting


@pytest.mark.parametrize("table", ["outlast_jobs", "outlast_schedules", "outlast_pauses"])
async def test_a_beat_waits_for_no_table_that_its_peek_reads(
    store: PostgresStore, hands: Hands, session: Any, table: str
) -> None:
    async with session.transaction():
        await session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(25):
            beat = await store.heartbeat(hands.me)
        assert (beat.renewed, beat.peek) == (True, None)
    assert (await store.heartbeat(hands.me)).peek is not None


@pytest.fixture
async def other_session(pg_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


@pytest.mark.slow_but("USING outlast_jobs_pkey", "(state, token)")
@pytest.mark.parametrize(
    "work",
    [
        "VACUUM FULL outlast_jobs; VACUUM FULL outlast_workers",
        "CLUSTER outlast_jobs USING outlast_jobs_pkey",
        "REINDEX TABLE outlast_jobs; REINDEX TABLE outlast_workers; REINDEX TABLE outlast_attempts",
        "ALTER TABLE outlast_jobs ADD COLUMN IF NOT EXISTS head text DEFAULT 'x'",
        "ALTER TABLE outlast_workers ADD COLUMN IF NOT EXISTS job_id bigint DEFAULT 1",
        "CREATE INDEX IF NOT EXISTS mine ON outlast_jobs (state, token)",
    ],
)
async def test_maintenance_of_the_tables_loses_and_doubles_no_job(
    work: str, store: PostgresStore, session: Any
) -> None:
    ids = await enqueued(store, *[job(args=f"[{n}]") for n in range(60)])
    stores = [PostgresStore(store.url, connections=2) for _ in range(3)]
    busy = True

    async def administers() -> None:
        while busy:
            for statement in work.split("; "):
                with contextlib.suppress(asyncpg.DeadlockDetectedError):  # a REINDEX may lose
                    await session.execute(statement)

    async def works(name: str, each: PostgresStore) -> list[int]:
        hands, done = await Hands.on(each, name), []
        while claimed := await hands.claim(4) or await hands.claim(4):
            assert (await each.heartbeat(hands.me)).renewed
            await hands.follow(*map(ended, claimed), limit=0)
            done += [one.job_id for one in claimed]
        return done

    administering = asyncio.create_task(administers())
    done = await asyncio.gather(*(works(f"w{n}", each) for n, each in enumerate(stores)))
    busy = False
    await administering
    assert sorted(one for each in done for one in each) == ids
    for mine in stores:
        await mine.close()


async def test_a_column_of_the_administrators_is_none_of_a_claim_under_limits(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """It has the name of a variable of the function that claims."""
    await session.execute("ALTER TABLE outlast_jobs ADD COLUMN started text")
    await declare_limit(store, running=1)
    await enqueued(store, limited(need("a")))
    assert len(await hands.claim(1)) == 1


# -- what tables and database are


async def test_tables_that_a_crash_empties_are_named(store: PostgresStore, session: Any) -> None:
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert (facts.unlogged, facts.encoding) == ([], "UTF8")
    await session.execute("ALTER TABLE outlast_jobs SET UNLOGGED")
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert facts.unlogged == ["outlast_jobs"]


@pytest.fixture
def latin_url(pg_server: PostgresServer) -> Iterator[str]:
    name = "outlast_latin"
    options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    pg_server.sql(f"CREATE DATABASE {name} {options}")
    yield pg_server.url(name)
    pg_server.drop_database(name)


async def test_a_text_that_the_database_cannot_encode_is_bad_data_and_fails_only_its_job(
    latin_url: str,
) -> None:
    store = PostgresStore(latin_url)
    await store.open()
    hands = await Hands.on(store)
    await enqueued(store, job(args='"\u00fc"'), job())
    with pytest.raises(BadData):
        await enqueued(store, job(args='"\u20ac"'))
    first, second = await hands.claim(2)
    assert first.args == '"\u00fc"'
    good, bad = ended(first, result='"\u00fc"'), ended(second, result='"\u20ac"')

    def reject(*_: object) -> Transition:
        return crashed(second, CrashKind.REJECTED_RESULT)

    reply = await exchange_bisecting(store, hands.me, [good, bad], [], reject)
    assert reply.answers == [Answer.ACCEPTED] * 2
    assert await store.inspector.jobs(JobFilter(state=State.QUEUED, task="\u20ac")) == []
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert facts.encoding == "LATIN1"
    await store.close()


# -- what an administrator adds to the tables

GUARDS = {
    "an index": "CREATE INDEX of_user ON outlast_jobs (result)",
    "a trigger": """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE 'no such result here'; END $$;
        CREATE TRIGGER of_user BEFORE UPDATE ON outlast_jobs FOR EACH ROW
        WHEN (new.state = 'completed' AND length(new.result) > 3000) EXECUTE FUNCTION refuse()""",
}


@pytest.mark.parametrize("guard", GUARDS)
async def test_a_result_that_something_of_the_administrators_refuses_fails_only_its_job(
    guard: str, store: PostgresStore, hands: Hands, session: Any
) -> None:
    await session.execute(GUARDS[guard])
    await enqueued(store, job(), job())
    first, second = await hands.claim(2)
    long = random.Random(1).randbytes(2_000).hex()  # too long for an index
    refused = ended(second, result=f'"{long}"')
    told: list[str] = []

    def reject(_: Transition, why: str) -> Transition:
        told.append(why)
        return crashed(second, CrashKind.REJECTED_RESULT)

    reply = await exchange_bisecting(store, hands.me, [ended(first), refused], [], reject)
    assert reply.answers == [Answer.ACCEPTED] * 2
    assert ["of_user" in why or "no such result" in why for why in told] == [True]


async def test_a_foreign_key_that_keeps_jobs_from_being_deleted_is_named(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await session.execute("CREATE TABLE orders (job_id bigint REFERENCES outlast_jobs)")
    (job_id,) = await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one()))
    await session.execute("INSERT INTO orders VALUES ($1)", job_id)
    with pytest.raises(BadData, match=r"a foreign key of yours refers to it.*SET NULL.*orders"):
        await store.prune(jobs_older_than=0.0, workers_older_than=0.0)


async def test_a_server_that_has_no_more_transaction_ids_refuses_no_value() -> None:
    """It stores nothing until it is vacuumed. Its code is that of a row too long for an index."""
    error = asyncpg.ProgramLimitExceededError("is not accepting commands")
    error.server_source_function = "GetNewTransactionId"
    assert isinstance(translate(error), StoreUnavailable)


# -- row security


@pytest.fixture
async def guarded(pg_url: str, store: PostgresStore, session: Any) -> AsyncIterator[PostgresStore]:
    """A store under a role of its own, which owns nothing."""
    await session.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    await store.grant(ROLE, Purpose.WORKER)
    guarded = PostgresStore(f"postgresql://{ROLE}@{pg_url.partition('@')[2]}")
    await guarded.open()
    yield guarded
    await guarded.close()
    await session.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


async def test_rows_hidden_by_row_security_do_not_count_as_missing(
    guarded: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(hands.store)
    held = await hands.claim_one()
    await session.execute("ALTER TABLE outlast_workers ENABLE ROW LEVEL SECURITY")
    reclaimed = []
    with pytest.raises(NotPermitted, match="row-level security"):
        await guarded.observe()
    with pytest.raises(NotPermitted, match="row-level security"):
        reclaimed = await guarded.reclaim(lambda orphan: pytest.fail(f"robbed {orphan}"))
    assert reclaimed == []
    assert await hands.hand_in(ended(held)) == [Answer.ACCEPTED]
