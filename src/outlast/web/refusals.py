"""``/refusals``: list writes of attempts that had lost their job, by verb and worker, newest
first."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from outlast.insight.queries import REFUSALS_MAX
from outlast.store.rows import RefusalRow
from outlast.web.endpoint import Endpoints
from outlast.web.visit import ROWS, Visit

ENDPOINTS = Endpoints()
HOUR = 3_600.0


@ENDPOINTS.at("/refusals")
async def show_refusals(visit: Visit) -> Response:
    """Show the newest refused writes."""
    verb, worker = visit.read_name("verb"), visit.read_name("worker")
    before = visit.read_number("before")
    rows = await _read(visit, None)
    older = rows if before is None else await _read(visit, before)
    chosen = [one for one in older if verb in {None, one.verb} and worker in {None, one.worker}]
    more = older[-1].id if len(older) >= REFUSALS_MAX else None
    return visit.show(
        "refusals.html",
        rows=chosen[:ROWS],
        before=before,
        next_before=chosen[ROWS - 1].id if len(chosen) > ROWS else more,
        is_full=len(chosen) >= ROWS,
        verbs=Counter(one.verb for one in rows).most_common(),
        workers=Counter(one.worker for one in rows if one.worker).most_common(10),
        verb=verb,
        worker=worker,
        hour=sum(one.at > visit.now - HOUR for one in rows),
        kept=len(rows),
        most=REFUSALS_MAX,
    )


async def _read(visit: Visit, before: int | None) -> list[RefusalRow]:
    """Return the newest refused writes, or the newest before this id."""
    return await visit.ask(
        ("refusals", before),
        lambda store: store.inspector.refusals(limit=REFUSALS_MAX, before_id=before),
    )
