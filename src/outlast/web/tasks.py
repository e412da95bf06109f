"""``/tasks``: show how attempts ended, how long they took, and which workers know the task."""

from __future__ import annotations

from starlette.responses import Response

from outlast.base.text import span
from outlast.insight.history import read_history
from outlast.insight.pauses import describe
from outlast.insight.queues import TaskView, find_quantile, list_tasks
from outlast.insight.stats import read_overview
from outlast.store.minutes import BOUNDS
from outlast.web.endpoint import Endpoints
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
TASKS_SHOWN = 500
HOUR = 3_600.0
KEEP_SECONDS = 15.0  # a minute is counted once a minute


@ENDPOINTS.at("/tasks")
async def show_tasks(visit: Visit) -> Response:
    """Show all tasks."""
    tasks = await find_tasks(visit)
    return visit.show(
        "tasks.html",
        tasks=tasks[:TASKS_SHOWN],
        hidden=max(0, len(tasks) - TASKS_SHOWN),
        quantile=describe_quantile,
    )


@ENDPOINTS.at("/tasks/task")
async def show_task(visit: Visit) -> Response:
    """Show one task: how its attempts ended, how long they took, and which workers run it."""
    name = visit.require_name("name")
    found = next((one for one in await find_tasks(visit, name) if one.name == name), None)
    if found is None:
        text = f"No live worker knows the task {name!r}, none waits, and none ran in the last hour."
        raise WebRefusal(404, "No such task", text)
    outcomes = await visit.ask(
        ("outcomes", name),
        lambda store: read_history(store, seconds=HOUR, by="outcome", task=name),
        KEEP_SECONDS,
    )
    return visit.show(
        "task.html",
        task=found,
        outcomes=[(one.name, sum(one.attempts)) for one in outcomes.series],
        buckets=_buckets(found),
        sentence=None if found.pause is None else describe(found.pause, visit.now),
        quantile=describe_quantile,
    )


async def find_tasks(visit: Visit, name: str | None = None) -> list[TaskView]:
    """Return the tasks as last read; with a name, the last hour of only that task."""
    seen = await visit.ask("overview", read_overview)
    history = await visit.ask(
        ("history by task", name),
        lambda store: read_history(store, seconds=HOUR, by="task", task=name),
        KEEP_SECONDS,
    )
    return list_tasks(seen.statistics, seen.workers, seen.pauses, history)


def describe_quantile(buckets: list[int], part: float) -> str:
    """Return the bound below which this part lies: ``≤ 5 s``."""
    bound = find_quantile(buckets, part)
    if bound is None:
        return "–"  # noqa: RUF001
    return f"> {span(BOUNDS[-1])}" if bound == float("inf") else f"≤ {span(bound)}"


def _buckets(task: TaskView) -> list[tuple[str, int, float]]:
    """Return the durations of the last hour, from the shortest to the longest bucket in use: its
    bound, its count, and the count as a fraction of the largest one."""
    if task.series is None or not any(task.series.durations):
        return []
    most = max(task.series.durations)
    names = [*(f"≤ {span(bound)}" for bound in BOUNDS), "longer"]
    counted = list(zip(names, task.series.durations, strict=True))
    there = [place for place, (_, number) in enumerate(counted) if number]
    return [(name, number, number / most) for name, number in counted[there[0] : there[-1] + 1]]
