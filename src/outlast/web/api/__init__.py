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

from http import HTTPStatus

import msgspec
from starlette.responses import Response
from starlette.routing import compile_path

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
    said = f"There is nothing at {visit.path}: see openapi.json."
    raise WebRefusal(404, "No such address", said)


def show_problem(visit: Visit, problem: Problem) -> Response:
    """Show a problem as a document: 405 instead of 404 where another method is taken. An act's
    address is also that of a limit or payload whose name ends as the act is called."""
    methods = {each.method for each in ROUTES if compile_path(each.path)[0].match(visit.path)}
    takes = ["POST"] if "POST" in methods else ["GET", "HEAD"]
    if problem.status != HTTPStatus.NOT_FOUND or not methods or visit.request.method in takes:
        return show_json(visit, problem)
    allow = ", ".join(takes)
    answer = answer_in_json(Problem(405, "Another method", f"{visit.path} takes {allow}."))
    answer.headers["allow"] = allow
    return answer


_MISSING = Endpoint(f"{API}/{{path:path}}", miss, by_tenant=True, show_problem=show_problem)
ENDPOINTS = [
    *(msgspec.structs.replace(each, show_problem=show_problem) for each in ROUTES),
    *acts.ROUTES.forms,
    *flows.ROUTES.forms,
    *(
        msgspec.structs.replace(_MISSING, method=method)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
]
