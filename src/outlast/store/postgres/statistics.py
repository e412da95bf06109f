"""What a store holds, in numbers, on PostgreSQL: functions of a connection that reads by index.

Each statement reads a bounded number of rows; all are of the caller's one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.store.statements import statements
from outlast.store.statistics import (
    DueJobs,
    EndedJobs,
    QueueCount,
    ScheduledJobs,
    Shares,
    Statistics,
    Undecodable,
)

if TYPE_CHECKING:
    import msgspec

_SQL = statements("postgres", "statistics")

_FIGURE: dict[str, type[msgspec.Struct]] = {
    "running": QueueCount,
    "suspects": QueueCount,
    "dead": QueueCount,
    "ended": EndedJobs,
    "undecodable": Undecodable,
}


async def statistics(connection: Any, most: int, lanes: int) -> Statistics:
    """Return what the store holds; each figure is counted up to ``most``."""
    found: dict[str, Any] = {}
    for name, kind in _FIGURE.items():
        rows = await connection.fetch(_SQL[name], most)
        found[name] = [kind(**row) for row in rows]
    lined, more_lanes = await _lanes(connection, most, lanes)
    waiting = await _waiting(connection, most, lanes)
    refused = (await connection.fetch(_SQL["refused"]))[0]
    return Statistics(
        now=refused["now"],
        lanes=lined,
        waiting=waiting,
        refused=refused["number"],
        most=most,
        more_lanes=more_lanes or len(waiting) >= lanes,
        **found,
    )


async def _lanes(connection: Any, most: int, lanes: int) -> tuple[list[DueJobs], bool]:
    """Return the lanes of the line, and whether there are more."""
    heads = await connection.fetch(_SQL["lanes"], lanes)
    oldest = {(row["queue"], row["task"]): row["oldest"] for row in heads}
    found: dict[tuple[str, str], DueJobs] = {}
    shares = Shares(most, oldest)
    while shares.keys:
        queues, tasks = zip(*shares.keys, strict=True)
        for row in await connection.fetch(_SQL["count_lanes"], queues, tasks, shares.rows):
            key = row["queue"], row["task"]
            is_full = row["number"] >= shares.rows
            found[key] = DueJobs(oldest=oldest[key], at_least=is_full, **row)
        shares.go_on([key for key, each in found.items() if each.at_least])
    return [found[key] for key in sorted(found)], bool(heads) and heads[0]["heads"] >= lanes


async def _waiting(connection: Any, most: int, lanes: int) -> list[ScheduledJobs]:
    """Return the queues that have jobs outside the line."""
    heads = await connection.fetch(_SQL["waiting"], lanes)
    oldest = {row["queue"]: row["oldest"] for row in heads}
    found: dict[str, ScheduledJobs] = {}
    shares = Shares(most // 2, oldest)
    while shares.keys:
        for row in await connection.fetch(_SQL["count_waiting"], shares.keys, shares.rows):
            queue, due, scheduled = row
            found[queue] = ScheduledJobs(
                oldest=oldest[queue],
                due_at_least=due >= shares.rows,
                scheduled_at_least=scheduled >= shares.rows,
                **row,
            )
        shares.go_on([queue for queue, each in found.items() if each.is_at_least()])
    return list(found.values())
