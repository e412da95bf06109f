"""``/jobs/17``: show why a job is where it is, what would move it, its attempts,
payloads and output. Forms act on it (``api/acts.py``).

An act that cannot be undone is confirmed on its own page. A form carries the token that its page
has shown: if a newer attempt runs by now, nothing is done.
"""

from __future__ import annotations

import msgspec
from starlette.responses import PlainTextResponse, Response

from outlast.base.text import cut, lines, safe
from outlast.insight.acting import ACTS, SKIP, ActOnJob, By, Verb, act_on_job
from outlast.insight.documents import find_open_attempt
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.facts import facts_of_crash, facts_of_job, format_progress
from outlast.insight.hiding import HIDDEN
from outlast.insight.queries import read_details
from outlast.insight.stacks import AskedStack, ask_for_stack, find_unanswered
from outlast.insight.why import why
from outlast.model.crash import own_stack
from outlast.model.job import State
from outlast.payload.payloads import is_encrypted
from outlast.store.actions import ActionRow
from outlast.store.logs import LogLine, LogRow
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, StoredJob
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
PAYLOADS = ("args", "checkpoint", "result")
SHOWN_MAX = 4_000  # characters of a payload on the page
ATTEMPTS_SHOWN = 100
ACTIONS_SHOWN = 20
TRACE_LINES = 80
DONE = {
    "asked": "Its worker was asked for its stacks.",
    "sent": "The event is sent.",
    "kept": "An event of that name was sent before: its value is kept.",
} | {effect: said for act in ACTS.values() for effect, said in act.effects.items()}


class JobPage(msgspec.Struct, frozen=True):
    """The content of a job's page. Payloads are cut after SHOWN_MAX characters."""

    row: StoredJob
    details: JobDetails
    actions: list[ActionRow] = []
    in_flow: bool = False


async def find_page(visit: Visit) -> JobPage:
    """Return the page of the job in the URL; JobNotFound, also for another tenant's job."""
    return await visit.ask_job("job", lambda store, job_id: read_page(store, job_id, visit.now))


async def read_page(store: Store, job_id: int, now: float) -> JobPage | None:
    """Return the content of a job's page; None: there is no such job."""
    details = await read_details(store, job_id, now, text_max=SHOWN_MAX + 1)
    if details is None:
        return None
    actions = await store.inspector.actions(ACTIONS_SHOWN, job_id=job_id)
    in_flow = bool(await store.inspector.flow_links([job_id], 1))
    return JobPage(details.row, details, actions, in_flow)


@ENDPOINTS.at("/jobs/{job_id:int}", by_tenant=True)
async def show_job(visit: Visit) -> Response:
    """Show one job."""
    found = await find_page(visit)
    details, row = found.details, found.row
    attempts = list_attempts(details)
    kept = attempts[-ATTEMPTS_SHOWN:]
    logs = await read_logs(visit, row.id) if visit.may(Right.PAYLOAD) else []
    return visit.show(
        "job.html",
        row=row,
        phase=details.phase,
        answer=explain(visit, details),
        attempts=list(reversed(kept)),
        attempts_hidden=len(attempts) - len(kept),
        dropped=details.attempts[-1].dropped if details.attempts else 0,
        log=show_log(logs[0], LINES_SHOWN, LINE_MAX) if logs else None,
        logs_more=len(logs) - 1,
        progress=details.progress[0],
        progress_of=details.progress[1],
        refusals=details.refusals,
        actions=found.actions,
        in_flow=found.in_flow,
        event=None if row.event == HIDDEN or details.is_sent else row.event,
        acts=list_acts(visit, found),
        stack=row.stack if visit.may(Right.PAYLOAD) else None,
        asked=find_asked(details),
        payloads=[
            (name, text, is_encrypted(text)) for name in PAYLOADS if (text := getattr(row, name))
        ],
        encryption=visit.site.encryption_of(row.task),
        payload_max=SHOWN_MAX,
        done=DONE.get(visit.query.get("done", ""), ""),
        facts_of_crash=facts_of_crash,
        facts_of_job=facts_of_job,
        format_progress=format_progress,
        own_stack=own_stack,
        trace=lambda text: "\n".join(lines(text.rstrip(), TRACE_LINES)),
    )


def list_acts(visit: Visit, found: JobPage) -> dict[str, ActOnJob]:
    """Return the acts that the page offers behind a question."""
    row = found.row
    is_open = {
        Verb.CANCEL: not row.cancel_requested,
        Verb.REQUEUE: row.checkpoint is not None,  # without one, it is not asked
        SKIP: found.in_flow,
    }
    return {
        verb: act
        for verb, act in ACTS.items()
        if row.state in act.states and visit.may(act.right) and is_open.get(verb, True)
    }


def explain(visit: Visit, about: JobDetails) -> Explanation:
    """Return why a job is where it is; for users of one tenant, without facts about others."""
    alone = visit.access.tenant is not None
    return why(msgspec.structs.replace(about, may_tell_others=not alone))


def find_asked(details: JobDetails) -> AskedStack | None:
    """Return the last unanswered request for this job's stack, if the job runs."""
    row = details.row
    mine = next((one for one in details.workers if one.id == row.worker_id), None)
    if row.state is not State.RUNNING or mine is None:
        return None
    ask = find_unanswered(row, mine)
    return None if ask is None else AskedStack(row.id, ask, mine)


@ENDPOINTS.at("/jobs/{job_id:int}/logs", Right.PAYLOAD, by_tenant=True)
async def show_logs(visit: Visit) -> Response:
    """Show all kept output of one attempt, by default the newest."""
    details = (await find_page(visit)).details
    kept = await read_logs(visit, details.row.id)
    token = visit.read_number("attempt")
    chosen = next((one for one in kept if token in {None, one.token}), None)
    return visit.show(
        "job_logs.html",
        row=details.row,
        phase=details.phase,
        kept=kept,
        token=token,
        log=None if chosen is None else show_log(chosen),
    )


async def read_payload(visit: Visit) -> str | None:
    """Return the payload in the URL as it is stored, all of it; None: the job has none."""
    row = await visit.ask_job("payload", lambda store, job_id: store.inspector.job(job_id))
    name = visit.name
    if name not in PAYLOADS:
        raise WebRefusal(404, "No such page", f"There is nothing at {visit.path}.")
    found: str | None = getattr(row, name)
    return found


@ENDPOINTS.at("/jobs/{job_id:int}/payload/{name}", Right.PAYLOAD, by_tenant=True)
async def show_payload(visit: Visit) -> Response:
    """Show a whole payload as it is stored."""
    return PlainTextResponse(await read_payload(visit) or "")


LINES_SHOWN = 50  # on the page of the job; the page of its logs has all kept lines
LINE_MAX = 500  # characters of a line on that page


class ShownLog(msgspec.Struct, frozen=True):
    """The output of one attempt, as pages show it. ``missing``: how many lines came before the kept
    ones; ``hidden``: how many kept lines are not shown."""

    token: int
    number: int
    missing: int
    hidden: int
    lines: list[LogLine]


async def read_logs(visit: Visit, job_id: int) -> list[LogRow]:
    """Return the kept output of a job's attempts, the newest first."""
    kept = await visit.ask(("logs", job_id), lambda store: store.inspector.logs(job_id))
    return kept[::-1]


def show_log(log: LogRow, most: int | None = None, line_max: int = 10**6) -> ShownLog:
    """Return the last ``most`` lines of an attempt, each cut at ``line_max`` characters."""
    lines = log.lines
    shown = lines if most is None else lines[-most:]
    told = [LogLine(at, cut(safe(text), line_max)) for at, text in shown]
    return ShownLog(log.token, log.number, log.dropped, len(lines) - len(shown), told)


def list_attempts(details: JobDetails) -> list[AttemptRow]:
    """Return the closed attempts, and the running (as if it ended now) or completed one."""
    row, closed, now = details.row, details.attempts, details.now
    last = find_open_attempt(row, closed, now)
    if last is None or row.started_at is None:
        return list(closed)
    return [*closed, msgspec.structs.replace(last, checkpoint_age=_age(row, now))]


def _age(row: StoredJob, now: float) -> float | None:
    """Return the age of the last checkpoint, if the running or completed attempt made it."""
    saved, began = row.checkpoint_at, row.started_at
    if saved is None or began is None or saved < began:
        return None
    return (now if row.ended_at is None else row.ended_at) - saved


UNREAD_MAX = 1  # characters of payloads that are read: none is needed


@ENDPOINTS.at("/jobs/{job_id:int}/{verb}", by_tenant=True)
async def confirm(visit: Visit) -> Response:
    """Ask for confirmation."""
    verb = visit.request.path_params["verb"]
    if verb not in ACTS:
        raise WebRefusal(404, "No such page", f"There is nothing at {visit.path}.")
    about = ACTS[verb]
    visit.require(about.right)
    found = await find_page(visit)
    row, phase = found.details.row, found.details.phase
    return visit.show(
        "confirm.html",
        row=row,
        phase=phase,
        verb=verb,
        button=verb.capitalize(),
        title=about.question.format(row.id),
        warning=(row.state is State.RUNNING and about.warning_running) or about.warning,
    )


async def act_on_named(
    visit: Visit, verb: str, by: By, *, token: int | None, from_scratch: bool
) -> str:
    """Act on the job in the URL, and return the effect, as ``act_on_job`` does; JobNotFound also
    for another tenant's job."""

    async def work(store: Store) -> str:
        row = visit.own(await store.inspector.job(visit.job_id, UNREAD_MAX))
        return await act_on_job(store, verb, row, by, token=token, from_scratch=from_scratch)

    return await visit.act(work)


async def ask_where(visit: Visit, by: By, *, token: int | None) -> AskedStack:
    """Ask where the job in the URL is, as ``ask_for_stack`` does; JobNotFound also for another
    tenant's job."""

    async def work(store: Store) -> AskedStack:
        visit.own(await store.inspector.job(visit.job_id, UNREAD_MAX))
        return await ask_for_stack(store, visit.job_id, by, token=token)

    return await visit.act(work)
