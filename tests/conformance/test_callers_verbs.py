"""Each public verb that takes a connection, on each kind of connection: nothing of it is there
after the caller's rollback, all of it after the caller's commit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

import outlast
from outlast import RESULT, RESULTS, Attempt, Job, ScheduleNotFound, chain, ended, group
from outlast.base.sync import blocking
from tests.conformance import shop_kit
from tests.conformance.connections_kit import (
    AsyncSqlalchemySession,
    Caller,
    Plain,
    SqlalchemySession,
    Sqlite3,
)
from tests.conformance.shop_kit import Shop, chief_kinds, plainest, write

kind = shop_kit.kind
shop = shop_kit.shop
caller = shop_kit.caller


@dataclass
class Known:
    """The shop, with what was committed before the caller's transaction: a job, an attempt and the
    schedule ``known``."""

    shop: Shop
    job: Job[Any]
    attempt: Attempt

    @property
    def app(self) -> outlast.App:
        return self.shop.app

    @property
    def mail(self) -> outlast.Task[Any, Any]:
        return self.shop.mail


Verb = Callable[[Known, Any], Coroutine[Any, Any, object]]


def using(**options: Any) -> Verb:
    """A call with these options; those that are functions are called with what is known."""

    async def enqueue(known: Known, connection: Any) -> None:
        made = {name: each(known) if callable(each) else each for name, each in options.items()}
        await known.mail.using(connection=connection, **made).enqueue("a")

    return enqueue


def flow(make: Callable[[Any], Any]) -> Verb:
    return lambda known, c: known.app.enqueue(make(known.mail), name="flow", connection=c)


async def enqueue_many(known: Known, connection: Any) -> None:
    mail = known.mail.using(connection=connection)
    calls = [mail.call("a"), mail.using(key="many").call("b"), mail.using(delay=60).call("c")]
    await known.app.enqueue_many(calls)


async def on_commit(known: Known, session: Any) -> None:
    known.app.on_commit(session, known.mail.using(key="c").call("a"))


async def delete_schedule(known: Known, connection: Any) -> None:
    await known.app.schedules.delete("known", connection=connection)
    with pytest.raises(ScheduleNotFound):
        await known.app.schedules.delete("known", connection=connection)


VERBS: dict[str, dict[str, Verb]] = {
    "BoundTask.using": {
        "plain": using(),
        "delay, labels, expiry": using(delay=60, labels=["l"], expires=600),
        "key": using(key="k"),
        "debounce": using(key="d", debounce=5),
        "replace": using(key="r", on_conflict="replace"),
        "replace one that waits": using(key="known", on_conflict="replace"),
        "once_per": using(key="o", once_per=3600),
        "after": using(after=lambda known: known.job),
        "after an end": using(key="e", after=lambda known: ended(known.job)),
        "then": using(then=lambda known: known.mail.call(RESULT)),
        "on_dead": using(key="x", on_dead=lambda known: known.mail.using(key="y").call("b")),
    },
    "App.enqueue_many": {"mixed": enqueue_many},
    "App.enqueue": {
        "chain": flow(lambda mail: chain(mail.call("a"), mail.call(RESULT))),
        "group": flow(lambda mail: group(mail.call(str(i)) for i in range(3))),
        "group with keys, then": flow(
            lambda mail: group([mail.using(key="g").call("a"), mail.call("b")]).then(
                mail.call(RESULTS)
            )
        ),
    },
    "App.on_commit": {"on_commit": on_commit},
    "App.send_event": {"an event": lambda known, c: known.app.send_event("e", 1, connection=c)},
    "Schedules.put": {
        "a new one": lambda known, c: known.app.schedules.put(
            "new", known.mail.call("a"), every=600, connection=c
        ),
        "a change": lambda known, c: known.app.schedules.put(
            "known", known.mail.call("b"), every=600, connection=c
        ),
    },
    "Schedules.delete": {"a known one": delete_schedule},
    "Attempt.step_in": {"a step": lambda known, c: known.attempt.step_in(c, "s", make_value)},
    "Attempt.complete_in": {"an end": lambda known, c: known.attempt.complete_in(c, 7)},
}


def make_value() -> int:
    return 1


def test_each_public_verb_that_takes_a_connection_is_tried():
    takes = {
        verb.__qualname__.removesuffix("_sync")
        for name in outlast.__all__
        if inspect.isclass(kind := getattr(outlast, name))
        for verb in vars(kind).values()
        if inspect.isfunction(verb)
        and {"connection", "session"} & inspect.signature(verb).parameters.keys()
        and not verb.__name__.startswith("_")
    }
    # enqueue_many and those of a task take the connection of a call
    assert takes == VERBS.keys() - {"App.enqueue_many"}


@pytest.mark.slow_but("Asyncpg-pg", "-sqlite")  # a driver of each store, and each ORM
@chief_kinds
async def test_a_verb_is_part_of_the_callers_transaction(shop: Shop, caller: Caller):
    attempt, _ = await shop.attempt()
    await shop.app.schedules.put("known", shop.mail.call("a"), every=600)
    job = await shop.mail.using(key="known", on_conflict="replace").enqueue("known")
    known = Known(shop, job, attempt)
    verbs = {name: verb for cases in VERBS.values() for name, verb in cases.items()}
    if not isinstance(caller, (SqlalchemySession, AsyncSqlalchemySession)):
        del verbs["on_commit"]
    failed = {}
    for name, verb in verbs.items():
        try:
            await try_verb(known, caller, verb)
        except Exception as error:
            failed[name] = error
            await caller.call(caller.rollback)
    assert failed == {}


async def try_verb(known: Known, caller: Caller, verb: Verb) -> None:
    before = await seen(known.shop)
    for end in (caller.rollback, caller.commit):
        await write(caller)
        if isinstance(caller, Plain):
            await caller.call(blocking(verb), known, caller.connection)
        else:
            await verb(known, caller.connection)
        assert await seen(known.shop) == before
        await caller.call(end)
        after = await seen(known.shop)
        assert (after == before) == (end == caller.rollback)
        assert (ours(after) == ours(before)) == (end == caller.rollback)
        known.attempt._steps.clear()  # the rollback has undone the step


def ours(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What the verb has written, without the caller's own row."""
    return [row for row in rows if row[0] != "orders"]


SEEN = {
    "orders": "id",
    "outlast_jobs": "id, state, args",
    "outlast_labels": "job_id, label",
    "outlast_windows": "key, job_id",
    "outlast_dependencies": "job_id, upstream_id, wants",
    "outlast_schedules": "name, version",
    "outlast_events": "name, value",
    "outlast_steps": "job_id, name, value",
}


async def seen(shop: Shop) -> list[tuple[Any, ...]]:
    """What another connection sees of all that these verbs write."""
    found: list[tuple[Any, ...]] = []
    async with plainest(shop.url) as other:
        for table, columns in SEEN.items():
            statement = f"SELECT {columns} FROM {table} ORDER BY 1"
            if isinstance(other, Sqlite3):
                rows = await other.call(lambda: other.connection.execute(statement).fetchall())  # noqa: B023
            else:
                rows = await other.connection.fetch(statement)
            found += [(table, *row) for row in rows]
    return found
