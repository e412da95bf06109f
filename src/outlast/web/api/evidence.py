"""Answer the API on dead jobs, deaths, history, and how many workers a queue could use."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from outlast.insight.deaths import DEATHS, dead_groups_document, read_dead_groups
from outlast.insight.documents import SCHEMA, iso
from outlast.insight.history import HOUR, By, history_document, read_history
from outlast.insight.queues import read_scale
from outlast.store.evidence import AttemptFilter, Cause, EndedAttempt, EndedAttempts
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.web.api.jobs import LIMIT_MAX, read_limit
from outlast.web.api.route import ApiRoute, answer_json
from outlast.web.dead import keep_own_numbers
from outlast.web.listing import read_name, read_number
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

SECONDS_MAX = 30 * 86_400
MESSAGE_MAX = 400  # characters of the message of an attempt's death, in a list


async def show_dead_groups(visit: Visit) -> Response:
    """Return dead jobs in groups, by cause of death."""
    tenant = visit.access.tenant or read_name(visit.query, "tenant")
    which = JobFilter(
        queue=read_name(visit.query, "queue"), task=read_name(visit.query, "task"), tenant=tenant
    )
    found = await visit.ask(("api groups", which), lambda store: read_dead_groups(store, which))
    return answer_json(dead_groups_document(keep_own_numbers(visit, found)))


async def show_deaths(visit: Visit) -> Response:
    """Return attempts that ended badly, newest first, and how many of each cause ended lately."""
    cause, tenant = read_name(visit.query, "cause"), visit.access.tenant
    which = AttemptFilter(
        outcomes=DEATHS if cause is None else (cause,),
        tenant=tenant,
        before=read_number(visit.query, "before"),
        limit=read_limit(visit),
    )

    async def look(store: Store) -> tuple[EndedAttempts, list[Cause]]:
        found = await store.inspector.ended_attempts(which)
        return found, await store.inspector.causes(tenant)

    found, causes = await visit.ask(("api deaths", which), look)
    return answer_json(
        {
            "schema": SCHEMA,
            "deaths": [_death(row) for row in found.rows],
            "causes": [_cause(one) for one in causes],
            "next_before": found.before,
        }
    )


def _death(row: EndedAttempt) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(row)
    told |= {"started_at": iso(row.started_at), "ended_at": iso(row.ended_at)}
    return told | {"message": row.message[:MESSAGE_MAX]}


def _cause(one: Cause) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(one)
    return told | {"last_at": iso(one.last_at)}


async def show_history(visit: Visit) -> Response:
    """Return how many attempts ended lately, step by step."""
    seconds = read_number(visit.query, "seconds", SECONDS_MAX) or int(HOUR)
    step = read_number(visit.query, "step", SECONDS_MAX)
    by = read_name(visit.query, "by") or "queue"
    queue, task = read_name(visit.query, "queue"), read_name(visit.query, "task")
    try:
        chosen = msgspec.convert(by, By)
    except msgspec.ValidationError:
        raise WebRefusal(400, "Not valid", "by= is all, queue, task or outcome.") from None
    found = await visit.ask(
        ("api history", seconds, step, chosen, queue, task),
        lambda store: read_history(
            store, seconds=float(seconds), step=step, by=chosen, queue=queue, task=task
        ),
    )
    return answer_json(history_document(found))


async def show_scale(visit: Visit) -> Response:
    """Return how many jobs of a queue want a worker, for an autoscaler."""
    queue = read_name(visit.query, "queue")
    if queue is None:
        raise WebRefusal(400, "Not valid", "Which queue? Ask for scale?queue=NAME.")
    return answer_json(await visit.ask(("api scale", queue), lambda it: read_scale(it, queue)))


_FILTERS = {"queue": "only of this queue", "task": "only of this task"}
ROUTES = [
    ApiRoute(
        "/dead/groups",
        show_dead_groups,
        "Dead jobs by cause; as `outlast dead groups --json`.",
        by_tenant=True,
        query={**_FILTERS, "tenant": "only of this tenant"},
    ),
    ApiRoute(
        "/deaths",
        show_deaths,
        "Attempts that ended badly, newest first, and how many of each cause lately.",
        by_tenant=True,
        query={
            "cause": "only with this outcome",
            "limit": f"at most this many, {LIMIT_MAX} at most",
            "before": "only with smaller tokens: next_before of the page before",
        },
    ),
    ApiRoute(
        "/history",
        show_history,
        "How many attempts ended lately, step by step.",
        query={
            **_FILTERS,
            "seconds": "how far back, an hour unless told, 30 days at most",
            "step": "seconds of a step, whole minutes",
            "by": "all, queue, task or outcome",
        },
    ),
    ApiRoute(
        "/scale",
        show_scale,
        "How many jobs of a queue need a worker, for autoscalers such as KEDA.",
        query={"queue": "which queue"},
    ),
]
