"""Least privilege: the grants suffice for every statement, and a missing one is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

import asyncpg
import pytest

import outlast
from outlast.base.clock import SYSTEM
from outlast.client.rehearsal import rehearse
from outlast.errors import ConfigError, NotPermitted, StoreUnavailable
from outlast.insight.queries import read_details
from outlast.insight.why import why
from outlast.model.job import Policy, State
from outlast.store.actions import Bulk, BulkStep, Note
from outlast.store.inspector import Inspector
from outlast.store.limits import Hold, SetLimit
from outlast.store.postgres import privileges
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.statements import numbered
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.statements import statements
from outlast.store.values import NamedStep, NewEvent, OnKey, Purpose, Save, Spawn, Upstream
from tests.conformance.kit import (
    Hands,
    crashed,
    ended,
    enqueued,
    eventually,
    job,
    lost_worker,
    new_worker,
    on,
)
from tests.conformance.limits_kit import declare as declare_limit
from tests.conformance.limits_kit import limited, need
from tests.conformance.schedules_kit import due_one, fire_one, firing, put_one
from tests.conformance.verbs_kit import ALL, NO_TRIP_TO_A_FILE, holding

BY_A_SERVER = {**ALL, **NO_TRIP_TO_A_FILE}

ROLE = "outlast_least"
BY_THE_OWNER = {
    ("migrate", "try_unlogged"),
    ("migrate", "try_locks"),
    ("migrate", "try_notify"),
    ("migrate", "try_listen"),
    ("migrate", "patient"),
    ("migrate", "has_no_jobs"),
    ("migrate", "unlimited"),
    ("migrate", "lock"),
    ("migrate", "lock_holders"),
    ("migrate", "note"),
}  # statements of `outlast migrate` itself


@pytest.fixture
async def role(pg_url: str, session: Any) -> AsyncIterator[str]:
    """The address of an empty schema for a role that may do nothing there yet."""
    owner = PostgresStore(pg_url)
    await owner.open()
    await owner.close()
    # as a careful administrator sets it: no privilege comes from PUBLIC
    await session.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    await session.execute(
        "REVOKE ALL ON SCHEMA public FROM PUBLIC; REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public"
        " FROM PUBLIC"
    )
    yield f"postgresql://{ROLE}@{pg_url.partition('@')[2]}"
    await session.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


async def granted(pg_url: str, purpose: Purpose = Purpose.WORKER) -> list[str]:
    owner = PostgresStore(pg_url)
    try:
        return await owner.grant(ROLE, purpose)
    finally:
        await owner.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What sessions of the role have sent in the test."""
    texts: set[str] = set()

    def noting(real: Any) -> Any:
        async def send(connection: Any, text: str, *values: Any, **options: Any) -> Any:
            if connection._params.user == ROLE:
                texts.add(text)
            return await real(connection, text, *values, **options)

        return send

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        monkeypatch.setattr(asyncpg.Connection, name, noting(getattr(asyncpg.Connection, name)))
    return texts


async def test_a_worker_role_may_run_every_statement(
    pg_url: str, role: str, sent: set[str], session: Any
) -> None:
    assert await granted(pg_url)
    await session.execute("DELETE FROM outlast_incarnation")  # as a crash does
    store = PostgresStore(role)
    await store.open()
    hands, held = await holding(store)
    for verb in BY_A_SERVER.values():
        await verb(hands, held)
    await _reap_beside(store, session)
    await _more_of_a_worker(store, hands)
    await session.execute("UPDATE outlast_minutes SET at = 0")
    assert await store.merge_minutes()
    await enqueued(store, job(), job(delay=60))
    await enqueued(store, job(key="k", on_key=OnKey(replaces=True)))
    await store.delete_schedule("unknown")
    await _enqueue_in_a_window(store, session)
    await _more_of_a_reader(store.inspector)
    await store.close()
    await _beside(role)
    left = {which for which, text in all_statements().items() if text not in sent}
    assert left == BY_THE_OWNER


def all_statements() -> dict[tuple[str, str], str]:
    """Return the statements of all topics, by topic and name."""
    store = resources.files("outlast.store")
    files = [each for part in ("sql", "postgres/sql") for each in store.joinpath(part).iterdir()]
    names = {each.name.removesuffix(".sql") for each in files if each.is_file()}
    topics = [each for each in names if not each.startswith("migration_")]
    return {
        (topic, name): numbered(topic, name)[0]
        for topic in topics
        for name in statements("postgres", topic)
    }


async def _reap_beside(store: PostgresStore, session: Any) -> None:
    hands = await Hands.on(store, "held")
    async with session.transaction():
        await session.execute("SELECT FROM outlast_workers FOR KEY SHARE")
        with pytest.raises(StoreUnavailable, match="holds its row"):
            await store.reap(await hands.seen())
    await hands.vanish()


async def _all_of_limits(store: PostgresStore) -> None:
    await declare_limit(store, running=1)
    await store.set_limit(SetLimit(name="a", key="acme", running=1))
    await store.set_limit(SetLimit(name="a", running=1))
    await store.hold_limit(Hold("a", "", 0.0))
    await declare_limit(store, "each", running=1, per="limit_key")
    await store.hold_limit(Hold("each", "", 0.0))
    await store.set_limit(SetLimit(name="each", reset=True))
    hands = await Hands.on(store, "limited")
    mine = {"task": "app.limited"}
    await store.enqueue([limited(need("a"), **mine), limited(need("a"), delay=60.0, **mine)])
    (one,) = await eventually(lambda: hands.claim(1, tasks=["app.limited"]))
    await store.spend(one.job_id, one.token, "a", 1.0)
    await store.spend(one.job_id, one.token + 1, "a", 1.0)
    (job_id,) = await enqueued(store, limited(need("a"), **mine))
    await hands.claim(tasks=["app.limited"])
    assert await store.inspector.stream_place(job_id)
    assert not await store.inspector.is_sent(job_id)
    assert await store.inspector.permits("a")
    await hands.hand_in(ended(one))


async def _more_of_a_worker(store: PostgresStore, hands: Hands) -> None:
    """Statements, and branches of functions, that the verbs of the kit do not reach."""
    other = await Hands.on(store, "w2", instance="i", registration="r", token_seen=1_000)
    policy = Policy(labels=("a",), keep=0.0)
    await store.cancel(await enqueued(store, job(policy=policy, delay=60)))
    for _ in range(2):
        await store.enqueue([job(key="k")])
        await store.enqueue([job(key="k"), job(key="l"), job(delay=60)])
    first, second, third = await other.claim(3)
    for _ in range(2):  # the second time they are answered again
        await other.exchange(ended(first), crashed(second))
    await store.checkpoint([Save(second.job_id, second.token, 2, "2")])
    step_of_third = NamedStep(third.job_id, third.token, "cover", "1")
    await store.keep_steps([step_of_third])
    await store.find_steps([step_of_third])
    await store.spawn(
        [job(task="app.child")], Spawn(NamedStep(third.job_id, third.token, "spawn 0", "1"), 0)
    )
    children = await store.inspector.children(third.job_id, 1, 1)
    assert await store.inspector.children_end(third.job_id) == 1
    await store.watch_children(third.job_id, third.token, [each.id for each in children])
    assert not await store.inspector.waits_for_itself(third.job_id)
    assert await store.inspector.returns(third.job_id)
    await store.find_event("e")
    await store.send_event(NewEvent("e", "[1]"))
    inputs = Policy(inputs=(("a", False),))
    await store.enqueue([job(task="app.other", after=(Upstream(first.job_id),), policy=inputs)])
    await other.claim(1, tasks=["app.other"])
    await enqueued(store, limited(fair="t", task="app.large", args='"' + "x" * 70_000 + '"'))
    assert await other.claim(1, tasks=["app.large"])
    await store.count_peers(other.me)
    await store.waiting(0.0, 10)
    await store.list_run_elsewhere(hands.me, [third.job_id])
    await other.vanish()
    assert await store.reclaim(lost_worker)
    bulk = Note(actor="ada", verb="cancel", bulk=Bulk(up_to_id=9, as_of=0.0, expected=1))
    step = BulkStep(action_id=await store.note(bulk), before_id=10, then=9)
    await store.cancel([third.job_id], tokens={third.job_id: third.token}, record=step)
    await store.requeue([third.job_id], from_scratch=True)
    await store.skip(await enqueued(store, job(after=(Upstream(third.job_id),))))
    for paused in (True, False):
        assert await store.pause_schedule("other", paused=paused)
    await _all_of_limits(store)
    await store.prune(jobs_older_than=-1, workers_older_than=-1, dead_older_than=-1)


async def _enqueue_in_a_window(store: Store, session: Any) -> None:
    once = job(key="once", on_key=OnKey(window=1e9))
    (first,) = await enqueued(store, once)
    await session.execute(
        "UPDATE outlast_jobs SET state = 'cancelled', ended_at = 0, position = NULL WHERE id = $1",
        first,
    )
    assert await enqueued(store, once) == [first]
    await session.execute("UPDATE outlast_windows SET until = date_part('epoch', now())")
    assert await enqueued(store, once) != [first]


async def _more_of_a_reader(inspector: Inspector) -> None:
    for state in (None, *State):
        await inspector.job_ids(JobFilter(state=state))
        await inspector.job_ids(JobFilter(state=state, queue="none", look_rows=1))
    await inspector.job_ids(JobFilter(state=State.DEAD, fingerprint="none"))
    await inspector.job_ids(JobFilter(label="a"))
    await inspector.dead_groups(JobFilter(tenant="acme"))
    await inspector.statistics()
    assert await inspector.no_writes() is None
    await inspector.steps(1)
    await inspector.dependencies(1)
    await inspector.unresolved()
    await inspector.doubled()
    for blocked in (True, False):
        await inspector.newest_flows(99, 10, blocked=blocked)
    await inspector.flow_links([1], 10)
    await inspector.flow_members([1])
    await inspector.environment()


async def _beside(role: str) -> None:
    """What works on connections of its own: presence, wake-ups, a task's own transaction."""
    through = PostgresStore(f"{role}?options=-csearch_path%3Dpublic", pooler=True)
    await through.open()
    await through.close()
    reading = PostgresStore(f"{role}?default_transaction_read_only=on", read_only=True)
    assert "last heartbeat" in str(await reading.inspector.no_writes())
    await reading.close()
    store = PostgresStore(role)
    hands = await Hands.on(store, "w4")
    async with store._connections.use() as lent:
        await store._connections.loop_pool().in_use._look_for_another({lent: 0.0})
    presence = PostgresPresence(role, patience=10.0)
    assert await presence.hold(hands.me) is None
    await presence.release()
    listening = PostgresWakeup(role)
    heard = asyncio.Event()
    await listening.start(lambda _payload: heard.set())
    async with asyncio.timeout(30.0):
        await heard.wait()
    session = await listening.borrow(10.0)
    assert session is not None
    assert not await listening._still_listens(session, "elsewhere", "outlast")
    await listening.close()
    await session.connection.close()
    own = await asyncpg.connect(role)
    async with own.transaction():
        await on(own).enqueue([job()])
        claimed = await eventually(lambda: hands.claim(1))
        step = NamedStep(claimed[0].job_id, claimed[0].token, "cover", "1")
        assert await on(own).keep_step(step)
        await on(own).complete(claimed[0].job_id, claimed[0].token, "null")
        await store.enqueue([job(policy=Policy(keep=0.0), priority=100)])
        claimed = await eventually(lambda: hands.claim(1))
        assert await on(own).complete(claimed[0].job_id, claimed[0].token, "null")
    await on(own).store_id()
    await own.fetch("SELECT * FROM outlast_history")
    await own.close()
    await store.close()


@pytest.mark.parametrize(
    ("revoked", "told"),
    [
        ("UPDATE ON SEQUENCE outlast_token_seq", "UPDATE ON SEQUENCE outlast_token_seq"),
        ("DELETE ON outlast_attempts", "DELETE ON TABLE outlast_attempts"),
        ("EXECUTE ON FUNCTION outlast_raise_tokens_v1", "outlast_raise_tokens_v1"),
    ],
)
async def test_a_worker_that_lacks_a_privilege_does_not_begin(
    pg_url: str, role: str, session: Any, revoked: str, told: str
) -> None:
    await granted(pg_url)
    await session.execute(f"REVOKE {revoked} FROM {ROLE}")
    store = PostgresStore(role)
    await store.open()
    with pytest.raises(NotPermitted, match=told) as failed:
        await store.register(new_worker())
    assert "outlast migrate --grant" in str(failed.value)
    assert await store.inspector.workers() == []
    assert any(told in each for each in await granted(pg_url))
    await store.register(new_worker())
    await store.close()


async def test_granting_twice_grants_nothing_more(pg_url: str, role: str) -> None:
    assert "UPDATE ON SEQUENCE outlast_token_seq" in await granted(pg_url)
    assert await granted(pg_url) == []


async def test_a_role_for_enqueuing_can_enqueue_and_read_and_no_more(
    pg_url: str, role: str, session: Any
) -> None:
    await granted(pg_url, Purpose.ENQUEUE)
    store: Store = PostgresStore(role)
    await store.open()
    await store.enqueue([job(), job(delay=60), job(key="k")])
    await store.enqueue([job(policy=Policy(labels=("a",)))])
    await store.inspector.job_ids(JobFilter(label="a"))
    await store.enqueue([job(), job()])
    for _ in range(2):
        await store.enqueue([job(key="k"), job(key="l")])
        await store.enqueue([job(key="l")])
    await _enqueue_in_a_window(store, session)
    rows = await store.inspector.jobs(JobFilter())
    assert await store.inspector.job(rows[0].id) == rows[0]
    assert await store.inspector.attempts(rows[0].id) == []
    await put_one(store)
    await put_one(store, spec="{}")
    await store.pause_schedule("nightly", paused=True)
    assert len(await store.inspector.schedules()) == 1
    await store.delete_schedule("nightly")
    with pytest.raises(NotPermitted):
        await store.cancel([rows[0].id])
    with pytest.raises(NotPermitted):
        await store.register(new_worker())
    with pytest.raises(NotPermitted):
        await store.discard([rows[0].id])
    await store.close()


@pytest.mark.parametrize("purpose", [Purpose.ENQUEUE, Purpose.VIEW, Purpose.WORKER])
async def test_an_autoscaler_asks_and_a_person_asks_why_with_each_role_that_may_read(
    pg_url: str, role: str, purpose: Purpose
) -> None:
    owner, reader = PostgresStore(pg_url), PostgresStore(role)
    (job_id,) = [each.job_id for each in await owner.enqueue([job()])]
    await granted(pg_url, purpose)
    assert await reader.inspector.wanted("default") == 1
    about = await read_details(reader, job_id, SYSTEM.wall())
    assert about is not None
    assert "No worker is alive." in why(about).sentences
    for each in (owner, reader):
        await each.close()


async def test_a_release_is_rehearsed_by_a_role_that_may_only_read_and_no_task_runs(
    pg_url: str, role: str
) -> None:
    await granted(pg_url, Purpose.VIEW)
    app, ran = outlast.App(role), []

    @app.task
    def remind(to: int) -> None:
        ran.append(to)

    owner, reader = PostgresStore(pg_url), PostgresStore(role)
    await owner.enqueue([job(task="remind", args='{"to":1}'), job(task="gone")])
    found = await rehearse(app, reader.inspector)
    assert (found.read, [each.name for each in found.findings]) == (2, ["gone"])
    assert ran == []
    for one in (owner, reader, app):
        await one.close()


LOCKS = ["SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"]


@pytest.mark.parametrize("purpose", [Purpose.ENQUEUE, Purpose.PRODUCE, Purpose.VIEW])
async def test_a_role_with_less_than_a_workers_rights_locks_no_table(
    pg_url: str, role: str, session: Any, purpose: Purpose
) -> None:
    """Each mode conflicts with what a worker does, or with a vacuum: rescue would stand still."""
    await granted(pg_url, purpose)
    tables = await session.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'outlast\\_%' AND relkind IN ('r', 'v')"
    )
    own = await asyncpg.connect(role)
    locked = []
    for name in [row["relname"] for row in tables]:
        # EXCLUSIVE is what raising the tokens takes on the workers, and this conflicts with it
        for mode in [*LOCKS, *(["ROW SHARE"] if name == "outlast_workers" else [])]:
            try:
                async with own.transaction():
                    await own.execute(f"LOCK TABLE {name} IN {mode} MODE")
            except asyncpg.InsufficientPrivilegeError:
                continue
            locked.append((name, mode))
    await own.close()
    assert len(tables) > 10
    assert locked == []


async def test_a_workers_role_that_is_also_granted_to_enqueue_keeps_its_rights(
    pg_url: str, role: str
) -> None:
    await granted(pg_url)
    await granted(pg_url, Purpose.ENQUEUE)
    assert await granted(pg_url) == []


async def test_a_role_for_enqueuing_stops_a_schedule_by_its_key_until_that_job_ends(
    pg_url: str, role: str
) -> None:
    """It may delete the schedule, too. The page names the job that was in the way."""
    await granted(pg_url, Purpose.ENQUEUE)
    store = PostgresStore(pg_url)
    await store.open()
    await put_one(store)
    least = await asyncpg.connect(role)
    await least.execute(
        "INSERT INTO outlast_jobs (run_at, enqueued_at, task, queue, args, key)"
        " VALUES (0, 0, 't', 'q', '{}', 'outlast:schedule:nightly')"
    )
    await least.close()
    (forged,) = await store.inspector.jobs(JobFilter())
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since))).in_the_way == forged.id
    await store.cancel([forged.id])
    await store.delete_schedule("nightly")
    await put_one(store)
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since))).jobs != [None]
    await store.close()


@pytest.mark.parametrize("column", ["id", "token", "worker_id", "ended_at", "solo", "result"])
async def test_a_role_for_enqueuing_names_no_id_and_no_part_of_a_run(
    pg_url: str, role: str, column: str
) -> None:
    """With the ids that come next it would keep all others from enqueuing; with the highest token,
    state and end it would make up history."""
    await granted(pg_url, Purpose.ENQUEUE)
    own = await asyncpg.connect(role)
    said = "(run_at, enqueued_at, task, queue, args{}) VALUES (0, 0, 't', 'q', '{{}}'{})"
    await own.execute(f"INSERT INTO outlast_jobs {said.format('', '')}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await own.execute(f"INSERT INTO outlast_jobs {said.format(f', {column}', ', NULL')}")
    await own.close()


async def test_granting_needs_a_role_and_the_right_to_grant(pg_url: str, role: str) -> None:
    owner = PostgresStore(pg_url)
    with pytest.raises(ConfigError, match="no role 'outlast_missing'"):
        await owner.grant("outlast_missing", Purpose.WORKER)
    await owner.close()
    await granted(pg_url, Purpose.ENQUEUE)
    itself = PostgresStore(role)
    with pytest.raises(NotPermitted):
        await itself.grant(ROLE, Purpose.WORKER)
    await itself.close()


async def test_grants_on_sqlite_are_refused(sqlite_url: str) -> None:
    from outlast.store import open_store

    store = open_store(sqlite_url)
    await store.open()
    with pytest.raises(ConfigError, match="no roles"):
        await store.grant("app", Purpose.WORKER)
    await store.close()


async def test_every_table_and_sequence_is_granted_or_excluded(pg_url: str, session: Any) -> None:
    """A later one is not forgotten: it is granted, or left out on purpose."""
    owner = PostgresStore(pg_url)
    await owner.open()
    await owner.close()
    found = await session.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'outlast\\_%' AND relkind IN ('r','v','S')"
    )
    named = set(privileges._NEEDED[Purpose.WORKER])
    assert {row["relname"] for row in found} == named
