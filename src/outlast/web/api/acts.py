"""Act over the API on one job, workers, pauses, schedules and limits, and on all jobs that match;
send events. Each act is recorded."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from starlette.responses import Response

from outlast.base.config import SECONDS_MAX, check_seconds
from outlast.client.events import NAME_MAX, check_name
from outlast.client.limits import make_set_limit
from outlast.client.pauses import make_pause
from outlast.insight.acting import (
    ACTS,
    ActOnJob,
    By,
    Verb,
    ask_to_drain,
    hold_limit,
    pause_schedule,
    send_event,
    set_limit,
    trigger_schedule,
)
from outlast.insight.bulk import (
    ACTION,
    PREVIEW,
    BulkFilter,
    Preview,
    begin,
    preview,
    preview_document,
)
from outlast.insight.limits import LIMIT, limit_document
from outlast.insight.pauses import PAUSE, name_of, pause_and_wait, pause_document, resume
from outlast.insight.queries import read_one_limit
from outlast.insight.resource import Document
from outlast.model.job import State
from outlast.model.limits import COST_MAX, RUNNING_MAX
from outlast.model.pause import PauseKind
from outlast.store.limits import Hold, SetLimit
from outlast.store.values import NewEvent
from outlast.web.access import Right
from outlast.web.action_log import read_named, stop_named
from outlast.web.api.route import ApiRoutes
from outlast.web.filters import check_search
from outlast.web.job import act_on_named, ask_where
from outlast.web.problem import WebRefusal, answer_json
from outlast.web.visit import ID_MAX, Visit

ROUTES = ApiRoutes()
TIME_MAX = 1e12  # seconds since 1970


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request to act. ``reason`` is recorded with the act. ``RULE``: what the types
    of the fields do not say, as JSON Schema."""

    RULE: ClassVar[dict[str, Any]] = {}
    reason: str | None = None

    def by(self, visit: Visit) -> By:
        """Return who acts, and why."""
        return By(visit.access.user, self.reason)


class JobAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on a job. ``token``: the token of the attempt that the caller has read (0: none had
    begun); if a newer one has begun since, nothing is done (409). ``from_scratch``: requeue it
    without its checkpoint."""

    token: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)] | None = None
    from_scratch: bool = False


class StackAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a job's stack. ``token``: the token of the attempt that the caller has read; if
    a newer one has begun since, nothing is requested (409)."""

    token: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)] | None = None


class PauseAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thing to pause or resume: ``kind`` is queue, task, tenant or all, which has no name.
    ``stop``: also ask running attempts to stop."""

    RULE = {
        "if": {"properties": {"kind": {"const": "all"}}},
        "then": {"properties": {"name": {"const": ""}}},
        "else": {"properties": {"name": {"minLength": 1}}, "required": ["name"]},
    }
    kind: PauseKind
    name: str = ""
    stop: bool = False


PRINTABLE = {"minLength": 1, "maxLength": NAME_MAX, "pattern": r"^[^\x00-\x1f\x7f-\xa0\xad]+$"}


class EventAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for jobs that wait for its ``name``, with any JSON as its ``value``."""

    name: Annotated[str, msgspec.Meta(extra_json_schema=PRINTABLE)]
    value: Any = None


NULL = {"type": "null"}
NAMED = {"minLength": 1, "maxLength": 500, "pattern": r"^[^\x00]+$"}
RATE = "^[1-9][0-9]{0,3}/([1-9][0-9]?)?(s|min|h|d)$"


class LimitAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to set of a limit: ``running`` attempts at once, a ``rate`` such as 600/min, its
    ``burst``. ``key``: of this tenant or limit key alone, which has no rate."""

    RULE = {
        "anyOf": [
            {
                "required": ["running"],
                "properties": {
                    "running": {"type": "integer"},
                    "rate": NULL,
                    "burst": NULL,
                },
            },
            {"required": ["rate"], "properties": {"rate": {"type": "string"}, "key": NULL}},
            {"required": ["burst"], "properties": {"burst": {"type": "number"}, "key": NULL}},
        ]
    }
    key: Annotated[str, msgspec.Meta(extra_json_schema=NAMED)] | None = None
    running: Annotated[int, msgspec.Meta(ge=0, le=RUNNING_MAX)] | None = None
    rate: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": RATE})] | None = None
    burst: Annotated[float, msgspec.Meta(ge=1, le=COST_MAX)] | None = None


class KeyAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on a limit, or on one ``key`` of it."""

    key: str | None = None


class HoldAct(KeyAct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hold on a limit, in seconds; 0 ends it."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]


def _add_act(verb: str, about: ActOnJob) -> None:

    @ROUTES.at(
        f"/jobs/{{job_id:int}}/{verb}",
        Right(about.right),
        body=JobAct,
        by_tenant=True,
        summary=about.summary,
        answer={"id": int, "answer": str},
    )
    async def act(visit: Visit, sent: JobAct) -> Document:
        answer = await act_on_named(
            visit, verb, sent.by(visit), token=sent.token, from_scratch=sent.from_scratch
        )
        return {"id": visit.job_id, "answer": answer}

    def show(visit: Visit, told: Document) -> Response:
        if verb == Verb.DISCARD:
            return visit.go("/jobs", state="dead")
        return visit.go(f"/jobs/{visit.job_id}", done=told["answer"])

    ROUTES.add_form(act, show)


for each in ACTS.items():
    _add_act(*each)


@ROUTES.at(
    "/jobs/{job_id:int}/stack",
    Right.CANCEL,
    body=StackAct,
    by_tenant=True,
    answer={"id": int, "token": int, "asked": int, "worker": str},
)
async def ask_stack(visit: Visit, sent: StackAct) -> Document:
    """Ask the worker of a running job where it is. The answer comes to the job's document: its
    ``stack`` then has the number ``asked``, or a larger one."""
    found = await ask_where(visit, sent.by(visit), token=sent.token)
    asked = {"token": found.ask.token, "asked": found.ask.number, "worker": found.worker.name}
    return {"id": found.job_id, **asked}


@ROUTES.at("/workers/{worker_id:int}/drain", Right.DRAIN, body=Act, answer={"asked": list[int]})
async def drain(visit: Visit, sent: Act) -> Document:
    """Ask a worker to take no more jobs, let running ones finish, and leave."""
    name, by = str(visit.request.path_params["worker_id"]), sent.by(visit)
    asked = await visit.act(lambda store: ask_to_drain(store, [name], by=by))
    return {"asked": sorted(asked.asked)}


@ROUTES.at("/pause", Right.PAUSE, body=PauseAct, by_tenant=True, answer=PAUSE.types)
async def pause(visit: Visit, sent: PauseAct) -> Document:
    """Let no job of a queue, a task, a tenant or at all start. The answer comes at once:
    ``unacknowledged`` names workers that have not yet read it."""
    target, by = check_target(visit, sent), sent.by(visit)
    new = make_pause(target, paused_by=by.actor, reason=sent.reason or None, stop=sent.stop)
    made, unheard = await visit.act(lambda store: pause_and_wait(store, new, 0.0, by=by))
    return pause_document(made, unheard)


@ROUTES.at("/resume", Right.PAUSE, body=PauseAct, by_tenant=True, answer=PAUSE.types)
async def unpause(visit: Visit, sent: PauseAct) -> Document:
    """End a pause."""
    target, by = check_target(visit, sent), sent.by(visit)
    ended = await visit.act(lambda store: resume(store, *target, by=by))
    if ended is None:
        said = f"{name_of(*target)} is not paused: see `outlast pauses`."
        raise WebRefusal(409, "Not done", said)
    return pause_document(ended, [])


def check_target(visit: Visit, sent: PauseAct) -> tuple[PauseKind, str]:
    """Return the pause's target. A user of one tenant may pause only that tenant."""
    if (sent.kind is PauseKind.ALL) != (sent.name == ""):
        raise WebRefusal(400, "Not valid", "A queue, task or tenant needs a name; all takes none.")
    own = (PauseKind.TENANT, visit.access.tenant)
    if visit.access.tenant is not None and (sent.kind, sent.name) != own:
        raise WebRefusal(
            403, "Not for one tenant", f"{visit.access.user} may pause only the tenant {own[1]}."
        )
    return sent.kind, sent.name


async def _set_paused(visit: Visit, sent: Act, *, paused: bool) -> Document:
    by = sent.by(visit)
    await visit.act(lambda store: pause_schedule(store, visit.name, by, paused=paused))
    return {"name": visit.name, "paused": paused}


IS_PAUSED = {"name": str, "paused": bool}


@ROUTES.at("/schedules/{name:path}/pause", Right.PAUSE, body=Act, answer=IS_PAUSED)
async def pause_one_schedule(visit: Visit, sent: Act) -> Document:
    """Let a schedule fire no more."""
    return await _set_paused(visit, sent, paused=True)


@ROUTES.at("/schedules/{name:path}/resume", Right.PAUSE, body=Act, answer=IS_PAUSED)
async def resume_one_schedule(visit: Visit, sent: Act) -> Document:
    """Let a schedule fire again."""
    return await _set_paused(visit, sent, paused=False)


@ROUTES.at(
    "/schedules/{name:path}/trigger",
    Right.TRIGGER,
    body=Act,
    answer={"id": int, "created": bool},
)
async def trigger(visit: Visit, sent: Act) -> Document:
    """Enqueue what a schedule calls, now."""
    by = sent.by(visit)
    stored = await visit.act(lambda store: trigger_schedule(store, visit.name, visit.now, by))
    return {"id": stored.job_id, "created": stored.created}


@ROUTES.at("/events", Right.TRIGGER, body=EventAct, answer={"name": str, "sent": bool})
async def send(visit: Visit, sent: EventAct) -> Document:
    """Send an event to the jobs that wait for it. ``sent`` is false if one of its name was sent
    before: that value is kept."""
    check_name(sent.name)
    event, by = NewEvent(sent.name, msgspec.json.encode([sent.value]).decode()), sent.by(visit)
    return {"name": sent.name, "sent": await visit.act(lambda store: send_event(store, event, by))}


@ROUTES.at("/limits/{name:path}/set", Right.LIMIT, body=LimitAct, answer=LIMIT)
async def change_limit(visit: Visit, sent: LimitAct) -> Document:
    """Set a limit until it is reset; it wins over the code on all workers."""
    new = make_set_limit(
        visit.name,
        key=sent.key,
        running=sent.running,
        rate=sent.rate,
        burst=sent.burst,
    )
    return await _change_limit(visit, new, sent.by(visit))


@ROUTES.at("/limits/{name:path}/reset", Right.LIMIT, body=KeyAct, answer=LIMIT)
async def reset_limit(visit: Visit, sent: KeyAct) -> Document:
    """Return to the values in the code."""
    new = SetLimit(name=visit.name, key=sent.key, reset=True)
    return await _change_limit(visit, new, sent.by(visit))


@ROUTES.at(
    "/limits/{name:path}/hold",
    Right.LIMIT,
    body=HoldAct,
    answer={"name": str, "key": str | None, "seconds": float},
)
async def hold(visit: Visit, sent: HoldAct) -> Document:
    """Let nothing start under a limit for some seconds."""
    seconds = check_seconds("seconds", sent.seconds)
    held, by = Hold(visit.name, sent.key or "", seconds), sent.by(visit)
    await visit.act(lambda store: hold_limit(store, held, by))
    return {"name": visit.name, "key": sent.key, "seconds": seconds}


async def _change_limit(visit: Visit, new: SetLimit, by: By) -> Document:
    await visit.act(lambda store: set_limit(store, new, by))
    row, _ = await visit.ask(("limit", new.name), lambda store: read_one_limit(store, new.name))
    return limit_document(row, [])


def _rule_of(verb: Verb) -> dict[str, Any]:
    """Return the rule that an act is for jobs in some states only."""
    states = {"properties": {"state": {"enum": [None, *ACTS[verb].states]}}}
    which = {"properties": {"verb": {"const": verb}}}
    return {"if": which, "then": {"properties": {"filter": states}}}


_IF_EXPECTED = {
    "if": {"required": ["expected"], "properties": {"expected": {"type": "integer"}}},
    "then": {
        "required": ["up_to_id", "as_of"],
        "properties": {"up_to_id": {"type": "integer"}, "as_of": {"type": "number"}},
    },
}


_GROUPED = {"required": ["group"], "properties": {"group": {"type": "string"}}}
_DEAD = {"properties": {"state": {"enum": [None, State.DEAD]}}}
_IF_GROUP = {
    "if": {"properties": {"filter": _GROUPED}, "required": ["filter"]},
    "then": {"properties": {"filter": _DEAD, "verb": {"not": {"const": Verb.CANCEL}}}},
}


class BulkAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on all matching jobs. Without ``expected`` nothing is done: the answer is the preview,
    whose ``count`` (as ``expected``), ``at_least``, ``up_to_id`` and ``as_of`` the caller sends
    back to act."""

    RULE = {"allOf": [*map(_rule_of, Verb), _IF_EXPECTED, _IF_GROUP]}
    verb: Verb
    filter: BulkFilter = BulkFilter()
    up_to_id: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)] | None = None
    as_of: Annotated[float, msgspec.Meta(ge=0, le=TIME_MAX)] | None = None
    expected: Annotated[int, msgspec.Meta(ge=0)] | None = None
    at_least: bool = False


@ROUTES.at("/bulk", Right.BULK, body=BulkAct, by_tenant=True, answer=PREVIEW)
async def act_on_all(visit: Visit, sent: BulkAct) -> Document | Response:
    """Preview an act on all jobs that match; or, with the numbers of the preview, begin it."""
    if sent.expected is not None:
        return answer_json({"id": await begin_shown(visit, sent), "state": "running"}, 202)
    verb, which = sent.verb, check_filter(visit, sent)
    found = await visit.ask(("bulk", verb, which), lambda store: preview(store, verb, which))
    return preview_document(found)


def check_filter(visit: Visit, sent: BulkAct) -> BulkFilter:
    """Return the filter of an act that the visitor may do, restricted to the visitor's tenant."""
    visit.require(sent.verb)
    check_search(visit, sent.filter)
    tenant = visit.access.tenant or sent.filter.tenant
    return msgspec.structs.replace(sent.filter, tenant=tenant)


async def begin_shown(visit: Visit, sent: BulkAct) -> int:
    """Begin an act on the jobs that a preview has shown; return the id of the action."""
    which = check_filter(visit, sent)
    if sent.up_to_id is None or sent.as_of is None or sent.expected is None:
        said = "Send up_to_id and as_of as the preview gave them."
        raise WebRefusal(400, "Not valid", said)
    seen = Preview(
        verb=sent.verb,
        filter=which,
        count=sent.expected,
        at_least=sent.at_least,
        up_to_id=sent.up_to_id,
        as_of=sent.as_of,
    )
    action_id = await visit.act(lambda store: begin(store, seen, sent.by(visit)))
    visit.site.bulk.start(action_id)
    return action_id


@ROUTES.at(
    "/actions/{action_id:int}/stop",
    Right.BULK,
    body=Act,
    by_tenant=True,
    answer=ACTION.types,
)
async def stop(visit: Visit, _: Act) -> Document:
    """Stop an act on many jobs after the current step; completed steps are not undone."""
    await stop_named(visit)
    return ACTION.document(await read_named(visit))


def _show_paused(visit: Visit, told: Document) -> Response:
    if (kind := told["kind"]) in {PauseKind.QUEUE, PauseKind.TASK}:
        return visit.go(f"/{kind}s/{kind}", name=told["name"])
    return visit.go("/queues")


def _show_limit(visit: Visit, _: Document) -> Response:
    return visit.go("/limits/limit", name=visit.name)


def _show_schedule(visit: Visit, _: Document) -> Response:
    return visit.go("/schedules/schedule", name=visit.name)


def _show_waiting(visit: Visit, told: Document) -> Response:
    job = visit.query.get("job", "")
    page = f"/jobs/{job}" if job.isdecimal() else "/jobs"
    return visit.go(page, done="sent" if told["sent"] else "kept")


ROUTES.add_form(send, _show_waiting, "/events/send", json="value")
ROUTES.add_form(ask_stack, lambda visit, _: visit.go(f"/jobs/{visit.job_id}", done="asked"))
ROUTES.add_form(drain, lambda visit, _: visit.go(visit.path.removesuffix("/drain"), done="asked"))
ROUTES.add_form(stop, lambda visit, told: visit.go(f"/actions/{told['id']}"))
ROUTES.add_form(pause, _show_paused)
ROUTES.add_form(unpause, _show_paused)
ROUTES.add_form(pause_one_schedule, _show_schedule, "/schedules/pause")
ROUTES.add_form(resume_one_schedule, _show_schedule, "/schedules/resume")
ROUTES.add_form(trigger, lambda visit, told: visit.go(f"/jobs/{told['id']}"), "/schedules/trigger")
ROUTES.add_form(change_limit, _show_limit, "/limits/set")
ROUTES.add_form(reset_limit, _show_limit, "/limits/reset")
ROUTES.add_form(hold, _show_limit, "/limits/hold")
