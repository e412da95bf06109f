"""Fills a store of either kind with any number of jobs, by SQL: for `bench pages` and `commands`.

Of ROWS jobs, which a month has brought: 97 of 100 completed, 1 cancelled, 1 of 500 dead in 40
groups; each fiftieth has a failed attempt with a crash report. 1 of 50 waits in one of 50 queues
(100 tasks), 1 of 200 is scheduled, some run, some are suspects. Beside them: attempts and deaths,
1,000 refused writes, 20 live workers and 2,000 that have gone, 300 schedules (each other one by a
zone's clocks), 5,000 actions, labels, and what workers have counted in that month.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from bench.kit import clock
from bench.large_file import opened
from outlast.model.crash import Crash, CrashKind
from outlast.model.schedule import Spec
from outlast.store import open_store
from outlast.store.minutes import BUCKETS
from outlast.store.schedules import NewSchedule
from outlast.store.values import NewJob

STEP = 250_000  # rows in a transaction
TOLD = 4 * STEP  # jobs, after which it is said how far it is
QUEUES, TASKS, LIVE, GONE = 50, 100, 20, 2_000
SCHEDULES, ACTIONS, REFUSALS, RUNNING, SUSPECTS = 300, 5_000, 1_000, 500, 100
GROUPS = 40
COUNTS = TASKS + TASKS // 10  # rows of each minute: of all tasks, and of the failures of some
DAY, MONTH = 86_400, 30 * 86_400
TRACEBACK = "Traceback (most recent call last):\n" + "".join(
    f'  File "/srv/shop/jobs.py", line {n}, in step{n}\n    return step{n + 1}(order, page)\n'
    for n in range(20)
)
CRASH = msgspec.json.encode(
    Crash(
        kind=CrashKind.ERROR,
        message="no page of this book",
        exception="ValueError",
        traceback=TRACEBACK,
        output=[f"page {n} of Emma was rendered" for n in range(20)],
        worker="shop-1",
        host="host1",
        pid=4711,
        release="2026.11",
    )
).decode()
TASK_NAMES = [f"shop.task{n}" for n in range(TASKS)]
BUCKET = [f"{kind}{n}" for kind in "dw" for n in range(1, BUCKETS + 1)]
ARGUMENTS = (
    """'{"title":"Emma","pages":' || i || ',"reader":"ada@example.org","format":"pdf",'"""
    """ || '"address":{"street":"Hill Street 17","city":"Bath","country":"England"}}'"""
)
NAMES = f"'shop.task' || (i % {TASKS}), 'queue' || (i % {QUEUES})"
TENANT = "CASE WHEN i % 4 = 0 THEN 'tenant' || (i % 1000) END"
ENDED = f"$now - {MONTH} + ({MONTH} - 10.0) * i / $last"
WORD = "CASE WHEN i % 500 = 7 THEN 'dead' WHEN i % 100 = 3 THEN 'cancelled' ELSE 'completed' END"
FINISHED = f"""
INSERT INTO outlast_jobs (id, task, queue, state, run_at, enqueued_at, args, tenant, attempt_count,
    failures, token, completed_by, started_at, ended_at, result, fingerprint)
SELECT i, task, queue, word, ended - 2, ended - 2, args, tenant, tries, tries - 1, 2 * i,
    CASE word WHEN 'completed' THEN 1 + i % {LIVE} END, ended - 1, ended,
    CASE word WHEN 'completed' THEN '{{"file":"Emma.pdf","bytes":' || i || '}}' END,
    CASE word WHEN 'dead' THEN 'group' || ((i / 500) % {GROUPS}) END
FROM (SELECT i, 'shop.task' || (i % {TASKS}) AS task, 'queue' || (i % {QUEUES}) AS queue,
             {WORD} AS word, {ARGUMENTS} AS args, {TENANT} AS tenant, 1 + (CASE i % 50 WHEN 1 THEN 1
             ELSE 0 END) AS tries, {ENDED} AS ended FROM NUMBERS) s"""
ATTEMPT = """
INSERT INTO outlast_attempts (token, job_id, number, worker_id, worker, host, pid, outcome, charge,
    message, started_at, ended_at, crash)
SELECT token - less, id, number, 1, 'shop-1', 'host1', 4711, outcome, 'failure',
    'no page of this book', started_at, ended_at,
    CASE outcome WHEN 'cancelled' THEN NULL ELSE $crash END
FROM (SELECT id, token, started_at, ended_at, attempt_count, state FROM outlast_jobs
      WHERE id BETWEEN $first AND $until) j
JOIN (SELECT 'dead' AS state, 0 AS less, 1 AS number, 'error' AS outcome
      UNION ALL SELECT 'cancelled', 0, 1, 'cancelled'
      UNION ALL SELECT 'completed', 1, 1, 'error') k ON k.state = j.state
WHERE j.state <> 'completed' OR j.attempt_count = 2"""
# The rows of ended jobs have grown since they came, so their pages have no room for new ones. Rows
# that are made as they ended leave some, and each new job would lie on a page of its own.
FILLED = """SELECT substring(reloptions::text FROM 'fillfactor=([0-9]+)') FROM pg_class
WHERE oid = 'outlast_jobs'::regclass"""
FILL, NO_ROOM = "ALTER TABLE outlast_jobs SET (fillfactor = {})", 30
LABELS = """
INSERT INTO outlast_labels (job_id, label) SELECT i, 'sale' FROM NUMBERS WHERE i % 100 = 0"""
QUEUED = f"""
INSERT INTO outlast_jobs (id, task, queue, position, run_at, enqueued_at, args, tenant)
SELECT i, {NAMES}, CASE WHEN $due = 1 THEN i END,
    CASE WHEN $due = 1 THEN $now - 100.0 ELSE $now + {DAY} + i / 1000.0 END, $now - 100.0,
    {ARGUMENTS}, {TENANT} FROM NUMBERS"""
SUSPECT = f"""
INSERT INTO outlast_jobs (id, task, queue, run_at, enqueued_at, args, attempt_count, losses, solo,
    incident, cohort)
SELECT i, {NAMES}, $now - 50.0, $now - 90.0, {ARGUMENTS}, 1, 1, 1, i / 20, i / 20
FROM NUMBERS"""
RUN = f"""
INSERT INTO outlast_jobs (id, task, queue, state, run_at, enqueued_at, args, attempt_count, token,
    worker_id, started_at)
SELECT i, {NAMES}, 'running', $now - 50.0, $now - 90.0, {ARGUMENTS}, 1, 2 * i, 1 + i % {LIVE},
    $now - 30.0 FROM NUMBERS"""
WORKER = f"""
INSERT INTO outlast_workers (id, name, host, pid, boot_id, status, heartbeat, lease, started_at,
    heartbeat_at, lease_expires_at, stopped_at, tasks, release)
SELECT i, 'shop-' || i, 'host' || (i % 7), 4711, 'b',
    CASE WHEN i <= {LIVE} THEN 'active' ELSE 'stopped' END,
    2, 600000, $now - 9e5, $now - 1, $now + 6e5, CASE WHEN i > {LIVE} THEN $now - i END,
    $tasks, '2026.11' FROM NUMBERS"""
REFUSED = """
INSERT INTO outlast_refusals (job_id, token, verb, at, late_by)
SELECT 500 * i + 7, 2 * (500 * i + 7), 'end', $now - i, 4.0 FROM NUMBERS"""
ACTED = """
INSERT INTO outlast_actions (at, actor, verb, target, job_id, counts, moved_at)
SELECT $now - i, 'ada', 'requeue', 'job ' || i, i, '{"requeued":1}', $now - i FROM NUMBERS"""
COUNTED = f"""
INSERT INTO outlast_minutes (level, worker_id, batch, at, kind, queue, task, outcome, jobs, firsts,
    seconds, waited, {", ".join(BUCKET)})
SELECT $level, 0, at, at, 'attempt', 'queue' || (lane % {QUEUES}), 'shop.task' || (lane % {TASKS}),
    CASE WHEN lane < {TASKS} THEN 'completed' ELSE 'error' END, 7, 7, 3.5, 1.5,
    {", ".join("7" if name in {"d4", "w3"} else "0" for name in BUCKET)}
FROM (SELECT i % {COUNTS} AS lane,
             CAST($now AS bigint) / 60 * 60 - i / {COUNTS} * 60 AS at
      FROM NUMBERS) s"""
SEQUENCES = {"job": "outlast_jobs_id_seq", "worker": "outlast_workers_id_seq"}
SEQUENCES |= {name: f"outlast_{name}_seq" for name in ("position", "token")}
Statement = tuple[str, int, int, dict[str, Any]]


def statements(rows: int, now: float) -> Iterator[Statement]:
    """Yield what fills a store: a statement, its first and last number, and its values."""
    waiting, scheduled = rows // 50, rows // 200
    last = rows - waiting - scheduled
    common = {"now": now, "last": last}
    for first in range(1, last + 1, STEP):  # attempts are made while their jobs are in memory
        until = min(last, first + STEP - 1)
        yield FINISHED, first, until, common
        yield ATTEMPT, first, until, {"crash": CRASH}
        yield LABELS, first, until, {}
    yield QUEUED, last + 1, last + scheduled, {"now": now, "due": 0}
    yield QUEUED, last + scheduled + 1, rows, {"now": now, "due": 1}
    yield SUSPECT, rows + 1, rows + SUSPECTS, {"now": now}
    yield RUN, rows + SUSPECTS + 1, rows + SUSPECTS + RUNNING, {"now": now}
    tasks = msgspec.json.encode(TASK_NAMES[:-2]).decode()
    yield WORKER, 1, LIVE + GONE, {"now": now, "tasks": tasks}
    yield REFUSED, 1, REFUSALS, {"now": now}
    yield ACTED, 1, ACTIONS, {"now": now}
    for level, steps in (("minute", 1_440), ("total", 1)):
        yield COUNTED, 0, COUNTS * steps - 1, {"now": now, "level": level}


def fill(url: str, rows: int) -> float:
    """Fill an empty store; return how many seconds that took."""
    began_at = time.monotonic()
    asyncio.run(_make(url))
    work = _told(statements(rows, time.time()), rows)
    if url.startswith("sqlite"):
        _fill_file(Path(url.removeprefix("sqlite:///")), rows, work)
    else:
        asyncio.run(_fill_server(url, rows, work))
    return time.monotonic() - began_at


async def _make(url: str) -> None:
    store = open_store(url)
    await store.open()
    specs = [Spec(every=3_600), Spec(cron="30 4 * * *", zone="Europe/Berlin")]
    for n in range(SCHEDULES):
        call = NewJob(task=TASK_NAMES[n % TASKS])
        spec = msgspec.json.encode(specs[n % 2]).decode()
        await store.put_schedules([NewSchedule(name=f"schedule{n}", call=call, spec=spec)])
    await store.close()


def _told(work: Iterable[Statement], rows: int) -> Iterator[Statement]:
    """Pass these on, and say from time to time how far it is."""
    began_at = time.monotonic()
    for text, first, last, values in work:
        if text == FINISHED and first % TOLD == 1 and first > 1:
            spent = clock(time.monotonic() - began_at)
            print(f"{spent}: filled with {first - 1:,} of {rows:,} jobs", flush=True)
        yield text, first, last, values


def _parts(statement: Statement) -> Iterator[tuple[str, dict[str, Any]]]:
    text, first, last, values = statement
    for at in range(first, last + 1, STEP):
        yield text, values | {"first": at, "until": min(last, at + STEP - 1)}


def _written(text: str, values: dict[str, Any], numbers: str) -> str:
    """Return a statement with its values in it, as one kind of store takes it."""
    text = text.replace("NUMBERS", numbers)
    for name in sorted(values, key=len, reverse=True):
        value = values[name]
        shown = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
        text = text.replace(f"${name}", shown)
    return text


def _fill_file(path: Path, rows: int, work: Iterable[Statement]) -> None:
    numbers = (
        "(WITH RECURSIVE n (i) AS (SELECT $first UNION ALL SELECT i + 1 FROM n WHERE i < $until)"
        " SELECT i FROM n) AS n"
    )
    with opened(path) as cursor:
        for statement in work:
            for text, values in _parts(statement):
                cursor.execute("BEGIN")
                cursor.execute(_written(text, values, numbers))
                cursor.execute("COMMIT")
        for name in SEQUENCES:
            value = {"worker": LIVE + GONE, "token": 4 * rows}.get(name, 2 * rows)
            cursor.execute("UPDATE outlast_sequences SET value = ? WHERE name = ?", (value, name))


async def _fill_server(url: str, rows: int, work: Iterable[Statement]) -> None:
    numbers = "generate_series($first::bigint, $until) AS n (i)"
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off"})
    for statement in work:
        if statement[0] == QUEUED and statement[3]["due"]:
            await connection.execute("VACUUM (ANALYZE) outlast_jobs")  # not what has come since
            filled = await connection.fetchval(FILLED)
            await connection.execute(FILL.format(NO_ROOM))
        for text, values in _parts(statement):
            await connection.execute(_written(text, values, numbers), timeout=600)
    await connection.execute(FILL.format(filled))
    for name, sequence in SEQUENCES.items():
        value = {"worker": LIVE + GONE, "token": 4 * rows}.get(name, 2 * rows)
        await connection.execute(f"SELECT setval('{sequence}', {value})")
    await connection.execute("SELECT outlast_thin_lanes_v1()")
    await connection.execute("ANALYZE")
    await connection.execute("VACUUM outlast_attempts, outlast_minutes, outlast_labels")
    await connection.execute("CHECKPOINT")
    await connection.close()
