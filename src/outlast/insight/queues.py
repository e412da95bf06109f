"""Describe queues, their lanes and tasks: what waits, who takes it, what hinders it, when it will
be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from outlast.insight.availability import drains, hindrance, knows, list_alive, serves
from outlast.insight.history import AttemptHistory, Series
from outlast.insight.resource import SCHEMA, Document
from outlast.insight.stats import COUNTS, Overview
from outlast.model.pause import Pause, Pauses
from outlast.store.minutes import BOUNDS
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow
from outlast.store.statistics import COUNT_MAX, Statistics

T = TypeVar("T")
HOUR, MINUTE = 3_600.0, 60.0


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """The due jobs of one task in one queue.

    Attributes:
        due: how many; ``at_least``: there may be more. ``oldest``: for how many seconds the oldest
            has been due.
        pause: the pause that holds them, if any.
        hindrance: why no worker takes them, as a position of ``outlast why``; None: one does.
        live: all live workers.
    """

    queue: str
    task: str
    due: int
    oldest: float
    pause: Pause | None
    hindrance: str | None
    live: Sequence[WorkerRow]
    at_least: bool = False

    @property
    def workers(self) -> list[WorkerRow]:
        """The live workers that take these jobs, by name."""
        return [one for one in self.live if knows(one, self.task) and serves(one, self.queue)]


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """One queue.

    Attributes:
        counts: by the words of ``outlast stats``; ``at_least``: the counts that stopped at their
            bound.
        oldest: for how many seconds the oldest due job has been due; None: nothing is due.
        per_minute: completed jobs, as workers count them, on average over the last five whole
            minutes or, if none completed in them, over the last hour.
        to_empty: seconds until all due jobs are done at that rate; None: unknown.
        pause: the pause of this queue, or of everything.
        lanes: the lanes with due jobs. ``workers``: the workers that take jobs of this queue.
    """

    name: str
    counts: dict[str, int]
    at_least: list[str]
    oldest: float | None
    per_minute: float
    to_empty: float | None
    pause: Pause | None
    lanes: list[LaneView]
    workers: list[WorkerRow]

    @property
    def hindered(self) -> list[LaneView]:
        """The lanes that no worker takes, though nothing pauses them."""
        return [one for one in self.lanes if one.hindrance is not None and one.pause is None]


def list_queues(seen: Overview, lately: Mapping[str, Series]) -> list[QueueView]:
    """Return, by name, the queues that have jobs, a pause, or a worker that names them, and the
    queues that were busy in the last hour, of which ``lately`` has the minutes."""
    statistics, workers, pauses = seen.statistics, seen.workers, Pauses(seen.pauses)
    counted = {one["queue"]: one for one in seen.stats["queues"]}
    live = list_alive(workers)
    named = {queue for one in live for queue in one.queues}
    paused = {one.name for one in pauses.listed if one.kind == "queue"}
    lanes = group(list_lanes(statistics, live, pauses), lambda one: one.queue)
    found = []
    for name in sorted({*counted, *named, *paused, *lately}):
        told = counted.get(name, _NOTHING)
        due, per_minute = told["due"], _rate(lately.get(name))
        found.append(
            QueueView(
                name=name,
                counts={key: value for key, value in told.items() if type(value) is int},
                at_least=told["at_least"],
                oldest=told["oldest_due_seconds"],
                per_minute=per_minute,
                to_empty=due / per_minute * MINUTE if due and per_minute else None,
                pause=pauses.find(name, "", None),
                lanes=lanes.get(name, []),
                workers=[one for one in live if serves(one, name) and not drains(one)],
            )
        )
    return found


def group(many: Iterable[T], name_of: Callable[[T], str]) -> dict[str, list[T]]:
    """Group items by name."""
    found: dict[str, list[T]] = {}
    for one in many:
        found.setdefault(name_of(one), []).append(one)
    return found


def list_lanes(statistics: Statistics, live: Sequence[WorkerRow], pauses: Pauses) -> list[LaneView]:
    """Return the lanes with due jobs, and which of these live workers take them."""
    return [
        LaneView(
            queue=one.queue,
            task=one.task,
            due=one.number,
            at_least=one.at_least,
            oldest=max(0.0, statistics.now - one.oldest),
            pause=pauses.find(one.queue, one.task, None),
            hindrance=hindrance(live, one.queue, one.task),
            live=live,
        )
        for one in statistics.lanes
    ]


_NOTHING: Document = {
    "at_least": [],
    "oldest_due_seconds": None,
    **dict.fromkeys(COUNTS, 0),
}


def _rate(lately: Series | None) -> float:
    """Return completed jobs per minute. The last minute is not over."""
    done = [] if lately is None else lately.completed
    return sum(done[-6:-1]) / 5 or sum(done) / 60


SCALE = {"queue": str, "wanted": int, "at_least": bool}


async def read_scale(store: Store, queue: str) -> Document:
    """Return how many jobs of a queue want a worker, as one JSON document: ``wanted`` counts due
    jobs that more workers would take, and running jobs, of the first COUNT_MAX of all queues. The
    count stops at COUNT_MAX; ``at_least`` shows that. On PostgreSQL ``SELECT
    outlast_wanted_v1('QUEUE')`` is the same number."""
    wanted = await store.inspector.wanted(queue)
    return {"schema": SCHEMA, "queue": queue, "wanted": wanted, "at_least": wanted >= COUNT_MAX}


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """One task.

    Attributes:
        series: the workers' recent counts of it, if any.
        lanes: its due jobs, queue by queue.
        pause: the pause of this task, or of everything.
        workers: live workers that may run it; ``lacking``: live workers that know it and lack a
            tag.
    """

    name: str
    series: Series | None
    lanes: list[LaneView]
    pause: Pause | None
    workers: list[WorkerRow]
    lacking: list[WorkerRow]

    @property
    def due(self) -> int:
        """The number of its due jobs, which may be too low."""
        return sum(one.due for one in self.lanes)

    @property
    def releases(self) -> list[tuple[str | None, int]]:
        """The releases of the workers that may run it -> how many; None: without a name."""
        return Counter(one.release for one in self.workers).most_common()

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
    live = list_alive(workers)
    held = Pauses(pauses)
    lanes = group(list_lanes(statistics, live, held), lambda one: one.task)
    series = {one.name: one for one in history.series}
    known = {task for one in live for task in (*one.tasks, *one.lacks)}
    names = {*series, *known, *lanes, *(one.name for one in pauses if one.kind == "task")}
    eligible = _find_eligible(live)
    return [
        TaskView(
            name=name,
            series=series.get(name),
            lanes=lanes.get(name, []),
            pause=held.find("", name, None),
            workers=eligible.get(name, []),
            lacking=[one for one in live if name in one.lacks],
        )
        for name in sorted(names)
    ]


def _find_eligible(live: Iterable[WorkerRow]) -> dict[str, list[WorkerRow]]:
    """Return, by task, the workers that may run it."""
    found: dict[str, list[WorkerRow]] = {}
    for one in live:
        for task in dict.fromkeys(one.tasks):
            if task not in one.lacks:
                found.setdefault(task, []).append(one)
    return found


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
