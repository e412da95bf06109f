"""Offer programs what the pages show and do, as the documents of the command line.
Forms on pages act by the same functions.

route.py        an address: its parameters and its right; answers in JSON; openapi.json
jobs.py         jobs, one job, its attempts, why, payloads
fleet.py        numbers, workers, schedules, pauses, refusals, actions, the caller's rights
evidence.py     dead jobs by cause, deaths, history, how many workers a queue could use
acts.py         cancel, requeue, discard, drain, pause, resume, trigger, send events; act on all
flows.py        recent flows, one of them, its cancel and retry

The API cannot enqueue or edit jobs: if a worker runs commands, that would let a visitor run any
program.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import compile_path

from outlast.web.access import Right
from outlast.web.api import acts, evidence, fleet, flows, jobs
from outlast.web.api.route import ApiRoutes, describe_api, show_json
from outlast.web.endpoint import Endpoint
from outlast.web.problem import API, Problem, WebRefusal, answer_in_json
from outlast.web.visit import Visit

ROUTES = ApiRoutes(
    [*acts.ROUTES, *jobs.ROUTES, *flows.ROUTES, *fleet.ROUTES, *evidence.ROUTES],
)


@ROUTES.at("/openapi.json", by_tenant=True)
async def show_description(_: Visit) -> dict[str, object]:
    """This description."""
    return describe_api(ROUTES)


async def miss(visit: Visit) -> Response:
    """Refuse an address that does not exist, or a method that it does not take."""
    methods = {each.method for each in ROUTES if compile_path(each.path)[0].match(visit.path)}
    if not methods:
        said = f"There is nothing at {visit.path}: see openapi.json."
        raise WebRefusal(404, "No such address", said)
    takes = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    answer = answer_in_json(Problem(405, "Another method", f"{visit.path} takes {takes}."))
    answer.headers["allow"] = takes
    return answer


ENDPOINTS = [
    *ROUTES,
    *acts.ROUTES.forms,
    *flows.ROUTES.forms,
    *(
        Endpoint(
            f"{API}/{{path:path}}", miss, Right.VIEW, method, by_tenant=True, show_problem=show_json
        )
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
]
