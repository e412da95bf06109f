"""A bad row stops no worker: each column with each hostile value, then all verbs and documents."""

from __future__ import annotations

import contextlib
import json
from itertools import product
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

import outlast
from outlast.errors import OutlastError
from outlast.insight.bulk import actions_document, go_on, list_actions
from outlast.insight.limits import explain, next_start, spec_text
from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec
from outlast.model.pause import PauseKind
from outlast.store.actions import Bulk, Note
from outlast.store.limits import DeclaredTask, Hold, NewLimit, SetLimit
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.schedules import Put
from outlast.store.values import Answer, NewPause
from tests.conformance import hostile_kit
from tests.conformance.hostile_kit import raw, shows, victims, works_on
from tests.conformance.kit import (
    Hands,
    crashed,
    ended,
    enqueued,
    eventually,
    job,
    lost_worker,
    reap,
)
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.schedules_kit import fire_one, firing, put_one, schedule

T = TypeVar("T")
pytestmark = pytest.mark.slow_on("postgres")
JOBS = [
    "id", "task", "queue", "state", "priority", "position", "run_at", "enqueued_at", "requeued_at",
    "args", "policy", "timeout", "expires_at", "keep", "key", "tenant", "attempt_count", "failures",
    "losses",
    "solo", "incident", "token", "worker_id", "completed_by", "started_at", "ended_at",
    "hard_deadline", "cancel_requested", "progress", "checkpoint", "checkpoint_number",
    "checkpoint_at", "result", "fingerprint", "stack", "stack_at", "stream", "needs", "aged",
    "awaited",
]  # fmt: skip
ATTEMPTS = [
    "token", "job_id", "number", "worker_id", "worker", "host", "pid", "outcome", "charge",
    "message", "started_at", "ended_at", "progress", "checkpoint_age", "crash", "repeats",
    "dropped",
]  # fmt: skip
WORKERS = [
    "id", "name", "host", "pid", "boot_id", "status", "epoch", "beat", "heartbeat", "lease",
    "queues", "tasks", "tags", "lacks", "instance", "registration", "release", "started_at",
    "heartbeat_at", "lease_expires_at", "stopped_at", "cause", "begun", "drain_requested", "stacks",
    "presence", "presence_off", "wakeup", "failing", "failing_since",
    "acknowledged_pauses", "lock_path", "lock_device", "lock_inode",
]  # fmt: skip
SCHEDULES = [
    "name", "call", "spec", "overlap", "catch_up", "grace", "origin", "version", "versions",
    "revision", "paused", "declared", "declared_at", "since", "next_tick", "owed", "last_tick",
    "last_job", "fired", "skipped", "missed", "last_skip", "last_skip_job",
]  # fmt: skip
PAUSES = ["id", "kind", "name", "paused_at", "paused_by", "reason", "stop"]
LABELS = ["job_id", "label"]
ACTIONS = [
    "id", "at", "actor", "verb", "target", "job_id", "filter", "reason", "counts", "state",
    "expected", "up_to_id", "as_of", "before_id", "moved_at",
]  # fmt: skip
LOGS = ["token", "job_id", "number", "printed", "lines"]
DEPENDENCIES = ["job_id", "upstream_id", "wants", "state", "place"]
WINDOWS = ["key", "task", "job_id", "until"]


EVENTS = ["name", "value", "at"]
WAITS = ["job_id", "token", "event", "woken"]
STEPS = ["job_id", "name", "token", "value", "at"]
LIMITS = [
    "name", "declared", "own", "running", "spacing", "burst", "per", "held_until",
    "held_for", "recounted_at",
]  # fmt: skip
PERMITS = [
    "id", "name", "key", "used", "tat", "touched_at", "held_until", "own_running", "opens_at",
    "freed", "kept_for", "kept_until", "version",
]  # fmt: skip
STREAMS = [
    "id", "task", "queue", "rank", "needs", "tenant", "turn", "blocked", "idle", "touched_at",
    "permits", "costs", "ordered", "holder", "floor",
]  # fmt: skip
TASKS = ["name", "limits", "fair", "aging", "priority"]
TABLES = {
    "outlast_tasks": TASKS,
    "outlast_limits": LIMITS,
    "outlast_permits": PERMITS,
    "outlast_streams": STREAMS,
    "outlast_logs": LOGS,
    "outlast_steps": STEPS,
    "outlast_dependencies": DEPENDENCIES,
    "outlast_windows": WINDOWS,
    "outlast_events": EVENTS,
    "outlast_waits": WAITS,
    "outlast_labels": LABELS,
    "outlast_jobs": JOBS,
    "outlast_attempts": ATTEMPTS,
    "outlast_workers": WORKERS,
    "outlast_pauses": PAUSES,
    "outlast_schedules": SCHEDULES,
    "outlast_actions": ACTIONS,
}


def batched(columns: list[T], size: int) -> list[list[T]]:
    """One store for many columns: each value is in a row of its own."""
    return [columns[n : n + size] for n in range(0, len(columns), size)]


OTHERS = pytest.param(False, marks=[pytest.mark.slow, pytest.mark.long_on("postgres")])


@pytest.fixture(autouse=True, params=[True, OTHERS])
def _values(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column gets a quarter of the values; longer runs try the others as well."""
    values = {
        store: [each for n, each in enumerate(given) if (n % 4 == 0) == request.param]
        for store, given in hostile_kit.VALUES.items()
    }
    monkeypatch.setattr(hostile_kit, "VALUES", values)


async def test_each_column_is_among_those_below(store_url: str, store: Store) -> None:
    async with raw(store_url) as file:
        found = {table: await file.columns(table) for table in TABLES}
    assert all(found.values())
    unknown = {table: found[table] - {*columns} for table, columns in TABLES.items()}
    assert {table: names for table, names in unknown.items() if names} == {}


OF_JOBS = [("jobs", "id", column) for column in JOBS]
OF_ATTEMPTS = [("attempts", "job_id", column) for column in ATTEMPTS]


@pytest.mark.parametrize("columns", batched([*OF_JOBS, *OF_ATTEMPTS], 6))
async def test_no_value_in_the_row_of_a_job_or_attempt_stops_workers_or_documents(
    store_url: str, store: Store, columns: list[tuple[str, str, str]]
) -> None:
    spoilt: list[int] = []
    async with raw(store_url) as file:
        spoiling = [(*column, value) for column in columns for value in file.values]
        for jobs in await victims(store, len(spoiling)):
            for (table, job, column, value), job_id in zip(spoiling, jobs, strict=True):
                row = f"UPDATE outlast_{table} SET {column} = {value} WHERE {job} = {job_id}"
                if await file.run(row):
                    spoilt.append(job_id)
    await works_on(store)
    await shows(store, spoilt)


@pytest.mark.parametrize("end", [OutcomeKind.COMPLETED, OutcomeKind.CANCELLED])
async def test_no_time_to_keep_a_job_stops_its_end_or_that_of_others(
    store_url: str, store: Store, end: OutcomeKind
) -> None:
    """Else who may enqueue keeps all workers from claiming: expired jobs are ended first."""
    hands = await Hands.on(store)
    async with raw(store_url) as file:
        many = len(file.values)
        running = await enqueued(store, *[job()] * many)
        claimed = await hands.claim(many)
        cancelled = await enqueued(store, *[job(delay=9_999.0)] * many)
        expired = await enqueued(store, *[job(delay=9_999.0, expires_at=9e9)] * many)
        for ids in (running, cancelled, expired):
            for value, job_id in zip(file.values, ids, strict=True):
                await file.run(f"UPDATE outlast_jobs SET keep = {value} WHERE id = {job_id}")
        past = "expires_at = enqueued_at, run_at = enqueued_at"
        assert await file.run(f"UPDATE outlast_jobs SET {past} WHERE id >= {expired[0]}")
    answers = await hands.hand_in(*[ended(one, end) for one in claimed])
    assert set(answers) == {Answer.ACCEPTED}
    await store.cancel(cancelled)
    await works_on(store)
    queued = await store.inspector.job_ids(JobFilter(state=State.QUEUED))
    assert not {*running, *cancelled, *expired} & {*queued.ids}
    await shows(store, [*running, *cancelled, *expired])


@pytest.mark.parametrize("columns", batched(WORKERS, 12))
async def test_no_value_in_a_workers_row_stops_others_or_documents(
    store_url: str, store: Store, columns: list[str]
) -> None:
    async with raw(store_url) as file:
        spoiling = list(product(columns, file.values))
        for name in ("orphan", "running"):
            await enqueued(store, *[job(queue=name)] * len(spoiling))
            for column, value in spoiling:
                hands = await Hands.on(store, name)
                await hands.claim(1, queues=[name])
                await file.run(
                    f"UPDATE outlast_workers SET {column} = {value} WHERE id = {hands.me.worker_id}"
                )
            for seen in (await store.observe()).workers:
                if seen.name == "orphan":
                    await reap(store, seen)
    await works_on(store)
    await shows(store, [])


@pytest.mark.parametrize("columns", batched(SCHEDULES, 12))
async def test_no_value_in_a_schedules_row_stops_the_firing_of_others(
    store_url: str, store: Store, columns: list[str]
) -> None:
    async with raw(store_url) as file:
        spoiling = list(product(columns, file.values))
        names = [f"bad{n}" for n in range(len(spoiling))]
        await store.put_schedules([schedule(name) for name in names])
        for name, (column, value) in zip(names, spoiling, strict=True):
            await file.run(f"UPDATE outlast_schedules SET {column} = {value} WHERE name = '{name}'")
    await put_one(store, "sound")
    due = (await store.due_schedules()).schedules
    (sound,) = [each for each in due if each.name == "sound"]
    assert (await fire_one(store, firing(sound, sound.since))).won
    for each in due:
        assert await put_one(store, each.name, spec='{"every":5}') in set(Put)
    await store.note_undeclared([each.name for each in due])
    for row in await store.inspector.schedules():
        await store.pause_schedule(row.name, paused=True)
        await store.delete_schedule(row.name)
    await works_on(store)
    await shows(store, [])


async def test_no_value_in_a_pauses_row_stops_workers_or_documents(
    store_url: str, store: Store
) -> None:
    async with raw(store_url) as file:
        for number, (column, value) in enumerate(product(PAUSES, file.values)):
            await store.pause(NewPause(kind=PauseKind.QUEUE, name=f"paused {number}"))
            row = f"UPDATE outlast_pauses SET {column} = {value} WHERE name = 'paused {number}'"
            await file.run(row)
    await store.inspector.pauses()
    await works_on(store)
    await shows(store, [])


async def test_no_value_in_an_actions_row_stops_workers_acts_or_documents(
    store_url: str, store: Store
) -> None:
    bulk = Bulk(up_to_id=9, as_of=9.0, expected=1)
    notes = [
        Note(actor="ada", verb="discard", filter="{}"),
        Note(actor="a", verb="discard", bulk=bulk),
    ]
    async with raw(store_url) as file:
        for column, value, note in product(ACTIONS, file.values, notes):
            action_id = await store.note(note)
            await file.run(f"UPDATE outlast_actions SET {column} = {value} WHERE id = {action_id}")
    found = await list_actions(store, limit=1_000)
    json.dumps(actions_document(found), allow_nan=False)
    for row in await store.inspector.running_actions(1_000):
        with contextlib.suppress(OutlastError):
            async for _ in go_on(store, row.id):
                pass
        await store.stop_action(row.id)
    assert await store.inspector.running_actions() == []
    await works_on(store)
    await shows(store, [])


async def test_no_value_in_a_labels_row_stops_workers_or_lists(
    store_url: str, store: Store
) -> None:
    labelled = job(policy=Policy(labels=("a",)))
    async with raw(store_url) as file:
        spoiling = list(product(LABELS, file.values))
        ids = await enqueued(store, *[labelled] * len(spoiling), labelled)
        for job_id, (column, value) in zip(ids, spoiling, strict=False):
            await file.run(f"UPDATE outlast_labels SET {column} = {value} WHERE job_id = {job_id}")
    assert ids[-1] in (await store.inspector.job_ids(JobFilter(label="a"))).ids
    await works_on(store)
    await shows(store, ids)


@pytest.mark.parametrize("table", ["outlast_limits", "outlast_permits", "outlast_streams"])
async def test_no_value_in_a_limits_rows_stops_others_or_documents(
    store_url: str, store: Store, table: str
) -> None:
    hands = await Hands.on(store)
    async with raw(store_url) as file:
        spoiling = list(product(TABLES[table], file.values))
        names = [f"bad{n}" for n in range(len(spoiling))]
        specs = [NewLimit(name, LimitSpec(running=1, spacing=0.001)) for name in names]
        await store.declare_limits(specs)
        jobs = [limited(need(name), tenant=name) for name in names]
        ids = await enqueued(store, *jobs, *jobs)
        held = await hands.claim(len(jobs))
        while len(held) < len(jobs):
            held += await hands.claim(len(jobs) - len(held))
        await hands.claim()
        for job, (column, value) in zip(jobs, spoiling, strict=True):
            which = f"id = {job.stream}" if table == "outlast_streams" else f"name = '{job.tenant}'"
            await file.run(f"UPDATE {table} SET {column} = {value} WHERE {which}")
    answers = await hands.hand_in(*[ended(one) for one in held])
    assert set(answers) == {Answer.ACCEPTED}
    await hands.claim()
    await declare(store, "sound", running=1)
    (sound,) = await enqueued(store, limited(need("sound"), queue="of-the-sound"))
    (taken,) = await eventually(lambda: hands.claim(1, queues=["of-the-sound"]))
    assert taken.job_id == sound
    await works_on(store)
    await shows(store, ids)
    for row in await store.inspector.limits():
        permits = await store.inspector.permits(row.name)
        json.dumps(msgspec.to_builtins(permits), allow_nan=False)
        assert spec_text(row)
        assert all(next_start(each, row, 1e9) for each in permits)
        await store.set_limit(SetLimit(name=row.name, running=2))
        await store.hold_limit(Hold(row.name, "", 1.0))
    for job_id in ids:
        if (place := await store.inspector.stream_place(job_id)) is not None:
            explain(place, 1e9, tells=True)
    await verify(store.inspector)
    await store.prune(jobs_older_than=0.0, workers_older_than=0.0)


async def test_no_value_in_a_task_s_row_outlasts_the_next_declaration(
    store_url: str, store: Store
) -> None:
    task = DeclaredTask("t", ("a",), fair=True, aging=2.0, priority=3)
    async with raw(store_url) as file:
        for column, value in product(TASKS, file.values):
            await store.declare_limits([], [task])
            await file.run(f"UPDATE outlast_tasks SET {column} = {value} WHERE name = 't'")
            await file.run("SELECT outlast_enqueue_v1('t', tenant => 'a')")
            await store.declare_limits([], [task])
            row = "SELECT limits, aging, priority FROM outlast_tasks WHERE name = 't'"
            assert [tuple(each) for each in await file.rows(row)] == [('["a"]', 2.0, 3)]
    await works_on(store)


DEEP = '{"retries":' + "[" * 5_000


async def test_a_job_whose_limits_cannot_be_read_is_dead_and_does_not_run(
    store_url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    app = outlast.App(store_url)
    ran: list[int] = []

    @app.task
    async def note(number: int) -> None:
        ran.append(number)

    jobs = [await note.enqueue(number) for number in range(5)]
    async with raw(store_url) as file:
        wrong = f"UPDATE outlast_jobs SET policy = '{DEEP}' WHERE id = {jobs[2].id}"
        assert await file.run(wrong)
    async with app.worker():
        for job_ in (*jobs[:2], *jobs[3:]):
            await job_.result(timeout=60)
        with pytest.raises(outlast.JobFailed, match="its policy cannot be read"):
            await jobs[2].result(timeout=60)
    await app.close()
    assert sorted(ran) == [0, 1, 3, 4]
    (attempt,) = await store.inspector.attempts(jobs[2].id)
    assert (attempt.outcome, attempt.charge) == ("dead", "failure")
    assert attempt.crash is not None
    assert attempt.crash.kind is CrashKind.UNDECODABLE
    assert not (await verify(store.inspector)).findings


async def test_an_orphan_whose_limits_cannot_be_read_is_reclaimed_like_the_others(
    store_url: str, store: Store
) -> None:
    hands = await Hands.on(store)
    ids = await enqueued(store, job(), job(), job())
    await hands.claim()
    async with raw(store_url) as file:
        assert await file.run(f"UPDATE outlast_jobs SET policy = '{DEEP}' WHERE id = {ids[1]}")
    await hands.vanish()
    assert sorted(end.job_id for end in await store.reclaim(lost_worker)) == ids


async def test_evidence_under_a_foreign_token_blocks_no_end(store_url: str, store: Store) -> None:
    hands = await Hands.on(store)
    await enqueued(store, job(), job())
    one, two = await hands.claim()
    async with raw(store_url) as file:
        assert await file.run(
            "INSERT INTO outlast_attempts (token, job_id, number, outcome, charge, started_at,"
            f" ended_at) SELECT {one.token}, 1, 1, 'dead', 'none', run_at, run_at"
            f" FROM outlast_jobs WHERE id = {two.job_id}"
        )
    answers = await hands.hand_in(crashed(one), crashed(two))
    assert answers == [Answer.ACCEPTED] * 2


async def test_malformed_rows_are_shown_as_malformed(store_url: str, store: Store) -> None:
    hands = await Hands.on(store)
    ids = await enqueued(store, job(), job())
    for claimed in await hands.claim():
        await hands.hand_in(crashed(claimed, delay=9_999.0))
    async with raw(store_url) as file:
        where = f"WHERE id = {ids[0]}"
        assert await file.run(f"UPDATE outlast_jobs SET policy = '{DEEP}', progress = '7' {where}")
        assert await file.run(f"UPDATE outlast_attempts SET crash = '[' WHERE job_id = {ids[0]}")
        assert await file.run("UPDATE outlast_workers SET tasks = '{', lacks = '[]'")
    sound, wrong = await store.inspector.jobs(JobFilter())
    assert (sound.malformed, wrong.malformed) == (None, "policy, progress")
    (attempt,) = await store.inspector.attempts(ids[0])
    assert (attempt.malformed, attempt.crash, attempt.outcome) == ("crash", None, "error")
    (worker,) = await store.inspector.workers()
    assert (worker.malformed, worker.tasks, worker.lacks) == ("tasks, lacks", [], {})
