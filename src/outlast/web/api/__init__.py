"""Offer programs what the pages show and do, as the documents of the command line.

route.py        an address: its parameters and its right; answers and refusals in JSON
jobs.py         jobs, one job, its attempts, why, payloads
fleet.py        numbers, workers, schedules, pauses, refusals, actions, the caller's rights
evidence.py     dead jobs by cause, deaths, history, how many workers a queue could use
acts.py         cancel, requeue, discard, drain, pause, resume, trigger
bulk.py         an act on all jobs that match: preview, begin, stop
description.py  openapi.json

The API cannot enqueue or edit jobs: if a worker runs commands, that would let a visitor run any
program.
"""

from __future__ import annotations

from starlette.responses import Response

from outlast.web.api import acts, bulk, evidence, fleet, jobs
from outlast.web.api.description import describe_api
from outlast.web.api.route import ApiRoute, answer_json
from outlast.web.visit import Visit


async def show_description(_: Visit) -> Response:
    """Return the description of all addresses."""
    return answer_json(describe_api(ROUTES))


ROUTES: list[ApiRoute] = [
    *acts.ROUTES,
    *bulk.ROUTES,
    *jobs.ROUTES,
    *fleet.ROUTES,
    *evidence.ROUTES,
    ApiRoute("/openapi.json", show_description, "This description.", by_tenant=True),
]
_MISSING = [
    ApiRoute("/{path:path}", fleet.miss, "Nothing.", method=method, by_tenant=True)
    for method in ("GET", "POST")
]
ENDPOINTS = [route.endpoint() for route in (*ROUTES, *_MISSING)]
