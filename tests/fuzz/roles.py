"""Roles with less than a worker's rights: any values in the columns that they have, any arguments
of the function that they may call, any key of a schedule. What they may not do is refused, and
workers, schedules and pages go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from hypothesis import strategies as st

from harness.stores import opened
from outlast.base.clock import SYSTEM
from outlast.insight.schedules import schedule_document
from outlast.store.limits import DeclaredTask
from outlast.store.new_rows import STORED
from outlast.store.protocol import Store
from outlast.store.values import Purpose
from outlast.worker.maintenance.scheduler import Scheduler
from tests.conformance.hostile_kit import Raw, raw, shows, victims, works_on
from tests.conformance.kit import TASK
from tests.conformance.schedules_kit import put_one
from tests.fuzz.kit import SECONDS, Fuzzer
from tests.fuzz.rows import literals
from tests.unit.worker.maintenance.scheduler_kit import Code
from tests.unit.worker.worker_kit import FakeOwner
from tests.web.kit import page_on

ROLES = [Purpose.ENQUEUE, Purpose.PRODUCE, Purpose.VIEW]
SOUND = {
    "task": f"'{TASK}'",
    "queue": "'default'",
    "args": "'{}'",
    "policy": "'{}'",
    "run_at": "0",
    "enqueued_at": "0",
    "position": "nextval('outlast_position_seq')",
}
OF_A_SCHEDULE = ["name", "call", "spec", "overlap", "catch_up", "grace", "origin", "version",
                 "revision", "paused", "declared", "declared_at", "since", "next_tick", "owed",
                 "last_tick", "last_job", "fired", "skipped", "missed"]  # fmt: skip
KEYS = ["outlast:schedule:nightly", "outlast:backfill:nightly", "schedule:nightly"]
FORBIDDEN = [
    "UPDATE outlast_jobs SET queue = 'x'",
    "DELETE FROM outlast_jobs",
    "INSERT INTO outlast_jobs (id, task) VALUES (7, 't')",
    "INSERT INTO outlast_attempts (token) VALUES (1)",
    "UPDATE outlast_workers SET epoch = 0",
    "DELETE FROM outlast_labels",
    "INSERT INTO outlast_pauses (kind, name, paused_at) VALUES ('all', '', 0)",
    "SELECT setval('outlast_token_seq', 9223372036854775807)",
    "SELECT setval('outlast_position_seq', 9223372036854775807)",
    "SELECT nextval('outlast_token_seq')",
    "UPDATE outlast_actions SET reason = ''",
    "TRUNCATE outlast_jobs",
    "ALTER TABLE outlast_jobs DISABLE TRIGGER ALL",
    "DELETE FROM outlast_schedules",
    *[
        f"LOCK TABLE outlast_{table} IN {mode} MODE; SELECT 1"  # two: LOCK wants a transaction
        for table in ("jobs", "schedules", "workers", "pauses", "labels", "attempts", "history")
        for mode in ("SHARE UPDATE EXCLUSIVE", "ACCESS EXCLUSIVE")
    ],
]
values = literals("postgres")
keys = st.sampled_from(KEYS).map(lambda one: f"'{one}'") | values
policies = st.sampled_from(
    ["""'{"schedule":"nightly","tick":1.0}'""", """'{"schedule":"nightly","tick":1e300}'"""]
)


def _given(names: Sequence[str], most: int) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(names), values, max_size=most)


def _insert(odd: dict[str, str]) -> str:
    row = {**SOUND, **odd}
    return f"INSERT INTO outlast_jobs ({', '.join(row)}) VALUES ({', '.join(row.values())})"


def _call(given: dict[str, str]) -> str:
    told = ", ".join(f"{name} => {value}" for name, value in {"task": "'t'", **given}.items())
    return f"SELECT outlast_enqueue_v1({told})"


statements = st.one_of(
    st.builds(lambda odd: (Purpose.ENQUEUE, _insert(odd)), _given(STORED, 4)),
    st.builds(
        lambda key, policy: (Purpose.ENQUEUE, _insert({"key": key, "policy": policy})),
        keys,
        policies | values,
    ),
    st.builds(
        lambda job, label: (
            Purpose.ENQUEUE,
            f"INSERT INTO outlast_labels (job_id, label) VALUES ({job}, {label})",
        ),
        st.just("1") | values,
        values,
    ),
    st.builds(
        lambda odd: (
            Purpose.ENQUEUE,
            "UPDATE outlast_schedules SET " + ", ".join(f"{k} = {v}" for k, v in odd.items()),
        ),
        _given(OF_A_SCHEDULE, 4).filter(bool),
    ),
    st.builds(
        lambda given: (Purpose.PRODUCE, _call(given)),
        _given(
            ["task", "args", "queue", "priority", "delay", "run_at", "expires_at", "key", "tenant",
             "retries", "timeout", "limit_keys", "cost"], 5),
    ),
    st.builds(lambda key: (Purpose.PRODUCE, _call({"key": key})), keys),
    st.tuples(st.sampled_from(ROLES), st.sampled_from(FORBIDDEN)),
    st.tuples(st.just(Purpose.VIEW), values.map(lambda one: _insert({"queue": one}))),
)  # fmt: skip


def roles_write(deeds: list[tuple[Purpose, str]], url: str) -> None:
    """Each does what it may; then work goes on."""
    asyncio.run(_roles_write(deeds, url))


async def _roles_write(deeds: list[tuple[Purpose, str]], url: str) -> None:
    async with asyncio.timeout(2 * SECONDS), AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(url))
        await store.declare_limits([], [DeclaredTask("t")])
        owner = await stack.enter_async_context(raw(url))
        await _prepare(store, owner)
        ids = [job_id for (job_id,) in await victims(store, 1)]
        await put_one(store)
        roles = {
            role: await stack.enter_async_context(raw(url.replace("postgres@", f"{_name(role)}@")))
            for role in {role for role, _ in deeds}
        }
        for role, statement in deeds:
            taken = await roles[role].run(statement)
            assert not (taken and (statement in FORBIDDEN or role is Purpose.VIEW)), statement
        await _goes_on(store, ids)


def _name(role: Purpose) -> str:
    return f"outlast_fuzz_{role.value}"


async def _prepare(store: Store, owner: Raw) -> None:
    for table in ("jobs", "attempts", "workers", "schedules", "labels"):
        assert await owner.run(f"DELETE FROM outlast_{table}")
    for role in ROLES:
        if await owner.run(f"CREATE ROLE {_name(role)} LOGIN") or not await owner.rows(
            f"SELECT 1 FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid"
            f" JOIN pg_database b ON b.oid = d.dbid"
            f" WHERE r.rolname = '{_name(role)}' AND b.datname = current_database()"
        ):
            await store.grant(_name(role), role)


async def _goes_on(store: Store, ids: list[int]) -> None:
    """Schedules are fired, jobs run, all pages are there."""
    scheduler = Scheduler(FakeOwner(), store, Code([]), SYSTEM)  # type: ignore[arg-type]
    scheduler.take_look(await store.observe())
    await scheduler.run_once()
    for row in await store.inspector.schedules():
        schedule_document(row)
    await works_on(store)
    await shows(store, ids)
    async with page_on(store.url) as page:
        for path in ("/", "/jobs", "/schedules", "/queues", "/tasks", "/dead", "/system"):
            answer = await page.get(path)
            assert answer.status_code == 200, (path, answer.text)
            document = await page.get(f"/api/v1{path}")
            assert document.status_code in {200, 404}, (path, document.text)


FUZZERS = [
    Fuzzer(
        "rows of lesser roles",
        st.lists(statements, min_size=1, max_size=8),
        roles_write,
        few=4,
        database=True,
    )
]
