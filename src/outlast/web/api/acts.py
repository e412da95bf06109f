"""Act over the API on one job, workers, pauses and schedules. Each act is recorded."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.client.pauses import make_pause
from outlast.insight.acting import By, Verb, ask_to_drain, pause_schedule, trigger_schedule
from outlast.insight.documents import SCHEMA
from outlast.insight.pauses import name_of, pause_and_wait, pause_document, resume
from outlast.model.pause import PauseKind
from outlast.web.access import Right
from outlast.web.api.route import ApiRoute, answer_json, read_body
from outlast.web.job_actions import act_on_named, ask_where
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request to act. ``reason`` is recorded with the act."""

    reason: str | None = None


class JobAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on a job. ``token``: the token of the attempt that the caller has read (0: none had
    begun); if a newer one has begun since, nothing is done (409). ``from_scratch``: requeue it
    without its checkpoint."""

    token: int | None = None
    from_scratch: bool = False


class StackAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a job's stack. ``token``: the token of the attempt that the caller has read; if
    a newer one has begun since, nothing is requested (409)."""

    token: int | None = None


class PauseAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thing to pause or resume: ``kind`` is queue, task, tenant or all, which has no name.
    ``stop``: also ask running attempts to stop."""

    kind: PauseKind
    name: str = ""
    stop: bool = False


def by_of(visit: Visit, reason: str | None) -> By:
    """Return who acts, and why."""
    return By(visit.access.user, reason)


def on_job(verb: Verb) -> ApiRoute:
    """Return the address for this act on a job."""

    async def act(visit: Visit) -> Response:
        sent = await read_body(visit, JobAct)
        by = by_of(visit, sent.reason)
        answer = await act_on_named(
            visit, verb, by, token=sent.token, from_scratch=sent.from_scratch
        )
        job_id: int = visit.request.path_params["job_id"]
        return answer_json({"schema": SCHEMA, "id": job_id, "answer": answer})

    summaries = {
        Verb.CANCEL: "Cancel a queued job at once, ask a running one to stop.",
        Verb.REQUEUE: "Revive a dead or cancelled job, with fresh budgets.",
        Verb.DISCARD: "Delete a dead job, with its attempts.",
    }
    path = f"/jobs/{{job_id:int}}/{verb.value}"
    right = Right(verb.value)
    return ApiRoute(path, act, summaries[verb], right, "POST", by_tenant=True, body=JobAct)


async def ask_stack(visit: Visit) -> Response:
    """Ask where a running job is. The answer comes at once: once the worker has replied, ``stack``
    of the job has the number ``asked``, or a larger one."""
    sent = await read_body(visit, StackAct)
    found = await ask_where(visit, by_of(visit, sent.reason), token=sent.token)
    told = {"token": found.ask.token, "asked": found.ask.number, "worker": found.worker.name}
    return answer_json({"schema": SCHEMA, "id": found.job_id, **told})


async def drain(visit: Visit) -> Response:
    """Ask a worker to take no more work and leave."""
    name = str(visit.request.path_params["worker_id"])
    sent = await read_body(visit, Act)
    by = by_of(visit, sent.reason)
    asked = await visit.act(lambda store: ask_to_drain(store, [name], by=by))
    return answer_json({"schema": SCHEMA, "asked": sorted(asked.asked)})


async def pause(visit: Visit) -> Response:
    """Pause. The answer comes at once: ``unacknowledged`` names workers that have not yet read
    it."""
    sent = await read_body(visit, PauseAct)
    target = check_target(visit, sent)
    by = by_of(visit, sent.reason)
    new = make_pause(target, paused_by=by.actor, reason=sent.reason, stop=sent.stop)
    made, unheard = await visit.act(lambda store: pause_and_wait(store, new, 0.0, by=by))
    return answer_json({"schema": SCHEMA, **pause_document(made, unheard)})


async def unpause(visit: Visit) -> Response:
    """End a pause."""
    sent = await read_body(visit, PauseAct)
    kind, name = check_target(visit, sent)
    by = by_of(visit, sent.reason)
    ended = await visit.act(lambda store: resume(store, kind, name, by=by))
    if ended is None:
        what = name_of(kind, name)
        raise WebRefusal(409, "Not done", f"{what} is not paused: GET pauses shows what is.")
    return answer_json({"schema": SCHEMA, **pause_document(ended, [])})


def check_target(visit: Visit, sent: PauseAct) -> tuple[PauseKind, str]:
    """Return the pause's target. A user of one tenant may pause only that tenant."""
    if (sent.kind is PauseKind.ALL) != (sent.name == ""):
        raise WebRefusal(400, "Not valid", "A queue, task or tenant has a name; all has none.")
    own = (PauseKind.TENANT, visit.access.tenant)
    if visit.access.tenant is not None and (sent.kind, sent.name) != own:
        raise WebRefusal(
            403, "Not for one tenant", f"{visit.access.user} may pause the tenant {own[1]} alone."
        )
    return sent.kind, sent.name


async def _on_schedule(visit: Visit, *, paused: bool) -> Response:
    name: str = visit.request.path_params["name"]
    by = by_of(visit, (await read_body(visit, Act)).reason)
    await visit.act(lambda store: pause_schedule(store, name, by, paused=paused))
    return answer_json({"schema": SCHEMA, "name": name, "paused": paused})


async def pause_one_schedule(visit: Visit) -> Response:
    """Stop a schedule from firing."""
    return await _on_schedule(visit, paused=True)


async def resume_one_schedule(visit: Visit) -> Response:
    """Let a schedule fire again."""
    return await _on_schedule(visit, paused=False)


async def trigger(visit: Visit) -> Response:
    """Enqueue a schedule's call now."""
    name: str = visit.request.path_params["name"]
    by = by_of(visit, (await read_body(visit, Act)).reason)
    stored = await visit.act(lambda store: trigger_schedule(store, name, visit.now, by))
    return answer_json({"schema": SCHEMA, "id": stored.job_id, "created": stored.created})


_SCHEDULE = "/schedules/{name:path}"
ROUTES = [
    *map(on_job, Verb),
    ApiRoute(
        "/jobs/{job_id:int}/stack",
        ask_stack,
        "Ask the worker of a running job where it is; the answer comes to the job's document.",
        Right.CANCEL,
        "POST",
        by_tenant=True,
        body=StackAct,
    ),
    ApiRoute(
        "/workers/{worker_id:int}/drain",
        drain,
        "Ask a worker to take no more jobs, let running ones finish, and leave.",
        Right.DRAIN,
        "POST",
        body=Act,
    ),
    ApiRoute(
        "/pause",
        pause,
        "Let no job of a queue, a task, a tenant or at all start.",
        Right.PAUSE,
        "POST",
        by_tenant=True,
        body=PauseAct,
    ),
    ApiRoute(
        "/resume", unpause, "End a pause.", Right.PAUSE, "POST", by_tenant=True, body=PauseAct
    ),
    ApiRoute(
        f"{_SCHEDULE}/pause",
        pause_one_schedule,
        "Let a schedule fire no more.",
        Right.PAUSE,
        "POST",
        body=Act,
    ),
    ApiRoute(
        f"{_SCHEDULE}/resume",
        resume_one_schedule,
        "Let a schedule fire again.",
        Right.PAUSE,
        "POST",
        body=Act,
    ),
    ApiRoute(
        f"{_SCHEDULE}/trigger",
        trigger,
        "Enqueue what a schedule calls, now.",
        Right.TRIGGER,
        "POST",
        body=Act,
    ),
]
