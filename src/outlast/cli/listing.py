"""``outlast jobs``: list jobs by their fields and their texts."""

from __future__ import annotations

from outlast.base.clock import SYSTEM
from outlast.base.text import line, stamp
from outlast.cli.connect import read_store
from outlast.cli.errors import say
from outlast.cli.options import Before, Json, Limit, Url
from outlast.cli.show import JsonList, console, jobs_table
from outlast.insight.filters import AskedJobs
from outlast.insight.queries import JobList, find_jobs, list_jobs, read_whole
from outlast.model.job import State
from outlast.model.pause import PauseKind
from outlast.store.backend import describe_place, resolve_url
from outlast.store.inspector import ReadableStore
from outlast.store.rows import JobFilter


def jobs(
    *,
    asked: AskedJobs,
    limit: Limit = 50,
    before: Before = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List jobs, newest first.

    States are queued, running, completed, dead and cancelled. Phases are shown instead of the
    state: scheduled, waiting (for an event), retrying, suspect (waits to be run alone), paused,
    unservable (no active worker knows the task and serves the queue), limited and throttled (a
    limit is full; its rate or a hold lets nothing start) are queued; orphaned and silent (its
    worker is gone, or sends no heartbeats) are running.

    --args and --error search for a text, in the arguments as they are stored (JSON) and in the last
    error, ignoring the case of A to Z. --since takes jobs that have ended, begun or been enqueued
    in that time.

    In a large store a list that finds little ends after 300,000 jobs, a search by --args, --error
    or --since after 20,000, and says how far back it has searched; --before continues from there,
    as it does after a full list.

    Examples:
        outlast jobs
        outlast jobs --state running --queue mail
        outlast jobs --state scheduled
        outlast jobs --task render --limit 500 --json
        outlast jobs --tenant acme
        outlast jobs --label import --state dead
        outlast jobs --args ada@example.org --since 2h
        outlast jobs --state dead --error "connection refused"
    """
    which, now = asked.job_filter(limit=limit, before_id=before), SYSTEM.wall()

    async def work(store: ReadableStore) -> JobList:
        found = await list_jobs(store, which, asked.state, texts=asked.texts)
        if not found.rows and before is None:
            await tell_unknown(store, which)
        if json:
            await _write(store, found)
        return found

    found = read_store(url, work)
    if not json:
        chosen = before is not None or asked != AskedJobs()
        none = "no such jobs" if chosen else f"no jobs yet in {describe_place(resolve_url(url))}"
        _show(found, limit, now, none)


async def _write(store: ReadableStore, found: JobList) -> None:
    from outlast.insight.documents import JOB

    made = JsonList()
    async for row in read_whole(store, [row.id for row in found.rows]):
        made.add(JOB.document(row, phase=found.phase_of(row)))
    made.end(next_before=found.before)


def _show(found: JobList, limit: int, now: float, none: str) -> None:
    out = console()
    out.print(jobs_table(out, found, now) if found.rows else none)
    if found.astray:
        out.print(_of_strays(found.astray), style="red", soft_wrap=True)
    if rest := describe_rest(len(found.rows), limit, found.before, found.back_to):
        out.print(rest, style="dim", soft_wrap=True)


def describe_rest(
    shown: int, limit: int, before: int | None, back_to: float | None = None
) -> str | None:
    """Return what a list leaves out, and how to see it; None if it shows all."""
    if before is None:
        return None
    if back_to is not None:
        return f"searched back to {stamp(back_to)}; --before {before} continues"
    if shown == limit:
        return f"the newest {limit}; --limit shows more, --before {before} the next ones"
    return f"jobs before {before} were not searched; --before {before} continues with them"


def _of_strays(strays: dict[int, str]) -> str:
    many = "job is marked as running, but nothing runs it"
    if len(strays) > 1:
        many = "jobs are marked as running, but nothing runs them"
    return f"{len(strays)} {many}: `outlast why {min(strays)}` says what to do"


NAME_MAX = 80  # characters


async def tell_unknown(store: ReadableStore, which: JobFilter) -> None:
    """Say on stderr which names of a filter do not exist, as far as one search of the jobs
    shows."""
    from outlast.insight.pauses import is_named, name_of

    for kind in (PauseKind.QUEUE, PauseKind.TASK, PauseKind.TENANT):
        name = getattr(which, kind)
        if name is not None and not await is_named(store, kind, name):
            say(f"no job and no worker has {name_of(kind, name)}")
    if which.label is not None:
        labelled = await store.inspector.job_ids(JobFilter(label=which.label, limit=1))
        if not labelled.ids and labelled.before is None:
            say(f"no job has the label '{line(which.label, NAME_MAX)}'")
    if (group := which.fingerprint) is not None:
        dead = await find_jobs(store, JobFilter(state=State.DEAD, fingerprint=group, limit=1))
        if not dead.ids and dead.before is None:
            say(f"no dead job has the group '{line(group, NAME_MAX)}'")
