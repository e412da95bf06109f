"""``outlast dead groups``: group dead jobs by cause of death."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, count_of, line
from outlast.cli.connect import on_store
from outlast.cli.options import Json, Queue, TaskName, Tenant, Url
from outlast.insight.deaths import DeathGroup, DeathGroups, dead_groups_document, read_dead_groups
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

NAME_MAX, CAUSE_MAX = 60, 80


def groups(
    task: TaskName = None,
    queue: Queue = None,
    tenant: Tenant = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Group dead jobs by cause: task, kind, exception, and place in your code.

    The groups with the latest deaths come first. The newest 20,000 dead jobs are read; 2,000 with
    --task, --queue or --tenant.

    Examples:
        outlast dead groups
        outlast dead list --group 2f6c01ab99e04d17
        outlast dead requeue --group 2f6c01ab99e04d17
    """
    which = JobFilter(task=task, queue=queue, tenant=tenant)

    async def look(store: Store) -> DeathGroups:
        return await read_dead_groups(store, which)

    found = on_store(url, look)
    from outlast.cli.show import console, print_json

    if json:
        print_json(dead_groups_document(found))
        return
    out = console()
    out.print(_table(out, found.groups, SYSTEM.wall()) if found.groups else "no dead jobs")
    if found.full:
        text = f"of the newest {count_of(found.looked_at, 'dead job')}; there are more"
        out.print(text, style="dim", soft_wrap=True)


def _table(out: Console, groups: Sequence[DeathGroup], now: float) -> RenderableType:
    from outlast.cli.grid import table

    rows = [
        {
            "jobs": str(one.number),
            "task": line(one.task, NAME_MAX),
            "died of": line(describe_cause(one), CAUSE_MAX),
            "in": line(one.place, NAME_MAX),
            "last": ago(one.last_at, now),
            "group": line(one.group),
            "as in": f"job {one.job_id}",
        }
        for one in groups
    ]
    return table(rows, out.width)


def describe_cause(group: DeathGroup) -> str:
    """Return how the jobs of a group ended: ``error: ValueError``."""
    kind = group.kind or "an unknown end"
    return f"{kind}: {group.exception}" if group.exception else kind
