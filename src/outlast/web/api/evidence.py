"""Answer the API on dead jobs, deaths, history, and how many workers a queue could use."""

from __future__ import annotations

from typing import Annotated, get_args

from outlast.insight.deaths import DEATHS, GROUPS, dead_groups_document, read_dead_groups
from outlast.insight.filters import AskedJobs
from outlast.insight.history import HISTORY, HOUR, By, history_document, read_history
from outlast.insight.queues import SCALE, read_scale
from outlast.insight.resource import Document, Resource
from outlast.model.kinds import Filter
from outlast.store.rows import CHOSEN, AttemptFilter, Cause, EndedAttempt
from outlast.web.api.jobs import Limit
from outlast.web.api.route import ApiRoutes
from outlast.web.dead import keep_own_numbers
from outlast.web.deaths import read_deaths
from outlast.web.visit import ROWS, Visit

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
    answer=GROUPS,
)
async def show_dead_groups(visit: Visit, *, asked: Annotated[AskedJobs, CHOSEN]) -> Document:
    """Dead jobs by cause; as `outlast dead groups --json`."""
    which = asked.job_filter()
    found = await visit.ask(("api groups", which), lambda store: read_dead_groups(store, which))
    return dead_groups_document(keep_own_numbers(visit, found))


@ROUTES.at(
    "/deaths",
    by_tenant=True,
    answer={"deaths": [DEATH], "causes": [CAUSE], "next_before": int | None},
)
async def show_deaths(
    visit: Visit,
    *,
    cause: Annotated[str | None, Filter("only with this outcome")] = None,
    limit: Limit = ROWS,
    before: Annotated[
        int | None, Filter("only with smaller tokens: next_before of the previous page", "N")
    ] = None,
) -> Document:
    """Attempts that ended badly, newest first, and how many of each cause lately."""
    which = AttemptFilter(
        outcomes=DEATHS if cause is None else (cause,),
        tenant=visit.access.tenant,
        before=before,
        limit=limit,
    )
    page = await read_deaths(visit, which)
    return {
        "deaths": [DEATH.document(row) for row in page.found.rows],
        "causes": [CAUSE.document(one) for one in page.causes],
        "next_before": page.found.before,
    }


@ROUTES.at("/history", answer=HISTORY)
async def show_history(
    visit: Visit,
    *,
    asked: Annotated[AskedJobs, ("queue", "task")],
    seconds: Annotated[
        int, Filter("how far back, an hour unless told, a day at most", "N", most=SECONDS_MAX)
    ] = int(HOUR),
    step: Annotated[
        int | None, Filter("seconds of a step, rounded up to whole minutes", "N", most=SECONDS_MAX)
    ] = None,
    by: Annotated[
        By, Filter("what has a line of its own; queue unless told", among=get_args(By))
    ] = "queue",
) -> Document:
    """How many attempts ended lately, step by step."""
    found = await visit.ask(
        ("api history", seconds, step, by, asked),
        lambda store: read_history(
            store, seconds=float(seconds), step=step, by=by, queue=asked.queue, task=asked.task
        ),
    )
    return history_document(found)


@ROUTES.at("/scale", answer=SCALE)
async def show_scale(
    visit: Visit, *, queue: Annotated[str, Filter("which queue", is_needed=True)]
) -> Document:
    """How many jobs of a queue need a worker, for autoscalers such as KEDA."""
    return await visit.ask(("api scale", queue), lambda store: read_scale(store, queue))
