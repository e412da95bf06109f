"""What a store holds, in numbers, on PostgreSQL: functions of a connection that reads by index.

Each statement reads a bounded number of rows; all are of the caller's one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outlast.store.postgres.statements import sql
from outlast.store.statistics import (
    DueJobs,
    EndedJobs,
    QueueCount,
    ScheduledJobs,
    Statistics,
    Undecodable,
    second_share,
    share_of,
)

if TYPE_CHECKING:
    import msgspec

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
        rows = await connection.fetch(sql(f"show_{name}"), most)
        found[name] = [kind(**row) for row in rows]
    lined, more_lanes = await _lanes(connection, most, lanes)
    waiting = await _waiting(connection, most, lanes)
    refused = (await connection.fetch(sql("show_refused")))[0]
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
    heads = await connection.fetch(sql("show_lanes"), lanes)
    oldest = {(row["queue"], row["task"]): row["oldest"] for row in heads}
    numbers: dict[tuple[str, str], int] = {}
    bounds: dict[tuple[str, str], int] = {}

    async def count(keys: Sequence[tuple[str, str]], share: int) -> None:
        queues, tasks = [key[0] for key in keys], [key[1] for key in keys]
        for row in await connection.fetch(sql("count_lanes"), queues, tasks, share):
            numbers[row["queue"], row["task"]] = row["number"]
        bounds.update(dict.fromkeys(keys, share))

    await count(list(oldest), first := share_of(most, oldest))
    full = [key for key, number in numbers.items() if number >= first]
    if full and (share := second_share(most, full)) > first:
        await count(full, share)
    found = [
        DueJobs(
            queue=queue,
            task=task,
            number=numbers[queue, task],
            oldest=at,
            at_least=numbers[queue, task] >= bounds[queue, task],
        )
        for (queue, task), at in sorted(oldest.items())
    ]
    return found, bool(heads) and heads[0]["heads"] >= lanes


async def _waiting(connection: Any, most: int, lanes: int) -> list[ScheduledJobs]:
    """Return the queues that have jobs outside the line."""
    heads = await connection.fetch(sql("show_waiting"), lanes)
    oldest = {row["queue"]: row["oldest"] for row in heads}
    found: dict[str, ScheduledJobs] = {}

    async def count(queues: Sequence[str], share: int) -> list[str]:
        full = []
        for row in await connection.fetch(sql("count_waiting"), queues, share):
            queue, due, scheduled = row
            bounded = {"due_at_least": due >= share, "scheduled_at_least": scheduled >= share}
            found[queue] = ScheduledJobs(oldest=oldest[queue], **row, **bounded)
            full += [queue] if any(bounded.values()) else []
        return full

    full = await count(list(oldest), first := share_of(most // 2, oldest))
    if full and (share := second_share(most // 2, full)) > first:
        await count(full, share)
    return list(found.values())
