"""How many jobs of a queue want a worker, on SQLite. A plain function of a cursor (sql/wanted.sql).

On PostgreSQL autoscalers call ``outlast_wanted_v1`` themselves; here the number is put together
from the same parts.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Cursor

import msgspec

from outlast.store.statements import statements
from outlast.store.statistics import COUNT_MAX

TASKS_MAX = 1_000  # of the line that are looked at
_SQL = statements("sqlite", "wanted")
_SNAPSHOT = statements("sqlite", "transaction")


def wanted(cursor: Cursor, now: float, queue: str) -> int:
    """Return how many jobs of a queue are due and can be taken, or run; at most COUNT_MAX."""
    cursor.execute(_SNAPSHOT["snapshot"])
    try:
        return min(COUNT_MAX, _due(cursor, now, queue) + _running(cursor, queue))
    finally:
        cursor.execute(_SNAPSHOT["rollback"])


def _running(cursor: Cursor, queue: str) -> int:
    values = {"queue": queue, "most": COUNT_MAX}
    return int(cursor.execute(_SQL["running"], values).fetchone()[0])


def _due(cursor: Cursor, now: float, queue: str) -> int:
    paused = {(kind, name) for kind, name in cursor.execute(_SQL["paused"])}
    if paused & {("all", ""), ("queue", queue)}:
        return 0
    may_run = _find_servable(cursor, queue)
    values = {"queue": queue, "now": now, "most": COUNT_MAX, "tasks_max": TASKS_MAX}
    count = 0
    for (task,) in cursor.execute(_SQL["tasks"], values).fetchall():
        if count < COUNT_MAX and ("task", task) not in paused and may_run(task):
            left = values | {"task": task, "most": COUNT_MAX - count}
            count += cursor.execute(_SQL["lined"], left).fetchone()[0]
    for part in ("due", "suspects") if count < COUNT_MAX else ():
        for task, number in cursor.execute(_SQL[part], values).fetchall():
            count += number if ("task", task) not in paused and may_run(task) else 0
    return count


def _find_servable(cursor: Cursor, queue: str) -> Callable[[str], bool]:
    """Return what says whether more workers would take a task of this queue: all where no worker
    serves it, else those that one of them, living or gone, has announced."""
    rows = cursor.execute(_SQL["workers"], {"most": COUNT_MAX}).fetchall()
    serving = [row for row in rows if row[0] == "[]" or _quoted(queue) in row[0]]
    if not any(lives for _, _, lives in serving):
        return lambda task: True
    announced = {tasks for _, tasks, _ in serving}
    return lambda task: any(_quoted(task) in tasks for tasks in announced)


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()
