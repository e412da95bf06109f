"""Count the jobs that ran lately, minute by minute, for sparklines and programs.

The numbers come from the workers' counts (``store/minutes.py``), not from the jobs, so reading them
costs the same however many jobs there are, and they stay when jobs are pruned. A worker hands in
its counts once a minute: the last step grows for that long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

from outlast.insight.resource import SCHEMA, Document, iso
from outlast.model.kinds import Time
from outlast.store.inspector import ReadableStore
from outlast.store.minutes import BOUNDS, BUCKETS, MINUTE_SECONDS, Ended, MinuteFilter, Minutes

N = TypeVar("N", int, float)
HOUR = 3_600.0
POINTS_MAX = 720  # steps that are returned
SERIES_MAX = 500  # the most series, the busiest
NOT_FAILED = frozenset({"completed", "cancelled", "released", "snoozed", "bystander"})
"""Outcomes of attempts in which nothing went wrong with the job itself."""
By = Literal["all", "queue", "task", "outcome"]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The counts under one name (a queue, a task, an outcome; none: all together), one number for
    each step.

    Attributes:
        name: the queue, task or outcome.
        attempts, completed, failed: attempts that ended then; attempts that completed their job;
            and failed attempts (``NOT_FAILED`` names the outcomes that are not).
        seconds, waited: how long attempts ran, and how long they had been due before, on average in
            that step; None if none ended.
        durations, waits: how many attempts of all steps ran, and had been due, for at most each of
            ``BOUNDS``; the last number counts longer ones.
    """

    name: str
    attempts: list[int]
    completed: list[int]
    failed: list[int]
    seconds: list[float | None]
    waited: list[float | None]
    durations: list[int]
    waits: list[int]


class AttemptHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The steps from ``since`` on, each of ``step`` seconds (times: seconds since 1970), and one
    series for each name, the busiest first. ``whole_since``: earlier numbers are incomplete, since
    more was counted than one read returns; None: all are complete. ``more``: less busy
    names are left out."""

    now: float
    since: int
    step: int
    series: list[Series]
    whole_since: int | None = None
    more: bool = False

    @property
    def times(self) -> list[int]:
        """The times at which the steps begin."""
        steps = len(self.series[0].attempts) if self.series else 0
        return [self.since + self.step * number for number in range(steps)]


async def read_history(
    store: ReadableStore,
    *,
    seconds: float = HOUR,
    step: int | None = None,
    by: By = "queue",
    queue: str | None = None,
    task: str | None = None,
) -> AttemptHistory:
    """Return the counts of the last ``seconds`` (a day at most), in steps of ``step`` seconds
    (whole minutes; by default about 60 of them), by queue, task or outcome; of one queue or task
    only, if named. At most POINTS_MAX steps and the SERIES_MAX busiest series."""
    seconds = min(max(seconds, 60.0), float(MINUTE_SECONDS))
    step = _choose_step(seconds, step)
    which = MinuteFilter(queue=queue, task=task, by_queue=by == "queue", by_task=by == "task")
    found = await store.inspector.minutes(seconds, which=which)
    return _history(found, seconds, step, by)


async def read_last_hour(store: ReadableStore) -> tuple[Series | None, AttemptHistory]:
    """Return the counts of the last hour by minute, all together (None: there are none) and by
    queue, from one read."""
    found = await store.inspector.minutes(HOUR, which=MinuteFilter(by_queue=True))
    together, by_queue = (_history(found, HOUR, 60, by) for by in ("all", "queue"))
    return next(iter(together.series), None), by_queue


def _choose_step(seconds: float, step: int | None) -> int:
    """Return a step of whole minutes, within POINTS_MAX."""
    wanted = max(seconds / 60 if step is None else step, seconds / POINTS_MAX, 60)
    return -(-int(wanted) // 60) * 60


def _history(found: Minutes, seconds: float, step: int, by: By) -> AttemptHistory:
    first, last = (int(at // step) * step for at in (found.now - seconds, found.now))
    groups: dict[str, list[Ended]] = {}
    for each in found.ended:
        name: str = "" if by == "all" else getattr(each, by)
        groups.setdefault(name, []).append(each)
    busiest = sorted(groups.items(), key=lambda one: (-sum(sum(e.jobs) for e in one[1]), one[0]))
    steps = range(first, last + 1, step)
    return AttemptHistory(
        now=found.now,
        since=first,
        step=step,
        series=[_series(name, rows, steps) for name, rows in busiest[:SERIES_MAX]],
        whole_since=found.oldest if found.is_cut else None,
        more=len(busiest) > SERIES_MAX,
    )


def _series(name: str, rows: Iterable[Ended], steps: range) -> Series:
    attempts, completed, failed = ([0] * len(steps) for _ in range(3))
    times = [[0.0] * len(steps) for _ in range(4)]
    durations, waits = [0] * BUCKETS, [0] * BUCKETS
    for row in rows:
        places = _places(row.at, steps)
        _add(attempts, places, row.jobs)
        if row.outcome == "completed":
            _add(completed, places, row.jobs)
        elif row.outcome not in NOT_FAILED:
            _add(failed, places, row.jobs)
        for mine, numbers in zip(times, (row.seconds, row.waited, row.ran, row.due), strict=True):
            _add(mine, places, numbers)
        _add(durations, range(BUCKETS), row.durations)
        _add(waits, range(BUCKETS), row.waits)
    seconds, waited, ran, due = times
    return Series(
        name=name,
        attempts=attempts,
        completed=completed,
        failed=failed,
        seconds=_means(seconds, ran),
        waited=_means(waited, due),
        durations=durations,
        waits=waits,
    )


def _places(times: Iterable[int], steps: range) -> list[int]:
    """Return the index of the step of each time, the nearest if it lies beyond all steps."""
    first, step, last = steps.start, steps.step, len(steps) - 1
    return [min(max(0, (at - first) // step), last) for at in times]


def _add(mine: list[N], places: Iterable[int], numbers: Iterable[N]) -> None:
    for place, number in zip(places, numbers, strict=False):
        mine[place] += number


def _means(totals: list[float], numbers: list[float]) -> list[float | None]:
    both = zip(totals, numbers, strict=True)
    return [total / number if number else None for total, number in both]


HISTORY: dict[str, Any] = {
    "now": Time,
    "since": Time,
    "step": int,
    "whole_since": Time | None,  # pyright: ignore[reportOperatorIssue]
    "bounds": list[float],
    "series": list[Series],
    "more": bool,
}
"""The types in the document of a history."""


def history_document(history: AttemptHistory) -> Document:
    """Return a history as one JSON document; ``bounds`` are the bounds of the buckets, in
    seconds."""
    whole = history.whole_since
    return {
        "schema": SCHEMA,
        "now": iso(history.now),
        "since": iso(history.since),
        "step": history.step,
        "whole_since": None if whole is None else iso(whole),
        "bounds": list(BOUNDS),
        "series": [msgspec.to_builtins(each) for each in history.series],
        "more": history.more,
    }
