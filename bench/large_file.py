"""Fills a SQLite file with any number of waiting and finished jobs, by SQL in bulk.

The rows are those that Outlast writes, column by column, of jobs with short arguments: 20 tasks, 10
queues; each tenth job has a key, each fourth a tenant; of the finished ones each hundredth is
cancelled, each thousandth dead, and each fiftieth has a failed attempt with a crash report. Three
of ten waiting jobs are scheduled ones, which are older than all that has finished.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from outlast.store import open_store

TASKS = [f"shop.task{n}" for n in range(20)]
STEP = 200_000  # rows in a transaction
WEEK, DAY = 604_800.0, 86_400.0
WORKERS = 8

ARGUMENTS = """'{"title":"Emma","pages":' || i || ',"reader":"ada@example.org"}'"""
KEY = "CASE WHEN i % 10 = 0 THEN 'order:' || i END"
TENANT = "CASE WHEN i % 4 = 0 THEN 'tenant' || (i % 1000) END"
NUMBERS = "WITH RECURSIVE n (i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
FINISHED = f"""{NUMBERS}
INSERT INTO outlast_jobs (id, task, queue, state, run_at, enqueued_at, args, key, tenant,
    attempt_count, failures, token, completed_by, started_at, ended_at, result)
SELECT i, 'shop.task' || (i % 20), 'queue' || (i % 10), state, at, at, {ARGUMENTS}, {KEY}, {TENANT},
    1 + (i % 50 = 1), i % 50 = 1, 2 * i, CASE state WHEN 'completed' THEN 1 + i % {WORKERS} END,
    at + 0.5, at + 1.0,
    CASE state WHEN 'completed' THEN '{{"file":"Emma.pdf","pages":' || i || '}}' END
FROM (SELECT i, :now - {WEEK} + {WEEK - 10} * (i - :begin) / :count AS at,
      CASE WHEN i % 1000 = 7 THEN 'dead' WHEN i % 100 = 3 THEN 'cancelled'
           ELSE 'completed' END AS state FROM n)"""
FAILED = """
INSERT INTO outlast_attempts (token, job_id, number, worker_id, worker, host, pid, outcome, charge,
    message, started_at, ended_at, crash)
SELECT token - 1, id, 1, 1, 'shop-1', 'host1', 4711, 'error', 'failure', 'ValueError: no page',
    started_at - 0.4, started_at - 0.1,
    '{"kind":"error","type":"ValueError","message":"no page","traceback":"' || :traceback || '"}'
FROM outlast_jobs WHERE id BETWEEN :first AND :last AND attempt_count = 2"""
DEAD = """
INSERT INTO outlast_attempts (token, job_id, number, worker_id, worker, host, pid, outcome, charge,
    message, started_at, ended_at)
SELECT token, id, 1, 1, 'shop-1', 'host1', 4711, 'dead', 'failure', 'no such book',
    started_at, ended_at
FROM outlast_jobs WHERE id BETWEEN :first AND :last AND state = 'dead'"""
CANCELLED = """
INSERT INTO outlast_attempts (token, job_id, number, worker_id, worker, host, pid, outcome, charge,
    started_at, ended_at)
SELECT token, id, 1, 1, 'shop-1', 'host1', 4711, 'cancelled', 'none', started_at, ended_at
FROM outlast_jobs WHERE id BETWEEN :first AND :last AND state = 'cancelled'"""
WAITING = f"""{NUMBERS}
INSERT INTO outlast_jobs (id, task, queue, position, run_at, enqueued_at, args, key, tenant)
SELECT i, 'shop.task' || (i % 20), 'queue' || (i % 10), CASE WHEN :due THEN i END,
    CASE WHEN :due THEN :now - 100.0 ELSE :now + {DAY} + i / 1000.0 END, :now - 100.0,
    {ARGUMENTS}, {KEY}, {TENANT} FROM n"""
SEQUENCE = "UPDATE outlast_sequences SET value = :value WHERE name = :name"
WORKER = """
INSERT INTO outlast_workers (id, name, host, pid, boot_id, status, heartbeat, lease, started_at,
    heartbeat_at, lease_expires_at, stopped_at)
VALUES (:id, 'shop-' || :id, 'host1', 4711, 'b', 'stopped', 2, 60, :now - 9e5, :now, :now, :now)"""


def fill(path: Path, waiting: int, finished: int) -> float:
    """Make the file; return the bytes that a finished job takes in it, with its attempts."""
    asyncio.run(make_schema(path))
    scheduled = waiting * 3 // 10
    first, last = scheduled + 1, scheduled + finished
    total = {"begin": first, "count": max(1, finished), "now": time.time()}
    with opened(path) as cursor:
        run(cursor, WAITING, 1, scheduled, total | {"due": 0})
        before = size(cursor)
        traceback = "  File /srv/shop/jobs.py, line 17, in render;" * 20
        run(cursor, FINISHED, first, last, total)
        for attempts in (FAILED, DEAD, CANCELLED):
            run(cursor, attempts, first, last, {"traceback": traceback})
        each = (size(cursor) - before) / max(1, finished)
        run(cursor, WAITING, last + 1, finished + waiting, total | {"due": 1})
        for worker in range(1, WORKERS + 1):
            cursor.execute(WORKER, {"id": worker, "now": total["now"]})
        for name in ("job", "position", "token", "worker"):
            count = {"token": 2 * (waiting + finished), "worker": WORKERS}
            cursor.execute(SEQUENCE, {"name": name, "value": count.get(name, waiting + finished)})
    os.sync()
    return each


async def make_schema(path: Path) -> None:
    """Make an empty store."""
    store = open_store(f"sqlite:///{path}")
    await store.open()
    await store.close()


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Cursor]:
    """Give a cursor that writes fast, and need not outlive a power cut."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        cursor = connection.cursor()
        for pragma in ("synchronous = OFF", "cache_size = -500000", "wal_autocheckpoint = 20000"):
            cursor.execute(f"PRAGMA {pragma}")
        yield cursor
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def run(cursor: sqlite3.Cursor, text: str, first: int, last: int, values: object) -> None:
    """Run a statement for a range of ids, in parts of a bounded size."""
    for at in range(first, last + 1, STEP):
        part = {"first": at, "last": min(last, at + STEP - 1)}
        cursor.execute("BEGIN")
        cursor.execute(text, part | dict(values))  # type: ignore[call-overload]
        cursor.execute("COMMIT")


def size(cursor: sqlite3.Cursor) -> int:
    """Return the bytes of the file, once the log is in it."""
    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = cursor.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * cursor.execute("PRAGMA page_size").fetchone()[0])
