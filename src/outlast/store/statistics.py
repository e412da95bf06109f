"""Counts a store for people: bounded, so that a look costs little however many jobs there are.

A number that has reached its bound means "or more".
"""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.store.limit_counts import Shares, count_limits
from outlast.store.limits import LimitRow
from outlast.store.statements import Rows

COUNT_MAX = 10_000  # jobs that are counted for an autoscaler
PLACE_MAX = 800  # jobs that are counted before one job
NAMED_MAX = 10  # jobs that are named one by one
STATISTICS_MAX = 4_000  # rows that are counted for one figure
UNENCRYPTED_MAX = 10_000  # jobs whose payloads are read
LANES_MAX = 1_000  # queues x tasks x priorities that are read


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one job stands among the others: due jobs of its queue that are claimed ``before`` it,
    at most PLACE_MAX; other jobs of the ``incident`` that made it a suspect, at most NAMED_MAX; and
    another unfinished job with its key."""

    before: int = 0
    incident: list[int] = []
    key_holder: int | None = None


class DueJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The due jobs of one task in one queue: how many, and since when the oldest has been due.
    ``at_least``: there may be more, and older ones."""

    queue: str
    task: str
    number: int
    oldest: float
    at_least: bool = False


class ScheduledJobs(msgspec.Struct, frozen=True):
    """The jobs of one queue that wait for their time. ``at_least``: there may be more."""

    queue: str
    number: int
    at_least: bool = False


class QueueCount(msgspec.Struct, frozen=True):
    """A number of jobs of a queue."""

    queue: str
    number: int


class EndedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The completed or cancelled jobs of one queue among the jobs that ended last, how many of them
    ended within the last minute and hour, and how many have their own retention (``kept``)."""

    queue: str
    state: str
    number: int
    minute: int
    hour: int
    kept: int = 0


class Undecodable(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting jobs of one task in one queue that no release has decoded: how many, the most tries
    in a row, and a release that tried (None: it has no name)."""

    queue: str
    task: str
    number: int
    repeats: int
    release: str | None = None


class Unencrypted(msgspec.Struct, frozen=True, kw_only=True):
    """How many unfinished jobs of one task were read, and how many have plain arguments or a plain
    checkpoint."""

    task: str
    looked_at: int
    number: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about the contents of a store: each is counted by index and stops at ``most``.

    Attributes:
        now: the store's now, in seconds since 1970.
        lanes: due jobs, by queue and task. scheduled: jobs that wait for their time, by queue. All
            lanes of the line share ``most`` rows, and so do all queues outside it: see ``Shares``.
        running, suspects, blocked, dead: by queue; suspects wait to run alone.
        ended: of the ``most`` jobs that ended last (dead ones apart), by queue and state.
        undecodable: jobs that wait for a release that can decode them, by queue and task.
        refused: writes refused within the last day, among those that are kept.
        limits: all limits, with what runs and what waits under them.
        most: rows that were counted for one figure: a number that reaches it means "or more".
        more_lanes: more lanes or queues wait than were read.
    """

    now: float
    lanes: list[DueJobs]
    scheduled: list[ScheduledJobs]
    running: list[QueueCount]
    suspects: list[QueueCount]
    blocked: list[QueueCount]
    dead: list[QueueCount]
    ended: list[EndedJobs]
    undecodable: list[Undecodable] = []
    refused: int = 0
    limits: list[LimitRow] = []
    most: int = STATISTICS_MAX
    more_lanes: bool = False


_ByLane = dict[tuple[str, str], DueJobs]
_FIGURES: dict[str, type[msgspec.Struct]] = {
    "running": QueueCount,
    "suspects": QueueCount,
    "blocked": QueueCount,
    "dead": QueueCount,
    "ended": EndedJobs,
    "undecodable": Undecodable,
}


async def count(rows: Rows, most: int, lanes: int) -> Statistics:
    """Return numbers about the store in one snapshot, each counted up to ``most``."""
    found: dict[str, Any] = {}
    for name, kind in _FIGURES.items():
        found[name] = [kind(**row) for row in await rows("statistics", name, most=most)]
    lined, more_lanes = await _count_lanes(rows, most, lanes)
    overdue, scheduled = await _count_waiting(rows, most, lanes)
    (refused,) = await rows("statistics", "refused")
    return Statistics(
        now=refused["now"],
        lanes=_add_up(lined, overdue),
        scheduled=scheduled,
        refused=refused["number"],
        limits=await count_limits(rows, most),
        most=most,
        more_lanes=more_lanes or len(scheduled) >= lanes,
        **found,
    )


def _add_up(lined: _ByLane, overdue: _ByLane) -> list[DueJobs]:
    """Return one entry for each queue and task."""
    found = lined | overdue
    for key in lined.keys() & overdue.keys():
        one, other = lined[key], overdue[key]
        number, oldest = one.number + other.number, min(one.oldest, other.oldest)
        at_least = one.at_least or other.at_least
        found[key] = msgspec.structs.replace(one, number=number, oldest=oldest, at_least=at_least)
    return [found[key] for key in sorted(found)]


async def _count_lanes(rows: Rows, most: int, lanes: int) -> tuple[_ByLane, bool]:
    """Return the lanes of the line, and whether there are more."""
    heads = await rows("statistics", "lanes", lanes=lanes)
    first = {(row["queue"], row["task"]): row["oldest"] for row in heads}
    found: _ByLane = {}
    shares = Shares(most, first)
    while shares.keys:
        queues, tasks = (list(names) for names in zip(*shares.keys, strict=True))
        values = {"queues": queues, "tasks": tasks, "most": shares.rows}
        for row in await rows("statistics", "count_lanes", **values):
            key, is_full = (row["queue"], row["task"]), row["number"] >= shares.rows
            if is_full:
                row["oldest"] = min(row["oldest"], first[key])
            if row["number"]:  # otherwise all of them are suspects
                found[key] = DueJobs(**row, at_least=is_full)
        shares.go_on([key for key, each in found.items() if each.at_least])
    return found, bool(heads) and heads[0]["heads"] >= lanes


async def _count_waiting(rows: Rows, most: int, lanes: int) -> tuple[_ByLane, list[ScheduledJobs]]:
    """Return the jobs outside the line: due ones, by queue and task, and for each queue the
    others."""
    overdue: _ByLane = {}
    scheduled: dict[str, ScheduledJobs] = {}
    queues = await rows("statistics", "waiting", lanes=lanes)
    shares = Shares(most // 2, [row["queue"] for row in queues])
    while shares.keys:
        values = {"queues": shares.keys, "most": shares.rows}
        for row in await rows("statistics", "count_overdue", **values):
            is_full = row.pop("looked_at") >= shares.rows
            overdue[row["queue"], row["task"]] = DueJobs(**row, at_least=is_full)
        for row in await rows("statistics", "count_scheduled", **values):
            scheduled[row["queue"]] = ScheduledJobs(**row, at_least=row["number"] >= shares.rows)
        full = {one.queue for one in overdue.values() if one.at_least}
        full |= {one.queue for one in scheduled.values() if one.at_least}
        shares.go_on(list(full))
    return overdue, list(scheduled.values())
