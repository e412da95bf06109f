"""``/workers`` and ``/workers/3``: show each worker's health, its jobs and what it fails at."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.availability import health, holds
from outlast.insight.queries import WorkerList, list_workers
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import (
    AttemptFilter,
    EndedAttempt,
    JobFilter,
    RefusalRow,
    StoredJob,
    WorkerRow,
)
from outlast.web.endpoint import Endpoints
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
GONE_SHOWN = 50
LIVE_SHOWN = 500
HELD_SHOWN = 100
DEATHS_SHOWN = 20
TEXT_MAX = 200
URGENCY = {"dead": 0, "silent": 1, "failing": 2}  # health -> place in the list


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as pages show it. ``refused``: its writes of the last day that the store refused."""

    row: WorkerRow
    refused: int

    @property
    def health(self) -> str:
        """As ``availability.health`` says."""
        return health(self.row)

    @property
    def status(self) -> str:
        """The most telling word: what is wrong, else the status on its row."""
        if self.health in URGENCY:
            return self.health
        asked = self.row.drain_requested and self.row.status.value == "active"
        return "draining" if asked else self.row.status.value

    @property
    def age(self) -> float:
        """The time since its last beat as a fraction of its lease, at most 1."""
        return min(1.0, self.row.unheard / self.row.lease) if self.row.lease > 0 else 1.0


@ENDPOINTS.at("/workers")
async def show_workers(visit: Visit) -> Response:
    """Show all workers: workers that need attention first."""
    found = await visit.ask("workers", list_workers)
    refused = found.refused(visit.now)
    views = [WorkerView(row=row, refused=refused[row.name]) for row in found.rows]
    here = [one for one in views if holds(one.row)]
    here.sort(key=lambda one: (URGENCY.get(one.health, len(URGENCY)), one.row.name, one.row.id))
    gone = [one for one in views if not holds(one.row)]
    gone.sort(key=lambda one: one.row.stopped_at or one.row.heartbeat_at, reverse=True)
    return visit.show(
        "workers.html",
        here=here[:LIVE_SHOWN],
        here_hidden=max(0, len(here) - LIVE_SHOWN),
        gone=gone[:GONE_SHOWN],
        gone_hidden=max(0, len(gone) - GONE_SHOWN),
        running=sum(one.row.running for one in here),
    )


class WorkerPage(msgspec.Struct, frozen=True):
    """The content of a worker's page. ``more``: it runs more jobs than are listed."""

    workers: WorkerList
    held: list[StoredJob]
    more: bool
    ends: list[EndedAttempt]
    refusals: list[RefusalRow]


@ENDPOINTS.at("/workers/{worker_id:int}")
async def show_worker(visit: Visit) -> Response:
    """Show one worker."""
    number: int = visit.request.path_params["worker_id"]
    page = await visit.ask(("worker", number), lambda store: _read_worker(store, number))
    row = next((one for one in page.workers.rows if one.id == number), None)
    if row is None:
        text = f"No worker has the id {number}; workers that ended are shown for a week."
        raise WebRefusal(404, "No such worker", text)
    refused = page.workers.refused(visit.now)
    return visit.show(
        "worker.html",
        worker=WorkerView(row=row, refused=refused[row.name]),
        page=page,
        asked=visit.query.get("done") == "asked",
    )


async def _read_worker(store: Store, number: int) -> WorkerPage:
    workers = await list_workers(store)
    which = JobFilter(state=State.RUNNING, worker_id=number, limit=HELD_SHOWN)
    held = await store.inspector.job_ids(which)
    ends = AttemptFilter(worker_id=number, limit=DEATHS_SHOWN)
    mine = {one.name for one in workers.rows if one.id == number}
    return WorkerPage(
        workers=workers,
        held=await store.inspector.jobs_of(held.ids, TEXT_MAX),
        more=held.before is not None,
        ends=(await store.inspector.ended_attempts(ends)).rows,
        refusals=[one for one in workers.refusals if one.worker in mine][:DEATHS_SHOWN],
    )
