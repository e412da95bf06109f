"""A job that SQL enqueues waits in the stream of its Python twin, and is refused where that is."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

import outlast
from outlast.client.task import Task
from outlast.errors import ConfigError
from outlast.model.limits import LimitSpec, needs_of, permit_id
from outlast.runner.main import announcement
from outlast.store.limits import DeclaredTask, NewLimit
from outlast.store.postgres.store import PostgresStore

KEYS = [
    "example.org",
    " ",
    "'; DROP TABLE outlast_jobs; --",
    '"quoted" \\ and \\" back \\\\ slashed',
    "$1 :name %s {} $$ \\u0000 \\x00",
    '",true]',
    "[1,2],true]",
    "\x01\x1f\x7f\t\n\r\b\f/",
    "\u0080\u0085\u2028\u2029\ufeff\uffff",
    "é e\u0301 Ä ß \u017f \u0131 \u0130 \u212a",
    "\U0001f600\U0010ffff",
    "日本語",
    "\U0001f600" * 500,
    "x" * 500,
]
COSTS = [1, 3, 3.0, 0.1, 1e-5, 1e-6, 1 / 3, 0.1 + 0.2, 123_456.7, 123_456.78, 999_999.999999, 1e6]

Session = Any


class Twins:
    """Enqueues the same call by SQL and by Python, and reads what each has stored."""

    def __init__(self, url: str, session: Session) -> None:
        self.app = outlast.App(url)
        self.session = session

    async def announce(self) -> None:
        """Let the store know what a worker of the application would announce."""
        told = announcement(self.app).limits
        store = await self.app.stores.store()
        assert await store.declare_limits(told.limits, told.tasks)

    async def by_sql(self, task: str, **given: Any) -> None:
        given = {name: json.dumps(v) if isinstance(v, dict) else v for name, v in given.items()}
        named = "".join(f", {name} => ${place}" for place, name in enumerate(given, 2))
        await self.session.execute(f"SELECT outlast_enqueue_v1($1{named})", task, *given.values())

    async def stored(self) -> dict[str, Any]:
        """Return what the newest job has of its stream, and delete it with its notice."""
        (job,) = await self.session.fetch(
            "DELETE FROM outlast_jobs RETURNING stream, needs, aged, priority, run_at"
        )
        notices = await self.session.fetch(
            "DELETE FROM outlast_notices RETURNING stream, ended, arrived, task, queue, permit"
        )
        place = None
        if job["aged"] is not None:  # how long before its due time, in ms
            place = round(job["run_at"] * 1000) - job["aged"]
        return {
            "stream": job["stream"],
            "needs": None if job["needs"] is None else needs_of(job["needs"]),
            "ordered": ",true]" in (job["needs"] or ""),
            "place": None if place is None else round(place / 10),
            "notices": [dict(row) for row in notices],
        }

    async def are_alike(self, task: Task[..., Any], **given: Any) -> dict[str, Any]:
        """Enqueue both; return what they have stored, which is the same."""
        await self.by_sql(task.name, **given)
        by_sql = await self.stored()
        await task.using(**given).enqueue()
        assert by_sql == await self.stored()
        return by_sql


@pytest.fixture
async def twins(pg_url: str, session: Session) -> AsyncIterator[Twins]:
    made = Twins(pg_url, session)
    yield made
    await made.app.close()


def nothing() -> None:
    pass


async def test_ids_are_the_same_for_each_text(pg_url: str, session: Session) -> None:
    dice = random.Random(1)
    code_points = [*range(1, 0xD800), *range(0xE000, 0x110000)]
    texts = ["".join(map(chr, dice.choices(code_points, k=dice.randrange(9)))) for _ in range(2000)]
    pairs = [*itertools.product(KEYS, ["", *KEYS]), *zip(texts, texts[::-1], strict=True)]
    names, keys = zip(*pairs, strict=True)
    rows = await session.fetch(
        "SELECT outlast_hash_v1('permit', u.name, u.key) AS id"
        " FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (name, key, n) ORDER BY u.n",
        names,
        keys,
    )
    ids = [row["id"] for row in rows]
    assert ids == [permit_id(name, key) for name, key in pairs]
    assert 0 <= min(ids) < max(ids) < 2**63


async def test_a_job_by_sql_waits_where_its_twin_of_python_does(twins: Twins) -> None:
    app = twins.app
    rated: Any = {"rate": "1000000/s", "burst": 1_000_000.0}
    one = app.limit("one", running=3)
    dear = app.limit('d\\ear"\u00e9%s', **rated)
    account = app.limit("account", running=2, per="tenant")
    host = app.limit("host", running=2, per="limit_key", **rated)
    turn = app.limit("turn", running=1, per="limit_key", ordered=True)
    mine = app.limit("mine", running=1, per="tenant", ordered=True)

    plain = app.task(name="plain")(nothing)
    keyed = app.task(name='k"\\eyéd', limits=[one, host, account])(nothing)
    costly = app.task(name="costly", limits=[dear, one])(nothing)
    ordered = app.task(name="ordered", limits=[turn, one], priority=7)(nothing)
    own = app.task(name="own", limits=[mine, account], fair="tenant")(nothing)
    fair = app.task(name="fair", fair="tenant")(nothing)
    aging = app.task(name="aging", aging=60)(nothing)
    all_ = app.task(name="all", limits=[host, one], fair="tenant", aging=0.5)(nothing)
    await twins.announce()

    assert (await twins.are_alike(plain))["stream"] is None
    streams = set()
    for key in KEYS:
        hosts = {"limit_keys": {"host": key}}
        for task, given in (
            (keyed, {"tenant": "acme", "priority": -3, **hosts}),
            (keyed, {"tenant": key, "queue": "größe", **hosts}),
            (ordered, {"limit_keys": {"turn": key}, "priority": 7}),
            (own, {"tenant": key}),
            (fair, {"tenant": key}),
            (all_, {"tenant": key, "priority": 100, **hosts}),
        ):
            found = await twins.are_alike(task, **given)
            streams.add(found["stream"])
            assert len(found["notices"]) == 1
    assert len(streams) == 6 * len(KEYS), "keys do not meet"
    await twins.are_alike(fair)
    for priority in (-100, 0, 100):
        found = await twins.are_alike(aging, priority=priority)
        assert found["place"] == priority * 6000
    seen = {}
    for cost in COSTS:
        seen[cost] = (await twins.are_alike(costly, cost={dear.name: cost}))["stream"]
    assert len({*seen.values()}) == len({*COSTS}), "costs that differ wait apart"
    due_later = await twins.are_alike(keyed, delay=60.0, tenant="a", limit_keys={"host": "a"})
    assert due_later["notices"] == [], "its arrival is noted when it is due"
    with_key = await twins.are_alike(fair, key="k")
    assert len(with_key["notices"]) == 1


async def test_what_python_refuses_is_refused(twins: Twins) -> None:
    app = twins.app
    rated = app.limit("rated", rate="1/s", burst=5, per="limit_key")
    one = app.limit("one", running=1)
    account = app.limit("account", running=1, per="tenant")
    turn = app.limit("turn", running=1, per="limit_key", ordered=True)
    plain = app.task(name="plain")(nothing)
    task = app.task(name="task", limits=[rated, one])(nothing)
    tenants = app.task(name="tenants", limits=[account])(nothing)
    ordered = app.task(name="ordered", limits=[turn, one], priority=2)(nothing)
    mixed = app.task(name="mixed", limits=[turn, rated])(nothing)
    costly = app.task(name="costly", limits=[turn, app.limit("r", rate="1/s", burst=5)])(nothing)
    await twins.announce()
    key, turns = {"limit_keys": {"rated": "k"}}, {"limit_keys": {"turn": "k"}}
    for each, given, words in (
        (plain, key, "under no limit per limit_key called 'rated'"),
        (plain, {"cost": {"one": 1}}, "under no limit with a rate called 'one'"),
        (task, {}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {}}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {"rated": ""}}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {"rated": "k" * 501}}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {"rated": 1}}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {"rated": None}}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {"rated": ["k"]}}, "is under 'rated', a limit per limit_key"),
        (task, {"limit_keys": {"rated": "k", "x": "k"}}, "no limit per limit_key called 'x'"),
        (task, {"limit_keys": {"rated": "k", "one": "k"}}, "no limit per limit_key called 'one'"),
        (task, {**key, "cost": {"rated": 5.5}}, "a cost of 5.5 is above the burst of 'rated', 5"),
        (task, {**key, "cost": {"rated": 0}}, "the cost of 'rated' must be a number from"),
        (task, {**key, "cost": {"rated": 9e-7}}, "the cost of 'rated' must be a number from"),
        (task, {**key, "cost": {"rated": -1}}, "the cost of 'rated' must be a number from"),
        (task, {**key, "cost": {"rated": 1e7}}, "the cost of 'rated' must be a number from"),
        (task, {**key, "cost": {"rated": "1"}}, "the cost of 'rated' must be a number from"),
        (task, {**key, "cost": {"rated": True}}, "the cost of 'rated' must be a number from"),
        (task, {**key, "cost": {"one": 1}}, "under no limit with a rate called 'one'"),
        (tenants, {}, "is under 'account', a limit per tenant"),
        (ordered, {**turns, "priority": 1}, "is under an ordered limit"),
        (
            mixed,
            {"limit_keys": {"turn": "k", "rated": "k"}},
            "the ordered limit 'turn': jobs of other",
        ),
        (costly, {**turns, "cost": {"r": 2}}, "the ordered limit 'turn': jobs of other costs"),
    ):
        with pytest.raises(ConfigError):
            await each.using(**given).enqueue()
        with pytest.raises(asyncpg.InvalidParameterValueError) as told:
            await twins.by_sql(each.name, **given)
        assert words in str(told.value), (each, given)
    for wrong in ('["k"]', '"k"', "7", "null", '{"rated": "' + "k" * 65_536 + '"}'):
        for name in ("limit_keys", "cost"):
            with pytest.raises(asyncpg.InvalidParameterValueError, match=name):
                await twins.by_sql("task", **{name: wrong})
    for wrong in ("", "{", '{"rated": "\\u0000"}', '{"rated": "\\ud800"}'):
        with pytest.raises(asyncpg.DataError):
            await twins.by_sql("task", limit_keys=wrong)
    assert await twins.session.fetch("SELECT FROM outlast_jobs") == []
    assert await twins.session.fetch("SELECT FROM outlast_notices") == []


async def test_a_task_or_limit_that_no_worker_has_announced_is_refused(
    twins: Twins, pg_url: str
) -> None:
    """Its jobs would run without limits, or by those of another spec."""
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="no worker has announced"):
        await twins.by_sql("task")
    store = PostgresStore(pg_url)
    await store.open()
    await store.declare_limits([], [DeclaredTask("task", ("a",))])
    with pytest.raises(asyncpg.PostgresError, match="the limit 'a' is not known yet"):
        await twins.by_sql("task")
    await store.declare_limits([NewLimit("a", LimitSpec(running=1))])
    await twins.by_sql("task")
    await store.close()


async def test_no_setting_of_the_caller_changes_a_stream(twins: Twins) -> None:
    dear = twins.app.limit("dear", rate="9/s", burst=9)
    task = twins.app.task(name="task", limits=[dear])(nothing)
    await twins.announce()
    await twins.session.execute(
        "SET extra_float_digits = -15; SET standard_conforming_strings = off;"
        " SET escape_string_warning = off; SET bytea_output = 'escape'"
    )
    await twins.are_alike(task, cost={"dear": 1 / 3})
