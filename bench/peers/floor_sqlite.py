"""The floor on SQLite: the same, with the standard library; WAL, synchronous=FULL."""

from __future__ import annotations

import sqlite3
import time

from common import URL, numbers, operation, say

SCHEMA = """
CREATE TABLE floor (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL DEFAULT 0,
    run_at REAL NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    token INTEGER,
    lease_until REAL,
    payload TEXT NOT NULL,
    ended_at REAL
);
CREATE INDEX floor_ready ON floor (queue, priority, run_at, id) WHERE state = 0;
CREATE INDEX floor_leases ON floor (lease_until) WHERE state = 1;
"""
INSERT = "INSERT INTO floor (queue, payload) VALUES ('q', ?)"
CLAIM = """
UPDATE floor SET state = 1, attempt = attempt + 1, token = ?, lease_until = ? WHERE id IN (
    SELECT id FROM floor WHERE queue = 'q' AND state = 0 AND run_at <= ?
    ORDER BY priority, run_at, id LIMIT ?)
RETURNING id, payload, attempt
"""
END = """
UPDATE floor SET state = 2, ended_at = ?, lease_until = NULL
WHERE id = ? AND token = ? AND state = 1
"""
PAYLOAD = '{"value": 1}'


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(URL, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def drain(connection: sqlite3.Connection, batch: int) -> int:
    """Claim and complete everything, in one transaction a batch; return how many."""
    held: list[int] = []
    done = token = 0
    while True:
        now = time.time()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(END, [(now, job, token) for job in held])
        token += 1
        rows = connection.execute(CLAIM, (token, now + 30, now, batch)).fetchall()
        connection.execute("COMMIT")
        done += len(held)
        held = [row[0] for row in rows]
        if not held:
            return done


def main() -> None:
    connection = connect()
    if operation() == "setup":
        connection.executescript(SCHEMA)
        return
    jobs, *rest = map(int, numbers())
    began_at, cpu = time.monotonic(), time.process_time()
    if operation() == "one":
        for _ in range(jobs):
            connection.execute(INSERT, (PAYLOAD,))
    elif operation() == "many":
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, [(PAYLOAD,)] * jobs)
        connection.execute("COMMIT")
    else:
        done = drain(connection, rest[0])
        assert done == jobs, (done, jobs)
    say(jobs, began_at, cpu)


if __name__ == "__main__":
    main()
