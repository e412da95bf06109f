"""Names of queues that nothing knows: a worker that serves only such a queue waits in silence."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from difflib import get_close_matches

from outlast.errors import OutlastError, StoreError
from outlast.events import emit
from outlast.insight.schedules import call_of
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter

SCHEDULES_LOOKED_AT = 500
ROWS_LOOKED_AT = 1_000  # of a queue that may have no job


async def tell_unknown_queues(
    store: Store, queues: Collection[str], known: Collection[str]
) -> None:
    """Emit ``queue_unknown`` for each queue that no task (``known``: theirs), schedule or job has,
    with the name that may be meant. A store that does not answer is the worker's business."""
    names = {*known}
    if not {*queues} - names:
        return
    with contextlib.suppress(StoreError):
        for row in await store.inspector.schedules(SCHEDULES_LOOKED_AT):
            with contextlib.suppress(OutlastError):
                names.add(call_of(row).queue)
        for queue in sorted({*queues} - names):
            looked = JobFilter(queue=queue, limit=1, look_rows=ROWS_LOOKED_AT)
            if not (await store.inspector.job_ids(looked)).ids:
                near = get_close_matches(queue, sorted(names), n=1)
                emit("queue_unknown", queue=queue, near=near[0] if near else None)
