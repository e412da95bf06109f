"""Point out names in a filter that do not exist, if it finds nothing: perhaps they are misspelt."""

from __future__ import annotations

from outlast.base.text import line
from outlast.cli.errors import say
from outlast.insight.pauses import is_named, name_of
from outlast.insight.queries import find_jobs
from outlast.model.job import State
from outlast.model.pause import PauseKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter

NAME_MAX = 80  # characters


async def tell_unknown(store: Store, which: JobFilter) -> None:
    """Say on stderr which names of a filter do not exist, as far as one search of the jobs
    shows."""
    for kind in (PauseKind.QUEUE, PauseKind.TASK, PauseKind.TENANT):
        name = getattr(which, kind)
        if name is not None and not await is_named(store, kind, name):
            say(f"no job and no worker has {name_of(kind, name)}")
    if which.label is not None:
        labelled = await store.inspector.job_ids(JobFilter(label=which.label, limit=1))
        if not labelled.ids and labelled.before is None:
            say(f"no job has the label '{line(which.label, NAME_MAX)}'")
    if (group := which.fingerprint) is not None:
        dead = await find_jobs(store, JobFilter(state=State.DEAD, fingerprint=group, limit=1))
        if not dead.ids and dead.before is None:
            say(f"no dead job has the group '{line(group, NAME_MAX)}'")
