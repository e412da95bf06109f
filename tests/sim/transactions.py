"""The transactions of a server: their numbers, as snapshots show them, and what callers do in them.

A caller's transaction draws a position, gets its number a moment later, stays open, and commits a
job that no notification announces; or it locks the row of a job, which claims pass over, and is
rolled back. SQLite has neither, so such a job is written when others may see it: under the position
that was drawn long before.
"""

from __future__ import annotations

from typing import Any

from outlast.store.glances import Glance

FIRST = 1_000
ARGS = '{"steps":1,"pause":0.1,"ending":"complete","saves":false}'
DRAW = "UPDATE outlast_sequences SET value = value + 1 WHERE name = ? RETURNING value"


class Transactions:
    """Those of one server. ``oldest`` and ``begin`` are what PostgreSQL shows as ``xmin``, and as
    the number that a transaction which writes is given."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._next = FIRST
        self._completed = FIRST - 1  # the highest that has ended
        self._open: set[int] = set()
        self._rows: Any = None

    def begin(self) -> int:
        """Give a number out."""
        self._next += 1
        self._open.add(self._next - 1)
        return self._next - 1

    def end(self, number: int) -> None:
        """Let the transaction end."""
        self._open.discard(number)
        self._completed = max(self._completed, number)

    @property
    def oldest(self) -> int:
        """The oldest that is open; else one above the highest that has ended."""
        return min(self._open, default=self._completed + 1)

    def glance(self, number: int | None) -> Glance:
        """Return what is shown of the line; ``number``: of the transaction that asks, if any."""
        return Glance(
            next_due=self._seconds_to_next(),
            drawn=self.drawn,
            oldest=self.oldest,
            newest=number,
        )

    @property
    def drawn(self) -> int:
        """The highest position that was drawn."""
        return int(self._sql("SELECT value FROM outlast_sequences WHERE name = 'position'")[0])

    def _seconds_to_next(self) -> float | None:
        sql = """SELECT CASE WHEN EXISTS (SELECT 1 FROM outlast_jobs
                                          WHERE state = 'queued' AND solo > 0) THEN 0
                 ELSE (SELECT min(run_at) - ? FROM outlast_jobs
                       WHERE state = 'queued' AND position IS NULL AND solo = 0) END"""
        seconds: float | None = self._sql(sql, self._world.store_clock.wall())[0]
        return seconds

    def draw_position(self) -> int:
        """Draw a position, as the statement that stores a job does before it gets a number."""
        return int(self._sql(DRAW, "position")[0])

    def store(self, position: int) -> int:
        """Let a job be seen that has drawn this position; return its id."""
        job_id = int(self._sql(DRAW, "job")[0])
        sql = """INSERT INTO outlast_jobs (id, task, queue, run_at, enqueued_at, args, position)
                 VALUES (?, 'work', 'default', ?, ?, ?, ?) RETURNING id"""
        now = self._world.store_clock.wall()
        self._sql(sql, job_id, now, now, ARGS, position)
        return job_id

    def _sql(self, sql: str, *values: object) -> Any:
        if self._rows is None:
            self._rows = self._world.disk.look()
        found = self._rows.execute(sql, values).fetchall()
        return found[0] if found else None
