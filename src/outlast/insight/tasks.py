"""Describe tasks: how attempts end, how long they take, what waits, which releases know them.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from outlast.insight.availability import list_alive
from outlast.insight.history import AttemptHistory, Series
from outlast.insight.queues import LaneView, group, list_lanes
from outlast.model.pause import Pause, Pauses
from outlast.store.minutes import BOUNDS
from outlast.store.rows import WorkerRow
from outlast.store.statistics import Statistics


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """One task.

    Attributes:
        series: the workers' recent counts of it, if any.
        lanes: its due jobs, queue by queue; ``due``: their number, which may be too low.
        pause: the pause of this task, or of everything.
        workers: live workers that may run it; ``lacking``: live workers that know it and lack a
            tag.
        releases: the releases of the workers that may run it -> how many; None: without a name.
    """

    name: str
    series: Series | None
    lanes: list[LaneView]
    due: int
    pause: Pause | None
    workers: list[WorkerRow]
    lacking: list[WorkerRow]
    releases: list[tuple[str | None, int]]

    @property
    def at_least(self) -> bool:
        """Whether more may be due."""
        return any(one.at_least for one in self.lanes)

    @property
    def oldest(self) -> float | None:
        """For how many seconds the oldest due job has been due; None: nothing is due."""
        return max((one.oldest for one in self.lanes), default=None)

    @property
    def hindrances(self) -> list[str]:
        """Why no worker takes some of its lanes, though nothing pauses them."""
        found = {one.hindrance for one in self.lanes if one.pause is None and one.hindrance}
        return sorted(found)


def list_tasks(
    statistics: Statistics,
    workers: Sequence[WorkerRow],
    pauses: Sequence[Pause],
    history: AttemptHistory,
) -> list[TaskView]:
    """Return the tasks that wait, that live workers know, or that ran lately, by name."""
    live = list_alive(workers, statistics.now)
    held = Pauses(pauses)
    lanes = group(list_lanes(statistics, live, held), lambda one: one.task)
    series = {one.name: one for one in history.series}
    known = {task for one in live for task in (*one.tasks, *one.lacks)}
    names = {*series, *known, *lanes, *(one.name for one in pauses if one.kind == "task")}
    able = _find_able(live)
    return [
        _task(name, series.get(name), lanes.get(name, []), able.get(name, []), live, held)
        for name in sorted(names)
    ]


def _find_able(live: Iterable[WorkerRow]) -> dict[str, list[WorkerRow]]:
    """Return, by task, the workers that may run it."""
    found: dict[str, list[WorkerRow]] = {}
    for one in live:
        for task in dict.fromkeys(one.tasks):
            if task not in one.lacks:
                found.setdefault(task, []).append(one)
    return found


def _task(
    name: str,
    series: Series | None,
    lanes: list[LaneView],
    able: list[WorkerRow],
    live: Sequence[WorkerRow],
    pauses: Pauses,
) -> TaskView:
    return TaskView(
        name=name,
        series=series,
        lanes=lanes,
        due=sum(one.due for one in lanes),
        pause=pauses.find("", name, None),
        workers=able,
        lacking=[one for one in live if name in one.lacks],
        releases=Counter(one.release for one in able).most_common(),
    )


def find_quantile(buckets: Sequence[int], part: float) -> float | None:
    """Return the bound of ``BOUNDS`` below which this part of the counted values lies; infinity if
    it lies beyond all of them, None if nothing was counted."""
    whole, seen = sum(buckets), 0
    if not whole:
        return None
    for number, bound in zip(buckets, BOUNDS, strict=False):
        seen += number
        if seen >= part * whole:
            return bound
    return float("inf")
