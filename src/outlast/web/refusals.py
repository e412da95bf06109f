"""``/refusals``: writes of attempts that had lost their job, by verb and worker, newest first."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from outlast.insight.queries import REFUSALS_MAX
from outlast.store.protocol import Store
from outlast.store.rows import RefusalRow
from outlast.web.endpoint import Endpoint
from outlast.web.listing import ROWS, read_name, read_number
from outlast.web.visit import Visit

HOUR = 3_600.0


async def show_refusals(visit: Visit) -> Response:
    """Show the newest refused writes."""

    async def look(store: Store) -> list[RefusalRow]:
        return await store.inspector.refusals(limit=REFUSALS_MAX)

    rows = await visit.ask("refusals", look)
    verb, worker = read_name(visit.query, "verb"), read_name(visit.query, "worker")
    before = read_number(visit.query, "before")
    chosen = [one for one in rows if verb in {None, one.verb} and worker in {None, one.worker}]
    chosen = [one for one in chosen if before is None or one.id < before]
    return visit.show(
        "refusals.html",
        rows=chosen[:ROWS],
        before=before,
        next_before=chosen[ROWS - 1].id if len(chosen) > ROWS else None,
        verbs=Counter(one.verb for one in rows).most_common(),
        workers=Counter(one.worker for one in rows if one.worker).most_common(10),
        verb=verb,
        worker=worker,
        hour=sum(one.at > visit.now - HOUR for one in rows),
        kept=len(rows),
        most=REFUSALS_MAX,
    )


ENDPOINTS = [Endpoint("/refusals", show_refusals)]
