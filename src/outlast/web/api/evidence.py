"""Answer the API on dead jobs, deaths, history, and how many workers a queue could use."""

from __future__ import annotations

from typing import get_args

import msgspec

from outlast.insight.deaths import DEATHS, GROUPS, dead_groups_document, read_dead_groups
from outlast.insight.history import HISTORY, HOUR, By, history_document, read_history
from outlast.insight.queues import SCALE, read_scale
from outlast.insight.resource import Document, Resource
from outlast.store.rows import AttemptFilter, Cause, EndedAttempt, JobFilter
from outlast.web.api.jobs import NAMES, PAGE, read_limit
from outlast.web.api.route import ApiRoutes, number, text
from outlast.web.dead import keep_own_numbers
from outlast.web.deaths import read_deaths
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

SECONDS_MAX = 30 * 86_400
MESSAGE_MAX = 400  # characters of the message of an attempt's death, in a list
ROUTES = ApiRoutes()
DEATH = Resource(
    "Death",
    EndedAttempt,
    "job_id token number outcome charge started_at ended_at worker_id worker host message repeats"
    " task queue tenant",
    message=(str, lambda row: row.message[:MESSAGE_MAX]),
)
CAUSE = Resource("Cause", Cause, "outcome number hour last_at")


@ROUTES.at(
    "/dead/groups",
    by_tenant=True,
    query=NAMES,
    answer=GROUPS,
)
async def show_dead_groups(visit: Visit) -> Document:
    """Dead jobs by cause; as `outlast dead groups --json`."""
    tenant = visit.access.tenant or visit.read_name("tenant")
    which = JobFilter(queue=visit.read_name("queue"), task=visit.read_name("task"), tenant=tenant)
    found = await visit.ask(("api groups", which), lambda store: read_dead_groups(store, which))
    return dead_groups_document(keep_own_numbers(visit, found))


@ROUTES.at(
    "/deaths",
    by_tenant=True,
    query={
        "cause": text("only with this outcome"),
        "limit": PAGE["limit"],
        "before": number("only with smaller tokens: next_before of the previous page"),
    },
    answer={"deaths": [DEATH], "causes": [CAUSE], "next_before": int | None},
)
async def show_deaths(visit: Visit) -> Document:
    """Attempts that ended badly, newest first, and how many of each cause lately."""
    cause = visit.read_name("cause")
    which = AttemptFilter(
        outcomes=DEATHS if cause is None else (cause,),
        tenant=visit.access.tenant,
        before=visit.read_number("before"),
        limit=read_limit(visit),
    )
    page = await read_deaths(visit, which)
    return {
        "deaths": [DEATH.document(row) for row in page.found.rows],
        "causes": [CAUSE.document(one) for one in page.causes],
        "next_before": page.found.before,
    }


@ROUTES.at(
    "/history",
    query={
        "queue": NAMES["queue"],
        "task": NAMES["task"],
        "seconds": number("how far back, an hour unless told, a day at most", SECONDS_MAX),
        "step": number("seconds of a step, rounded up to whole minutes", SECONDS_MAX),
        "by": text("what has a line of its own; queue unless told", get_args(By)),
    },
    answer=HISTORY,
)
async def show_history(visit: Visit) -> Document:
    """How many attempts ended lately, step by step."""
    seconds = visit.read_number("seconds", SECONDS_MAX) or int(HOUR)
    step = visit.read_number("step", SECONDS_MAX)
    queue, task = visit.read_name("queue"), visit.read_name("task")
    try:
        by = msgspec.convert(visit.read_name("by") or "queue", By)
    except msgspec.ValidationError:
        raise WebRefusal(400, "Not valid", "by= is all, queue, task or outcome.") from None
    found = await visit.ask(
        ("api history", seconds, step, by, queue, task),
        lambda store: read_history(
            store, seconds=float(seconds), step=step, by=by, queue=queue, task=task
        ),
    )
    return history_document(found)


@ROUTES.at("/scale", query={"queue": text("which queue", least=1)}, answer=SCALE)
async def show_scale(visit: Visit) -> Document:
    """How many jobs of a queue need a worker, for autoscalers such as KEDA."""
    queue = visit.read_name("queue")
    if queue is None:
        raise WebRefusal(400, "Not valid", "Which queue? Ask for scale?queue=NAME.")
    return await visit.ask(("api scale", queue), lambda store: read_scale(store, queue))
