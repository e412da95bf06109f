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
    ``at_least``: there may be more."""

    queue: str
    task: str
    number: int
    oldest: float
    at_least: bool = False


class ScheduledJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one queue outside the line: due ones, the first since ``oldest``, and scheduled
    ones. ``due_at_least``, ``scheduled_at_least``: there may be more."""

    queue: str
    due: int
    scheduled: int
    oldest: float | None = None
    due_at_least: bool = False
    scheduled_at_least: bool = False

    def is_at_least(self) -> bool:
        """Whether there may be more of either kind."""
        return self.due_at_least or self.scheduled_at_least


class QueueCount(msgspec.Struct, frozen=True):
    """A number of jobs of a queue."""

    queue: str
    number: int


class EndedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The completed or cancelled jobs of one queue among the jobs that ended last, and how many of
    them ended within the last minute and hour."""

    queue: str
    state: str
    number: int
    minute: int
    hour: int


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
        lanes: the line, by queue and task. waiting: jobs outside it, by queue. All lanes share
            ``most`` rows, and so do all queues that wait: see ``Shares``.
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
    waiting: list[ScheduledJobs]
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
    waiting = await _count_waiting(rows, most, lanes)
    (refused,) = await rows("statistics", "refused")
    return Statistics(
        now=refused["now"],
        lanes=lined,
        waiting=waiting,
        refused=refused["number"],
        limits=await count_limits(rows, most),
        most=most,
        more_lanes=more_lanes or len(waiting) >= lanes,
        **found,
    )


async def _count_lanes(rows: Rows, most: int, lanes: int) -> tuple[list[DueJobs], bool]:
    """Return the lanes of the line, and whether there are more."""
    heads = await rows("statistics", "lanes", lanes=lanes)
    oldest = {(row["queue"], row["task"]): row["oldest"] for row in heads}
    found: dict[tuple[str, str], DueJobs] = {}
    shares = Shares(most, oldest)
    while shares.keys:
        queues, tasks = (list(names) for names in zip(*shares.keys, strict=True))
        values = {"queues": queues, "tasks": tasks, "most": shares.rows}
        for row in await rows("statistics", "count_lanes", **values):
            key = row["queue"], row["task"]
            is_full = row["number"] >= shares.rows
            found[key] = DueJobs(oldest=oldest[key], at_least=is_full, **row)
        shares.go_on([key for key, each in found.items() if each.at_least])
    return [found[key] for key in sorted(found)], bool(heads) and heads[0]["heads"] >= lanes


async def _count_waiting(rows: Rows, most: int, lanes: int) -> list[ScheduledJobs]:
    """Return the queues that have jobs outside the line."""
    heads = await rows("statistics", "waiting", lanes=lanes)
    oldest = {row["queue"]: row["oldest"] for row in heads}
    found: dict[str, ScheduledJobs] = {}
    shares = Shares(most // 2, oldest)
    while shares.keys:
        values = {"queues": shares.keys, "most": shares.rows}
        for row in await rows("statistics", "count_waiting", **values):
            found[row["queue"]] = ScheduledJobs(
                oldest=oldest[row["queue"]],
                due_at_least=row["due"] >= shares.rows,
                scheduled_at_least=row["scheduled"] >= shares.rows,
                **row,
            )
        shares.go_on([queue for queue, each in found.items() if each.is_at_least()])
    return list(found.values())
