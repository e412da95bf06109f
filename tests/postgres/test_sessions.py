"""How many sessions workers hold, and what one of them serves for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

import outlast
from outlast import store as store_package
from outlast.model.job import Policy
from outlast.model.lease import Presence
from outlast.store.postgres import presence as presence_module
from outlast.store.postgres import wakeup as wakeup_module
from outlast.store.postgres.pool import _Checkout
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.statements import numbered
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.statements import statements
from outlast.store.values import NewJob, Upstream, Wants
from outlast.worker.in_process import embedded
from tests.conformance.kit import Hands, ended, enqueued, job, new_worker
from tests.conformance.limits_kit import limited
from tests.postgres.kit import until
from tests.postgres.wakeup_kit import Heard

WORKERS = 3
OF_EACH = {"outlast": 3}  # its exchange, its beats, and its looks: these few watch, all of them
WITH_PRESENCE = {"outlast presence": 1}  # which listens
WITHOUT = {"outlast wakeup": 1}


@pytest.fixture
async def app(
    pg_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> AsyncIterator[outlast.App]:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    made = outlast.App(pg_url)
    yield made
    await made.close()


async def sessions(session: Any, besides: Collection[int] = ()) -> dict[int, str]:
    """The sessions of Outlast in this database, with what they are for."""
    rows = await session.fetch(
        "SELECT pid, application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND starts_with(application_name, 'outlast')"
    )
    return {row["pid"]: row["application_name"] for row in rows if row["pid"] not in besides}


@pytest.mark.parametrize("presence", [True, False])
async def test_a_worker_holds_so_many_sessions_and_no_more(
    app: outlast.App, store: Store, session: Any, presence: bool
) -> None:
    done: list[int] = []

    @app.task
    async def work(number: int) -> None:
        done.append(number)

    await store.observe()
    besides = {*await sessions(session)}
    besides_these = WITH_PRESENCE if presence else WITHOUT
    expected = Counter({name: WORKERS * count for name, count in (OF_EACH | besides_these).items()})

    async def held() -> Counter[str]:
        return Counter((await sessions(session, besides)).values())

    async def all_are_there() -> bool:
        return await held() == expected

    async def all_are_done() -> bool:
        return len(done) == 50

    async with AsyncExitStack() as stack:
        for _ in range(WORKERS):
            await stack.enter_async_context(embedded(app, presence=presence))
        await until(all_are_there)
        await store.enqueue([work.call(n).job for n in range(50)])
        await until(all_are_done)
        await until(all_are_there)  # one that was replaced may be seen for an instant

    async def all_have_left() -> bool:
        return not await held()

    await until(all_have_left)


async def test_a_connection_that_is_not_the_exchanges_is_closed_when_it_is_idle(
    pg_url: str, store: Store, session: Any
) -> None:
    besides = {*await sessions(session)}
    own = PostgresStore(pg_url, connections=2, reserved=1, idle_seconds=0.2)
    hands = await Hands.on(own)

    async def held(count: int) -> bool:
        return len(await sessions(session, besides)) == count

    for _ in range(2):
        await own.observe()
        await hands.exchange()
        await until(lambda: held(1))
    assert await own.count_peers(hands.me) == (1, 0)
    await own.reconcile(hands.me, [])
    assert await held(1), "an idle worker asks this over its exchange's"
    await own.observe()
    await own.close()
    await until(lambda: held(0))


@pytest.mark.parametrize("keeps_plans", [False, True])
async def test_no_connection_that_the_server_has_ended_is_lent(
    pg_url: str, store: Store, session: Any, keeps_plans: bool
) -> None:
    """As after a restart: each caller would fail, though nothing was sent."""
    own = PostgresStore(pg_url, connections=3)
    connections = own._connections
    async with AsyncExitStack() as stack:  # of both kinds, since one may take the place of another
        kinds = (keeps_plans, keeps_plans, not keeps_plans)
        lent = [
            await stack.enter_async_context(_Checkout(connections, keeps_plans=each))
            for each in kinds
        ]
    ended = [asyncio.Event() for _ in lent]
    for connection, event in zip(lent, ended, strict=True):
        connection.add_termination_listener(lambda _, event=event: event.set())
    for connection in lent:
        await session.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
    async with asyncio.timeout(25):
        for event in ended:
            await event.wait()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            checkout = _Checkout(connections, keeps_plans=keeps_plans)
            connection = await stack.enter_async_context(checkout)
            assert await connection.fetchval("SELECT 1") == 1
    await own.close()


# -- one session that listens and holds a presence


@pytest.fixture
async def shared(pg_url: str, store: Store) -> AsyncIterator[tuple[PostgresWakeup, Heard]]:
    heard, wakeup = Heard(), PostgresWakeup(pg_url)
    await wakeup.start(heard)
    yield wakeup, heard
    await wakeup.close()


@pytest.fixture
async def locks(
    pg_url: str, shared: tuple[PostgresWakeup, Heard], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[PostgresPresence]]:
    monkeypatch.setattr(presence_module, "BORROW_SECONDS", 25.0)  # on a busy machine
    made = [PostgresPresence(pg_url, patience=50.0, wakeup=shared[0]) for _ in range(2)]
    yield made
    for each in made:
        await each.release()


async def named(session: Any) -> Counter[str]:
    names = Counter((await sessions(session)).values())
    del names["outlast"]
    return names


async def test_the_session_that_listens_holds_one_presence_and_others_have_their_own(
    store: Store,
    session: Any,
    shared: tuple[PostgresWakeup, Heard],
    locks: list[PostgresPresence],
) -> None:
    hands = [await Hands.on(store, name) for name in ("a", "b")]
    for lock, each in zip(locks, hands, strict=True):
        assert await lock.hold(each.me) is None
    assert await named(session) == Counter({"outlast presence": 2})
    assert [(await each.seen()).presence for each in hands] == [Presence.HELD] * 2
    await store.enqueue([NewJob(task="t", queue="q")])
    await shared[1].hears("jobs:1:q")


async def test_a_shared_session_that_is_lost_is_replaced_for_both(
    store: Store,
    session: Any,
    shared: tuple[PostgresWakeup, Heard],
    locks: list[PostgresPresence],
) -> None:
    hands, lost = await Hands.on(store), asyncio.Event()
    assert await locks[0].hold(hands.me, lost.set) is None
    (pid,) = [pid for pid, name in (await sessions(session)).items() if name != "outlast"]
    shared[1].words.clear()
    await session.execute("SELECT pg_terminate_backend($1)", pid)
    async with asyncio.timeout(25):
        await lost.wait()

    async def is_held() -> bool:
        return await locks[0].hold(hands.me) is None

    await until(is_held)
    await shared[1].hears("")
    assert (await hands.seen()).presence is Presence.HELD
    assert (await named(session)).total() <= 2, "it waits a second for the other, and no longer"


async def test_a_worker_that_leaves_hears_no_more_and_is_present_to_the_end(
    store: Store,
    session: Any,
    shared: tuple[PostgresWakeup, Heard],
    locks: list[PostgresPresence],
) -> None:
    hands = await Hands.on(store)
    assert await locks[0].hold(hands.me) is None
    await shared[0].close()
    assert (await hands.seen()).presence is Presence.HELD
    assert await locks[0].hold(hands.me) is None
    await locks[0].release()

    async def is_gone() -> bool:
        return not await named(session)

    await until(is_gone)


async def test_a_presence_without_anyone_who_listens_has_a_session_of_its_own(
    pg_url: str, store: Store, session: Any
) -> None:
    hands = await Hands.on(store)
    not_started = PostgresWakeup(pg_url)
    assert await not_started.borrow(3_600.0) is None
    lock = PostgresPresence(pg_url, patience=10.0, wakeup=not_started)
    assert await lock.hold(hands.me) is None
    assert await named(session) == Counter({"outlast presence": 1})
    await lock.release()


async def test_proofs_and_checks_take_turns_in_a_session(
    store: Store,
    shared: tuple[PostgresWakeup, Heard],
    locks: list[PostgresPresence],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wakeup_module, "CHECK_EVERY_SECONDS", 0.0)
    hands, lost = await Hands.on(store), asyncio.Event()
    await shared[1].hears("")
    for _ in range(50):
        assert await locks[0].hold(hands.me, lost.set) is None
    assert shared[0].health.good
    assert not lost.is_set()


OF_JOBS: dict[str, Callable[[Hands], Awaitable[object]]] = {
    "register": lambda it: it.store.register(new_worker("another")),
    "reconnect": lambda it: it.store.reconnect(it.me, 0),
    "raise_tokens": lambda it: it.store.raise_tokens(1),
    "reconcile": lambda it: it.store.reconcile(it.me, []),
    "superseded": lambda it: it.store.superseded([(1, 1)]),
    "set_status": lambda it: it.store.set_status(it.me, WorkerStatus.ACTIVE),
    "exchange": lambda it: it.exchange(limit=1),
    "exchange of large arguments": lambda it: it.exchange(limit=1, tasks=["large"]),
    "exchange of results": lambda it: it.exchange(limit=1, tasks=["needs"]),
}


async def test_what_jobs_wait_for_shares_no_session_with_other_duties(pg_url: str) -> None:
    """A statement of another duty may hang for as long as it may take, and longer."""
    late = []
    store = PostgresStore(pg_url, connections=2, reserved=1)
    await store.open()
    hands = await Hands.on(store)
    (upstream,) = await enqueued(store, job())
    await hands.hand_in(ended(await hands.claim_one(), result="7"))
    needs = job(task="needs", after=(Upstream(upstream, Wants.COMPLETED),))
    policy = Policy(inputs=(("x", False),))
    await enqueued(store, job(), limited(fair="a", task="large", args=f'"{"x" * 100_000}"'))
    await enqueued(store, msgspec.structs.replace(needs, policy=policy))
    async with store._connections.use():  # another duty's, which hangs
        for name, call in OF_JOBS.items():
            try:
                async with asyncio.timeout(20.0):
                    await call(hands)
            except TimeoutError:
                late.append(name)
            if name == "reconnect":
                me = await store.reconnect(hands.me, 0)
                assert me is not None
                hands.me = me
    await store.close()
    assert not late


async def test_a_program_that_enqueues_has_one_session(app: outlast.App, session: Any) -> None:
    mail = app.task(name="mail")(lambda n: None)
    for n in range(3):
        await mail.enqueue(n)
    assert Counter((await sessions(session)).values()) == Counter({"outlast": 1})


async def test_no_statement_makes_the_driver_ask_about_a_type(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one that it does not know, such as a list of numbers, it reads the catalog: in each
    session, in four round trips or six."""
    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", None)
    folder = Path(store_package.__file__).parent
    files = [*folder.glob("sql/*.sql"), *folder.glob("postgres/sql/*.sql")]
    topics = {each.stem for each in files if not each.stem.startswith("migration_")}
    asked, prepared = set(), 0
    for topic in topics:
        for name in statements("postgres", topic):
            try:
                await session.prepare(numbered(topic, name)[0])
                prepared += 1
            except TypeError:
                asked.add(f"{topic} {name}")
            except asyncpg.PostgresSyntaxError:
                assert name == "by_index", "several, of which none returns rows"
    assert not asked
    assert prepared > 100
