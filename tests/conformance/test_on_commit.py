"""``app.on_commit``: calls that a session of SQLAlchemy stores in its own commit, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

import outlast
from outlast.errors import ConnectionMismatch, KeyInUse, UsageError
from tests.conformance import shop_kit
from tests.conformance.connections_kit import (
    AsyncSqlalchemySession,
    Awaited,
    Caller,
    Django,
    Sqlalchemy,
    SqlalchemyScoped,
    SqlalchemySession,
    of_library,
    opened,
)
from tests.conformance.shop_kit import Shop, make_orders, of, orders

kind, shop, caller = shop_kit.kind, shop_kit.shop, shop_kit.caller
every_session = of(SqlalchemySession, AsyncSqlalchemySession)
INSERT = sqlalchemy.text("INSERT INTO orders VALUES (1)")


class Base(sqlalchemy.orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(primary_key=True)


class Session:
    """The inner session of either kind, and its application; ``run`` calls code where it may be."""

    def __init__(self, shop: Shop, caller: Caller) -> None:
        self.shop, self.caller = shop, caller

    async def run(self, use: Callable[[Any], Any]) -> Any:
        if isinstance(self.caller, Awaited):
            return await self.caller.connection.run_sync(use)
        return await self.caller.call(use, self.caller.connection)

    def hand_in(self, to: str, **options: Any) -> Callable[[Any], None]:
        call = self.shop.mail.using(**options).call(to)
        return lambda session: self.shop.app.on_commit(session, call)

    async def stored(self) -> list[str]:
        return [args[7:-2] for args in await self.shop.jobs()]


@pytest.fixture
async def session(shop: Shop, caller: Caller) -> Session:
    return Session(shop, caller)


@every_session
async def test_calls_are_stored_by_the_commit_in_their_order(
    shop: Shop, caller: Caller, session: Session
):
    def work() -> None:  # with an asynchronous session, too, there is nothing to await
        shop.app.on_commit(caller.connection, shop.mail.call("a"))
        shop.app.on_commit(caller.connection, shop.mail.using(priority=9).call("b"))

    await caller.call(work)
    await session.run(lambda it: it.execute(INSERT))
    assert await session.stored() == []
    await caller.call(caller.commit)
    assert (await session.stored(), await orders(shop)) == (["a", "b"], 1)


@every_session
@pytest.mark.parametrize("end", ["rollback", "close"])
async def test_what_is_not_committed_leaves_no_job(shop: Shop, session: Session, end: str):
    await session.run(session.hand_in("a"))
    await session.run(lambda it: it.execute(INSERT))
    await session.run(lambda it: getattr(it, end)())
    await session.run(session.hand_in("b"))
    await session.run(lambda it: it.commit())
    assert (await session.stored(), await orders(shop)) == (["b"], 0)


@every_session
async def test_two_commits_of_one_session_store_each_call_once(session: Session):
    for to in ("a", "b"):
        await session.run(session.hand_in(to))
        await session.run(lambda it: it.commit())
    await session.run(lambda it: it.commit())
    assert await session.stored() == ["a", "b"]


@every_session
async def test_a_call_goes_with_the_savepoint_in_which_it_was_handed_over(session: Session):
    def work(it: Any) -> None:
        session.hand_in("outer")(it)
        with it.begin_nested():
            session.hand_in("released")(it)
            undone = it.begin_nested()
            session.hand_in("undone")(it)
            undone.rollback()
        undone = it.begin_nested()
        with it.begin_nested():
            session.hand_in("released in one that is undone")(it)
        undone.rollback()
        session.hand_in("after")(it)

    await session.run(work)
    await session.run(lambda it: it.commit())
    assert sorted(await session.stored()) == ["after", "outer", "released"]


@every_session
async def test_a_savepoint_that_cannot_be_released_takes_no_outer_call_along(session: Session):
    """It is stored in the savepoint, which is about to be committed, and which then fails."""

    def work(it: Any) -> None:
        def refuse(*_: Any) -> None:
            raise ValueError("no flush today")

        session.hand_in("outer")(it)
        sqlalchemy.event.listen(it, "before_flush", refuse)
        with pytest.raises(ValueError, match="no flush"):  # noqa: SIM117
            with it.begin_nested():
                session.hand_in("inner")(it)
                it.add(Order(id=1))
        sqlalchemy.event.remove(it, "before_flush", refuse)
        it.commit()

    await session.run(work)
    assert await session.stored() == ["outer"]


@every_session
async def test_the_commit_of_all_also_commits_a_savepoint_that_is_open(session: Session):
    def work(it: Any) -> None:
        whole = it.begin()
        session.hand_in("outer")(it)
        it.begin_nested()
        session.hand_in("inner")(it)
        whole.commit()

    await session.run(work)
    assert await session.stored() == ["outer", "inner"]


@every_session
async def test_a_key_that_is_taken_refuses_the_commit(shop: Shop, session: Session):
    post = shop.app.task(name="post")(lambda to: None)
    await shop.mail.using(key="k").enqueue("holder")
    free = sqlalchemy.text("DELETE FROM outlast_jobs WHERE key = 'k'")

    def work(it: Any) -> None:
        it.execute(INSERT)
        session.hand_in("a")(it)
        shop.app.on_commit(it, post.using(key="k").call("b"))
        with pytest.raises(KeyInUse):
            it.commit()

    await session.run(work)
    assert await session.stored() == ["holder"]
    await session.run(lambda it: it.execute(free))
    await session.run(lambda it: it.commit())  # what could not be stored has waited
    assert (sorted(await session.stored()), await orders(shop)) == (["a", "b"], 1)


@every_session
async def test_another_hook_that_fails_once_does_not_double_a_call(session: Session):
    fails = [ValueError("not yet")]

    def refuse_once(_: Any) -> None:
        if fails:
            raise fails.pop()

    def work(it: Any) -> None:
        sqlalchemy.event.listen(it, "before_commit", refuse_once)
        session.hand_in("a")(it)
        with pytest.raises(ValueError, match="not yet"):
            it.commit()
        session.hand_in("b")(it)
        it.commit()

    await session.run(work)
    assert await session.stored() == ["a", "b"]


@every_session
async def test_a_hook_of_the_flush_may_hand_in_calls(shop: Shop, session: Session):
    """That flush is a part of the commit, and comes after ``before_commit``."""

    def inserted(it: Any, *_: Any) -> None:
        session.hand_in(f"order {[order.id for order in it.new]}")(it)

    def work(it: Any) -> None:
        session.hand_in("a")(it)
        sqlalchemy.event.listen(it, "after_flush", inserted)
        it.add(Order(id=7))
        it.commit()

    await session.run(work)
    assert (await session.stored(), await orders(shop)) == (["a", "order [7]"], 1)


@every_session
async def test_the_first_call_of_all_may_come_from_a_hook_of_the_flush(
    shop: Shop, session: Session
):
    def work(it: Any) -> None:
        sqlalchemy.event.listen(it, "after_flush", lambda it, _: session.hand_in("a")(it))
        it.add(Order(id=7))
        it.commit()

    await session.run(work)
    assert (await session.stored(), await orders(shop)) == (["a"], 1)


@every_session
async def test_a_transaction_that_has_ended_takes_no_call(session: Session):
    said: list[Any] = []

    def hand_in(it: Any, *_: Any) -> None:
        with pytest.raises(UsageError, match="has ended or failed"):
            session.hand_in("a")(it)
        said.append(it)

    def work(it: Any) -> None:
        sqlalchemy.event.listen(it, "after_commit", hand_in)
        it.execute(INSERT)
        it.commit()

    await session.run(work)
    assert (len(said), await session.stored()) == (1, [])


@every_session
async def test_a_call_that_comes_too_late_is_an_error(session: Session):
    def work(it: Any) -> None:
        session.hand_in("a")(it)
        sqlalchemy.event.listen(it, "before_commit", session.hand_in("late"))
        with pytest.raises(UsageError, match="1 jobs were not stored"):
            it.commit()
        it.close()

    await session.run(work)
    assert await session.stored() == ["a"]


@of(SqlalchemySession)
async def test_a_plain_session_may_be_used_on_an_event_loop(shop: Shop):
    await make_orders(shop.url)
    engine = sqlalchemy.create_engine(of_library(shop.url, "psycopg"))
    fresh = outlast.App(shop.url)
    mail = fresh.task(name="mail")(lambda to: None)
    with closing(sqlalchemy.orm.Session(engine)) as session:
        fresh.on_commit(session, mail.call("a"))
        session.commit()
    engine.dispose()
    assert await shop.jobs() == ['{"to":"a"}']
    await fresh.close()


@of(SqlalchemySession)
async def test_a_scoped_session_is_that_of_its_scope(shop: Shop):
    async with opened(SqlalchemyScoped, shop.url) as caller:
        registry = caller.connection

        def work() -> None:
            shop.app.on_commit(registry, shop.mail.call("a"))
            registry.commit()

        await caller.call(work)
    assert await shop.jobs() == ['{"to":"a"}']


@of(Sqlalchemy, Django)
async def test_what_has_no_such_commit_is_refused(shop: Shop, caller: Caller):
    with pytest.raises(UsageError, match=r"takes a Session.*using\(connection"):
        shop.app.on_commit(caller.connection, shop.mail.call("a"))


@of(AsyncSqlalchemySession)
async def test_a_call_that_cannot_be_part_of_it_is_refused(shop: Shop, caller: Caller):
    session, other = caller.connection, outlast.App(shop.url)
    strange = other.task(name="mail")(lambda to: None)
    for call, why in (
        (strange.call("a"), "of another application"),
        (shop.mail.using(connection=session).call("a"), "leave out connection"),
        (shop.mail, "takes a call"),
    ):
        with pytest.raises(UsageError, match=why):
            shop.app.on_commit(session, call)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="autobegin"):
        shop.app.on_commit(
            sqlalchemy_asyncio.AsyncSession(caller._engine, autobegin=False),  # type: ignore[attr-defined]
            shop.mail.call("a"),
        )
    with pytest.raises(ConnectionMismatch, match="does not know which engine"):
        shop.app.on_commit(sqlalchemy_asyncio.AsyncSession(), shop.mail.call("a"))
