"""Jobs that programs in other languages enqueue by SQL obey the same checks as ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import outlast
from outlast.base.config import check_job_key
from outlast.errors import ConfigError
from outlast.insight.verify import verify
from outlast.model.job import Policy
from outlast.model.limits import LimitSpec, Per
from outlast.store.limits import DeclaredTask, NewLimit
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from outlast.store.values import NewJob, OnKey
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually, job
from tests.conformance.limits_kit import limited, need, permit
from tests.conformance.schedules_kit import due_one, fire_one, firing, put_one
from tests.conformance.test_dependencies import DIES, drain, states
from tests.conformance.test_events import NAME, waits

MOMENTS = {"run_at", "expires_at"}
Refused = (sqlite3.Error, asyncpg.PostgresError)


class Client:
    """A program that knows SQL, and nothing of Outlast."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = url.removeprefix("sqlite:///")

        self.is_sqlite = url.startswith("sqlite")

    async def open(self) -> None:
        if self.is_sqlite:
            self.connection: Any = sqlite3.connect(self.path, isolation_level=None)
        else:
            self.connection = await asyncpg.connect(self.url)

    async def close(self) -> None:
        closing = self.connection.close()
        if closing is not None:
            await closing

    async def enqueue(self, **given: Any) -> None:
        names = ", ".join(given)
        if isinstance(self.connection, sqlite3.Connection):
            places = ", ".join("?" * len(given))
            statement = f"INSERT INTO outlast_enqueue_v1 ({names}) VALUES ({places})"
            values = [
                json.dumps(value) if isinstance(value, list) else value for value in given.values()
            ]
            self.connection.execute(statement, values)
            return
        places = ", ".join(f"{name} => ${place}" for place, name in enumerate(given, 1))
        values = [
            datetime.fromtimestamp(value, UTC) if name in MOMENTS else value
            for name, value in given.items()
        ]
        await self.connection.fetchval(f"SELECT outlast_enqueue_v1({places})", *values)

    async def send_event(self, name: object, value: str | None) -> None:
        if isinstance(self.connection, sqlite3.Connection):
            statement = "INSERT INTO outlast_send_event_v1 (name, value) VALUES (?, ?)"
            self.connection.execute(statement, (name, value))
            return
        await self.connection.fetchval("SELECT outlast_send_event_v1($1, $2)", name, value)


@pytest.fixture
async def client(store_url: str, store: Store) -> AsyncIterator[Client]:
    names = (TASK, "another", "any", "other")
    assert await store.declare_limits([], [DeclaredTask(name) for name in names])
    opened = Client(store_url)
    await opened.open()
    yield opened
    await opened.close()


async def newest(store: Store) -> StoredJob:
    return (await store.inspector.jobs(JobFilter()))[0]


def comparable(row: StoredJob) -> dict[str, Any]:
    varies = {"id", "run_at", "enqueued_at"}
    return {name: getattr(row, name) for name in row.__struct_fields__ if name not in varies}


@pytest.mark.parametrize(
    ("by_sql", "ours"),
    [
        ({}, {}),
        ({"args": '{"a": "\\u0000 \\ud83d\\ude00 \\\\ud800"}'}, {}),
        ({"queue": "q", "priority": -100, "key": "k ", "tenant": "ä"}, {}),
        ({"retries": 7, "timeout": 12.5}, {"policy": Policy(retries=7, timeout=12.5)}),
        ({"delay": 60.0}, {}),
        ({"run_at": 4_102_444_800.0, "expires_at": 4_102_444_900.0}, {}),
        ({"run_at": 1_000.0}, {}),
    ],
)
async def test_such_a_job_is_as_one_of_ours(
    store: Store, client: Client, by_sql: dict[str, Any], ours: dict[str, Any]
) -> None:
    await client.enqueue(task=TASK, **by_sql)
    row = await newest(store)
    assert (await store.cancel([row.id])) is not None  # so that its key is free
    own = {name: value for name, value in by_sql.items() if name not in {"retries", "timeout"}}
    await enqueued(store, job(**own, **ours))
    twin = await newest(store)
    assert twin.id > row.id
    await store.cancel([twin.id])
    stored, expected = await store.inspector.job(row.id), await store.inspector.job(twin.id)
    assert stored is not None
    assert expected is not None
    ends = {"ended_at": None}
    assert comparable(stored) | ends == comparable(expected) | ends
    assert stored.run_at - stored.enqueued_at == pytest.approx(
        expected.run_at - expected.enqueued_at, abs=60 if "run_at" in by_sql else 0.01
    )


async def test_it_is_claimed_in_its_turn_and_completed(
    store: Store, client: Client, hands: Hands
) -> None:
    await enqueued(store, job(args='{"n":1}'))
    await client.enqueue(task=TASK, args='{"n":2}')
    await enqueued(store, job(args='{"n":3}'))
    claimed = await hands.claim()
    assert [json.loads(one.args)["n"] for one in claimed] == [1, 2, 3]
    await hands.exchange(*map(ended, claimed))


@pytest.mark.parametrize("key", ["outlast:schedule:nightly", "outlast:backfill:nightly:7"])
async def test_the_keys_of_schedules_are_for_their_ticks_alone(
    store: Store, client: Client, key: str
) -> None:
    """A job with one would stop the schedule; one that looks as they did is any job's."""
    with pytest.raises(Refused, match="begins as the keys of schedules do"):
        await client.enqueue(task=TASK, key=key)
    with pytest.raises(ConfigError, match="begins as the keys of schedules do"):
        check_job_key(key)
    await put_one(store)
    await client.enqueue(task=TASK, key="schedule:nightly", delay=60)
    due = await due_one(store)
    answer = await fire_one(store, firing(due, due.since))
    assert answer.jobs != [None]


async def test_a_key_names_the_unfinished_job_of_the_task(store: Store, client: Client) -> None:
    (first,) = await enqueued(store, job(key="k"))
    await client.enqueue(task=TASK, key="k", args='{"other":1}')
    assert [row.id for row in await store.inspector.jobs(JobFilter())] == [first]
    with pytest.raises(Refused, match="the key belongs to"):
        await client.enqueue(task="another", key="k")
    with pytest.raises(Refused) as told:
        await client.enqueue(task="another", key="k")
    said = str(told.value)
    assert not re.search(rf"{TASK}|\d", said), "who may only enqueue learns nothing of the holder"
    await store.cancel([first])
    await client.enqueue(task="another", key="k")
    assert (await newest(store)).task == "another"


async def test_a_job_waits_for_others_as_one_of_ours(
    store: Store, client: Client, hands: Hands
) -> None:
    """For one that runs, has ended, dies; if its key is held, nothing waits."""
    done, dies, keyed = await enqueued(store, job(), job(policy=DIES), job(key="k"))
    (mine,) = await hands.claim(1)
    await hands.hand_in(ended(mine))
    await client.enqueue(task=TASK, after=[done, keyed], after_ended=[dies, done])
    waits = await newest(store)
    ours = await store.inspector.dependencies(waits.id)
    assert waits.state == "blocked"
    assert {(each.job_id, each.wants) for each in ours} == {(done, 0), (keyed, 0), (dies, 1)}
    await client.enqueue(task=TASK, after=[dies])
    doomed = await newest(store)
    await client.enqueue(task=TASK, key="k", after=[waits.id])
    assert (await newest(store)).id == doomed.id
    assert await drain(hands, dead=[dies]) == [dies, keyed, waits.id]
    assert await states(store, [doomed.id]) == ["cancelled"]
    assert not (await verify(store.inspector)).findings


async def test_a_key_counts_once_in_a_window_for_sql_and_python_alike(
    store: Store, client: Client, hands: Hands
) -> None:
    once = {"task": TASK, "key": "k", "once_per": 1e9}
    ours = job(key="k", on_key=OnKey(window=1e9))
    await client.enqueue(**once)
    first = await newest(store)
    await client.enqueue(**once)
    assert await enqueued(store, ours) == [first.id]
    await hands.hand_in(ended(await hands.claim_one()))
    await client.enqueue(**once)
    assert await enqueued(store, ours) == [first.id]
    assert (await newest(store)).id == first.id
    (other,) = await enqueued(store, job(key="other", on_key=OnKey(window=1e9)))
    await store.cancel([other])
    await client.enqueue(**once | {"key": "other"})
    assert (await newest(store)).id == other
    await client.enqueue(task=TASK, key="k")
    assert (await newest(store)).id != other
    short = {"task": TASK, "key": "short", "once_per": 1e-6}
    await client.enqueue(**short)
    before = (await newest(store)).id
    await store.cancel([before])
    async with asyncio.timeout(25):  # until the clock has moved on
        while (await newest(store)).id == before:
            await client.enqueue(**short)


async def test_nothing_is_left_of_a_transaction_that_is_rolled_back(
    store: Store, client: Client, store_url: str
) -> None:
    with contextlib.suppress(ZeroDivisionError):
        if store_url.startswith("sqlite"):
            client.connection.execute("BEGIN IMMEDIATE")
            await client.enqueue(task=TASK)
            client.connection.execute("ROLLBACK")
        else:
            async with client.connection.transaction():
                await client.enqueue(task=TASK)
                raise ZeroDivisionError
    assert await store.inspector.jobs(JobFilter()) == []


NEST = '{"a":' + "[" * 99 + "]" * 99 + "}"
TOO_DEEP = '{"a":' + "[" * 100 + "]" * 100 + "}"
WIDE = '{"a":[' + ",".join(["[1]"] * 500) + "]}"


async def test_arguments_at_their_limits_are_taken(store: Store, client: Client) -> None:
    large = '{"a":"' + "x" * 1_048_568 + '"}'
    for args in (NEST, WIDE, large, '{"a":1e308}', '{"a":[]}  ', '{"a":"[[["}'):
        await client.enqueue(task=TASK, args=args)
        assert (await newest(store)).args == args


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"args": "[]"}, "args must be a JSON object"),
    ({"args": '{"a":'}, "JSON|json"),
    ({"args": "{'a':1}"}, "JSON|json"),
    ({"args": '{"a":NaN}'}, "JSON|json"),
    ({"args": '{"a":1e400}'}, "out of range"),
    ({"args": '{"a":[-1e999]}'}, "out of range"),
    ({"args": '{"a":"\\ud800"}'}, "surrogate"),
    ({"args": '{"\\uDFFF":1}'}, "surrogate"),
    ({"args": '{"a":"\x01"}'}, "JSON|json"),
    ({"args": TOO_DEEP}, "100 levels deep"),
    ({"args": '{"a":"' + "x" * 1_048_570 + '"}'}, "bytes of JSON"),
    ({"task": ""}, "task must be"),
    ({"task": "a b"}, "task must be"),
    ({"task": "a,b"}, "task must be"),
    ({"task": "a\u2003b"}, "task must be"),
    ({"task": "x" * 201}, "task must be"),
    ({"task": None}, "task must be"),
    ({"task": "outlast.shell", "args": '{"command":["true"]}'}, "commands"),
    ({"task": "app.wrok"}, "no worker has announced this task"),
    ({"queue": "a\n"}, "queue must be"),
    ({"queue": ""}, "queue must be"),
    ({"key": ""}, "key must be"),
    ({"key": "k" * 501}, "key must be"),
    ({"tenant": ""}, "tenant must be"),
    ({"priority": 101}, "priority must be"),
    ({"priority": -101}, "priority must be"),
    ({"delay": -1.0}, "delay must be"),
    ({"delay": 3e11}, "delay must be"),
    ({"retries": -1}, "retries must be"),
    ({"timeout": 0.0}, "timeout must be"),
    ({"timeout": 1e12}, "timeout must be"),
    ({"expires_at": 1_000.0}, "expires_at must be"),
    ({"run_at": 4e9, "expires_at": 4e9}, "expires_at must be"),
    ({"key": "k", "once_per": 0.0}, "once_per must be seconds above 0"),
    ({"key": "k", "once_per": 1e12}, "once_per must be seconds above 0"),
    ({"once_per": 60.0}, "once_per needs a key"),
    ({"key": "k", "once_per": 60.0, "after": [1]}, "does not go with after"),
    ({"after": [99]}, "must name jobs that are there"),
    ({"after_ended": [99]}, "must name jobs that are there"),
]


async def refusal_of(client: Client, given: dict[str, Any]) -> str:
    try:
        await client.enqueue(**{"task": TASK} | given)
    except Refused as refused:
        return str(refused)
    return "taken"


async def test_what_ours_would_refuse_is_refused(store: Store, client: Client) -> None:
    told = [(wrong, why, await refusal_of(client, wrong)) for wrong, why in WRONG]
    assert [each for each in told if not re.search(each[1], each[2])] == []
    assert await store.inspector.jobs(JobFilter()) == []


async def test_a_worker_s_own_reader_takes_what_was_taken(store: Store, client: Client) -> None:
    """The other way round: what the SQL takes can be decoded."""
    app = outlast.App("sqlite:////nowhere.db")
    task = app.task(name="any")(lambda a=None, b=None: None)
    for args in (NEST, WIDE, '{"a":"\\u0000\\ud83d\\ude00", "b": 1e308, "a": 2}'):
        await client.enqueue(task="any", args=args)
        _, kwargs = task.signature.decode((await newest(store)).args)
        assert set(kwargs) <= {"a", "b"}


async def test_a_key_that_is_held_past_its_expiry_is_free(store: Store, client: Client) -> None:
    past = NewJob(task="t", key="k", expires_at=1e9)
    unkept = NewJob(task="t", key="l", expires_at=1e9, policy=Policy(keep=0.0))
    held, gone = await store.enqueue([past, unkept])
    for key, before in (("k", held), ("l", gone)):
        await client.enqueue(task="other", key=key)
        row = await newest(store)
        assert (row.task, row.key, row.id == before.job_id) == ("other", key, False)
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6, dead_older_than=None)
    assert await store.inspector.job(gone.job_id) is None


async def test_jobs_of_a_task_under_limits_never_run_beyond_them(
    store: Store, client: Client, hands: Hands
) -> None:
    """On SQLite, whose SQL cannot compute their stream, they are refused."""
    limits = [
        NewLimit("a", LimitSpec(running=2)),
        NewLimit("host", LimitSpec(per=Per.LIMIT_KEY, running=9)),
    ]
    await store.declare_limits(limits, [DeclaredTask(TASK, ("a", "host"))])
    ours = limited(need("a"), need("host", "k"))
    by_sql = {"limit_keys": '{"host": "k"}'}
    if client.is_sqlite:
        for task in (DeclaredTask("fair", fair=True), DeclaredTask("old", aging=1.0)):
            await store.declare_limits([], [task])
        for name in (TASK, "fair", "old"):
            said = await refusal_of(client, {"task": name})
            assert "SQL of SQLite cannot enqueue it" in said
        assert await store.inspector.jobs(JobFilter()) == []
        return
    await client.enqueue(task=TASK, **by_sql)
    await enqueued(store, ours)
    await client.enqueue(task=TASK, delay=0.01, **by_sql)
    await enqueued(store, ours)
    await client.enqueue(task=TASK, **by_sql)
    first = await eventually(lambda: hands.claim(9))
    assert len(first) == 2
    assert await hands.claim(9) == []
    assert (await permit(store, "a")).used == (await permit(store, "host", "k")).used == 2
    left = [*first]
    for _ in range(3):
        await hands.exchange(ended(left.pop()))
        left += await eventually(lambda: hands.claim(9))
        assert len(left) <= 2
    assert not (await verify(store.inspector)).findings


async def test_a_task_that_gets_or_loses_limits_is_known_as_it_is_now(
    store: Store, client: Client
) -> None:
    await store.declare_limits([NewLimit("a", LimitSpec(running=1))], [DeclaredTask(TASK, ("a",))])
    before = await refusal_of(client, {})
    assert before == "taken" or client.is_sqlite
    await store.declare_limits([], [DeclaredTask(TASK)])
    assert await refusal_of(client, {}) == "taken"
    if not client.is_sqlite:
        found = await client.connection.fetch(
            "SELECT stream IS NOT NULL FROM outlast_jobs ORDER BY id"
        )
        assert [row[0] for row in found] == [True, False]


async def test_workers_announce_their_tasks(
    store: Store, client: Client, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    app = outlast.App(store_url)
    a = app.limit("a", running=1, per="limit_key")
    app.task(name="new", aliases=["old"])(lambda: None)
    app.task(name="limited", limits=[a])(lambda: None)

    async def taken() -> bool:
        return await refusal_of(client, {"task": "old"}) == "taken"

    assert "no worker has announced" in await refusal_of(client, {"task": "new"})
    async with app.worker():
        await eventually(taken)
        given = {"task": "limited", "limit_keys": '{"a": "k"}'}
        assert client.is_sqlite or await refusal_of(client, given) == "taken"

        async def all_done() -> bool:
            return all(row.state == "completed" for row in await store.inspector.jobs(JobFilter()))

        await eventually(all_done)
    await app.close()
    assert client.is_sqlite or (await permit(store, "a", "k")).used == 0


async def test_sql_sends_events_of_json_alone(store: Store, hands: Hands, client: Client) -> None:
    await enqueued(store)
    await hands.hand_in(waits(await hands.claim_one()))
    values = ("", "1, 2", '1], "b": [2', "nope", "1e999", f"{'[' * 101}{']' * 101}", '"\\ud800"')
    for name, value in [*((NAME, value) for value in values), ("", "1"), ("x" * 191, "1")]:
        with pytest.raises(Refused):
            await client.send_event(name, value)
    assert await hands.claim() == []
    await client.send_event(NAME, '{"by": "ada"}')
    await client.send_event(NAME, "2")
    assert await store.find_event(NAME) == '[{"by": "ada"}]'
    assert len(await hands.claim()) == 1
    for name in ("a\nb", "a\u00a0b", "a\u2028b"):
        with pytest.raises(Refused, match="printable"):
            await client.send_event(name, "1")
