"""``/flows``: show recent flows, and one of them: who waits for whom, cancel it, retry it.

Its drawing has a column for each layer, and a line from each job to the jobs that wait for it; the
template writes the numbers as SVG. A small flow is drawn job by job, any other by the jobs of each
layer and task together, and of these only the first."""

from __future__ import annotations

from collections import Counter

import msgspec
from starlette.responses import Response

from outlast.insight.acting import By, Verb
from outlast.insight.flows import (
    LOOK_MAX,
    FlowJob,
    FlowView,
    act_on_flow,
    describe_retry,
    describe_states,
    list_flows,
    read_flow,
)
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.web.endpoint import Endpoints
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
FLOWS_SHOWN = 50
JOBS_SHOWN = 100
DONE = {
    "cancel": "Its waiting jobs are cancelled, and its running jobs were asked to stop.",
    "requeue": "Its dead jobs are queued again, with fresh budgets.",
}


@ENDPOINTS.at("/flows", by_tenant=True)
async def show_flows(visit: Visit) -> Response:
    """Show recent flows."""
    tenant = visit.access.tenant
    found = await visit.ask(("flows", tenant), lambda store: list_flows(store, FLOWS_SHOWN, tenant))
    return visit.show("flows.html", found=found, states=describe_states)


@ENDPOINTS.at("/flows/{job_id:int}", by_tenant=True)
async def show_flow(visit: Visit) -> Response:
    """Show the flow of one job."""
    flow = await find_flow(visit)
    jobs = flow.some(JOBS_SHOWN)
    return visit.show(
        "flow.html",
        flow=flow,
        jobs=jobs,
        drawing=draw_flow(flow),
        states=describe_states,
        retry=describe_retry(flow),
        layers=list(flow.groups.items())[:JOBS_SHOWN] if len(jobs) < len(flow.jobs) else [],
        asked=visit.query.get("ask"),
        done=DONE.get(visit.query.get("done", ""), ""),
    )


async def find_flow(visit: Visit) -> FlowView:
    """Return the flow of the job in the URL; JobNotFound, also for another tenant's job."""
    job_id, tenant = visit.job_id, visit.access.tenant
    return visit.have(
        await visit.ask(
            ("flow", job_id, tenant), lambda store: read_flow(store, job_id, LOOK_MAX, tenant)
        )
    )


async def act_on_found(visit: Visit, verb: Verb, by: By) -> dict[str, int]:
    """Act on the flow of the job in the URL, as ``act_on_flow`` does; JobNotFound also for another
    tenant's job, and no job of another tenant is changed."""

    async def work(store: Store) -> dict[str, int]:
        found = await read_flow(store, visit.job_id, tenant=visit.access.tenant)
        return await act_on_flow(store, visit.have(found), verb, by)

    return await visit.act(work)


JOBS_MAX = 40  # jobs that are drawn one by one
BOXES_MAX = 60
LINES_MAX = 400
WIDE, HIGH, GAP, SPACE = 148, 42, 56, 14  # of a box, and between columns and rows
_WORST = (
    State.DEAD, State.RUNNING, State.QUEUED, State.BLOCKED, State.CANCELLED, State.COMPLETED,
)  # fmt: skip
"""The state of several jobs is the first of these that one of them has."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A job, with its phase as ``state``, or several of one task: the ``number`` of them, of which
    ``job_id`` is the first one in that ``state`` (None: deleted)."""

    x: int
    y: int
    job_id: int
    number: int
    task: str
    state: str | None


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes, and lines between them: x and y of both ends, and whether it leads to a child."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[tuple[int, int, int, int, bool]]
    is_cut: bool


def draw_flow(flow: FlowView) -> Drawing | None:
    """Return the drawing; None for a job by itself."""
    if len(flow.jobs) < 2:  # noqa: PLR2004
        return None
    groups = list(flow.groups.values())
    if len(flow.jobs) <= JOBS_MAX:
        groups = [[job] for job in flow.jobs]
    columns: Counter[int] = Counter()
    boxes: list[Box] = []
    box_of: dict[int, Box] = {}
    for jobs in groups[:BOXES_MAX]:
        layer = jobs[0].layer
        box = _box(jobs, (layer - 1) * (WIDE + GAP), columns[layer] * (HIGH + SPACE))
        columns[layer] += 1
        boxes.append(box)
        box_of.update((job.id, box) for job in jobs)
    lines = _lines(flow, box_of)
    return Drawing(
        width=max(box.x for box in boxes) + WIDE,
        height=max(box.y for box in boxes) + HIGH,
        boxes=boxes,
        lines=lines[:LINES_MAX],
        is_cut=len(groups) > BOXES_MAX or len(lines) > LINES_MAX,
    )


def _box(jobs: list[FlowJob], x: int, y: int) -> Box:
    states = {job.state for job in jobs}
    worst = next((state for state in _WORST if state in states), None)
    first = next(job for job in jobs if job.state is worst)
    state = first.phase if len(jobs) == 1 else worst and worst.value
    return Box(
        x=x, y=y, job_id=first.id, number=len(jobs), task=first.task or "deleted", state=state
    )


def _lines(flow: FlowView, box_of: dict[int, Box]) -> list[tuple[int, int, int, int, bool]]:
    found: dict[tuple[int, int, int, int, bool], None] = {}
    for job in flow.jobs:
        above = [(link.upstream_id, False) for link in job.upstream]
        above += [] if job.parent is None else [(job.parent, True)]
        for other, is_child in above:
            if (start := box_of.get(other)) is not None and (end := box_of.get(job.id)) is not None:
                points = (start.x + WIDE, start.y + HIGH // 2, end.x, end.y + HIGH // 2, is_child)
                found[points] = None
    return list(found)
