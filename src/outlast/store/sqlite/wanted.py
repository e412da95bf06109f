"""Counts the jobs of a queue that want a worker, on SQLite.

On PostgreSQL autoscalers call ``outlast_wanted_v1`` themselves; here the number is computed from
the same parts (sql/inspect.sql).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from outlast.store.statements import Rows
from outlast.store.statistics import COUNT_MAX

TASKS_MAX = 1_000  # of the line that are read


async def count_wanted(rows: Rows, queue: str) -> int:
    """Return how many jobs of a queue run, or are due and can be taken; at most COUNT_MAX."""
    (running,) = await rows("inspect", "wanted_running", queue=queue, most=COUNT_MAX)
    return min(COUNT_MAX, await _due(rows, queue) + int(running["number"]))


async def _due(rows: Rows, queue: str) -> int:
    paused = {(row["kind"], row["name"]) for row in await rows("inspect", "wanted_paused")}
    if paused & {("all", ""), ("queue", queue)}:
        return 0
    may_run = await _find_servable(rows, queue)
    values = {"queue": queue, "most": COUNT_MAX}
    count = 0
    for row in await rows("inspect", "wanted_tasks", tasks_max=TASKS_MAX):
        task = row["task"]
        if count < COUNT_MAX and ("task", task) not in paused and may_run(task):
            left = COUNT_MAX - count
            count += (await rows("inspect", "wanted_lined", queue=queue, task=task, most=left))[0][
                "number"
            ]
    for part in ("streams", "due", "suspects") if count < COUNT_MAX else ():
        for row in await rows("inspect", f"wanted_{part}", **values):
            may = ("task", row["task"]) not in paused and may_run(row["task"])
            count += row["number"] if may else 0
    return count


async def _find_servable(rows: Rows, queue: str) -> Callable[[str], bool]:
    """Return a function that tells whether more workers would take a task of this queue: every task
    if no worker serves the queue, otherwise the tasks that one of its workers, living or gone, has
    announced."""
    workers = await rows("inspect", "wanted_workers", most=COUNT_MAX)
    serving = [row for row in workers if row["queues"] == "[]" or _quoted(queue) in row["queues"]]
    if not any(row["lives"] for row in serving):
        return lambda task: True
    announced = {row["tasks"] for row in serving}
    return lambda task: any(_quoted(task) in tasks for tasks in announced)


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()
