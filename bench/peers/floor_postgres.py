"""The floor: what PostgreSQL does for the same durable changes, without a queue round them.

A row with the columns that a queue needs and two partial indexes; one connection, strictly one
statement after the other, each a commit of its own. ``drain N BATCH``: one fused statement that
completes the last batch, fenced by its tokens, and claims the next. ``timed`` notifies with each
row, and ``worker`` listens on a second connection, and claims when it hears something.
"""

from __future__ import annotations

import asyncio
import json
import time

import asyncpg
import uvloop
from common import URL, client, mark, numbers, operation, say

SCHEMA = """
CREATE SEQUENCE tokens;
CREATE TABLE floor (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now(),
    attempt int NOT NULL DEFAULT 0,
    most_attempts int NOT NULL DEFAULT 5,
    token bigint,
    worker text,
    lease_until timestamptz,
    payload jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
);
CREATE INDEX floor_ready ON floor (queue, priority, run_at, id) WHERE state = 0;
CREATE INDEX floor_leases ON floor (lease_until) WHERE state = 1;
"""
INSERT = "INSERT INTO floor (queue, payload) VALUES ($1, $2)"
TELL = f"{INSERT} RETURNING pg_notify('floor', '')"
FUSED = """
WITH ended AS (
    UPDATE floor SET state = 2, ended_at = now(), lease_until = NULL
    FROM unnest($1::bigint[], $2::bigint[]) AS done (id, token)
    WHERE floor.id = done.id AND floor.token = done.token AND floor.state = 1
), ready AS MATERIALIZED (
    SELECT id FROM floor WHERE queue = $3 AND state = 0 AND run_at <= now()
    ORDER BY priority, run_at, id LIMIT $4 FOR UPDATE SKIP LOCKED
)
UPDATE floor SET state = 1, attempt = attempt + 1, token = nextval('tokens'), worker = 'w',
    lease_until = now() + interval '30 s'
FROM ready WHERE floor.id = ready.id
RETURNING floor.id, floor.token, floor.payload, floor.attempt
"""
PAYLOAD = '{"value": 1}'


async def drain(connection: asyncpg.Connection, jobs: int, batch: int) -> int:
    """Claim and complete everything; return how many were completed."""
    statement = await connection.prepare(FUSED)
    ids: list[int] = []
    tokens: list[int] = []
    done = 0
    while True:
        rows = await statement.fetch(ids, tokens, "q", batch)
        done += len(ids)
        if not rows:
            return done
        ids, tokens = [row[0] for row in rows], [row[1] for row in rows]


async def work(connection: asyncpg.Connection) -> None:
    """Claim and complete what comes, forever."""
    statement = await connection.prepare(FUSED)
    listener = await asyncpg.connect(URL)
    told = asyncio.Event()
    await listener.add_listener("floor", lambda *_: told.set())
    told.set()
    ids: list[int] = []
    tokens: list[int] = []
    while True:
        if not ids:
            await told.wait()
        told.clear()
        rows = await statement.fetch(ids, tokens, "q", 10)
        for row in rows:
            mark(json.loads(row[2])["sent_at"])
        ids, tokens = [row[0] for row in rows], [row[1] for row in rows]


async def send(connection: asyncpg.Connection) -> None:
    """Enqueue at intervals, and notify."""
    statement = await connection.prepare(TELL)

    async def timed(now: float, jobs: int) -> None:
        await statement.fetch("q", json.dumps({"sent_at": now}))

    await client(lambda: statement.fetch("q", PAYLOAD), None, timed)


async def main() -> None:
    connection = await asyncpg.connect(URL)
    if operation() == "setup":
        await connection.execute(SCHEMA)
        return
    if operation() == "worker":
        await work(connection)
    if operation() == "timed":
        await send(connection)
        return
    jobs, *rest = map(int, numbers())
    began_at, cpu = time.monotonic(), time.process_time()
    if operation() == "one":
        for _ in range(jobs):
            await connection.execute(INSERT, "q", PAYLOAD)
    elif operation() == "many":
        records = [("q", PAYLOAD) for _ in range(jobs)]
        await connection.copy_records_to_table(
            "floor", records=records, columns=["queue", "payload"]
        )
    else:
        done = await drain(connection, jobs, rest[0])
        assert done == jobs, (done, jobs)
    say(jobs, began_at, cpu)


if __name__ == "__main__":
    uvloop.run(main())
