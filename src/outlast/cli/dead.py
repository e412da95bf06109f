"""``outlast dead``: list dead jobs, revive them, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, count_of, line
from outlast.cli.bulk import DryRun, act_on_all, tell_each
from outlast.cli.connect import describe_missing, me, on_store, read_store
from outlast.cli.listing import describe_rest, tell_unknown
from outlast.cli.options import (
    ALL_BUT_STATE,
    Before,
    FromScratch,
    Json,
    Limit,
    Options,
    SomeIds,
    Url,
    flag,
    make_group,
)
from outlast.cli.show import Grid, JsonList, console, dead_table, print_json, table
from outlast.errors import UsageError
from outlast.insight.acting import Verb, act_on_jobs
from outlast.insight.deaths import DeathGroup, dead_groups_document, read_dead_groups
from outlast.insight.documents import dead_document, error_of
from outlast.insight.filters import AskedJobs
from outlast.insight.queries import (
    SHOWN_MAX,
    JobList,
    SearchBounds,
    list_jobs,
    read_dead,
    read_states,
)
from outlast.model.crash import find_line_of_death
from outlast.model.job import State
from outlast.store.inspector import ReadableStore
from outlast.store.rows import CHOSEN, AttemptRow, StoredJob

if TYPE_CHECKING:
    from rich.console import Console

    from outlast.store.protocol import Store

AskedDead = Annotated[AskedJobs, ALL_BUT_STATE]
IDS_ALONE = SearchBounds(text_max=0)

HELP = """List dead jobs, revive them, or delete them.

A job is dead when it has used up a budget, failures or losses, or when its task said so. It is
kept with all its evidence until you requeue or discard it.

Examples:
    outlast dead groups
    outlast dead list --task mail
    outlast dead requeue --task mail --error "connection refused" --dry-run
    outlast dead discard 17
"""


def list_(
    *,
    asked: AskedDead,
    limit: Limit = 50,
    before: Before = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List dead jobs with the causes of their deaths, newest first.

    `outlast job ID` shows all the evidence of one job.

    Examples:
        outlast dead list
        outlast dead list --task render --json
    """
    which = asked.job_filter(state=State.DEAD, limit=limit, before_id=before)

    async def work(store: ReadableStore) -> None:
        found = await list_jobs(store, which, None, IDS_ALONE, asked.texts)
        if not found.rows and before is None:
            await tell_unknown(store, which)
        await (_write if json else _show)(store, found, limit)

    read_store(url, work)


async def _write(store: ReadableStore, found: JobList, _: int) -> None:
    made = JsonList()
    async for row, last in read_dead(store, [row.id for row in found.rows]):
        made.add(dead_document(row, last))
    made.end(next_before=found.before)


async def _show(store: ReadableStore, found: JobList, limit: int) -> None:
    rows = read_dead(store, [row.id for row in found.rows], SHOWN_MAX)
    why = [(row, find_cause(row, last)) async for row, last in rows]
    out = console()
    out.print(dead_table(out, why, SYSTEM.wall()) if why else "no dead jobs")
    if rest := describe_rest(len(why), limit, found.before, found.back_to):
        out.print(rest, style="dim", soft_wrap=True)


def find_cause(row: StoredJob, last: AttemptRow | None) -> str | None:
    """Return a job's cause of death, for the list; if its process died, also the line it ran."""
    place = find_line_of_death(None if last is None else last.crash)
    said = error_of(row, last)
    return f"{said}, at {place}" if said and place else said


class Chosen(msgspec.Struct, Options, kw_only=True):
    """Which dead jobs to act on, besides by a filter: by number, or all."""

    job_ids: SomeIds = None
    every: Annotated[bool, flag("--all", "All dead jobs.")] = False
    dry_run: DryRun = False

    def read(self, asked: AskedJobs) -> list[int]:
        """Return the named jobs, each once; [] for all that match. Raises UsageError unless exactly
        one way of choosing was used."""
        if sum((bool(self.job_ids), asked != AskedJobs(), self.every)) != 1:
            raise UsageError(
                "name the dead jobs: by ID…, or by --task, --queue and the other filters, or with"
                " --all"
            )
        if self.job_ids and self.dry_run:
            raise UsageError("--dry-run needs a filter or --all: leave out the job ids")
        return list(dict.fromkeys(self.job_ids or ()))


def requeue(
    *, asked: AskedDead, chosen: Chosen, from_scratch: FromScratch = False, url: Url = None
) -> None:
    """Revive dead jobs.

    They get fresh budgets and continue from their last checkpoint. Name them by number, by --task,
    --queue, --tenant and --group, by --label, --error and --since, or give --all. --dry-run counts
    them and shows the newest.

    With a filter or --all the command works in steps of 500 jobs and shows a bar. If it is
    interrupted, `outlast actions resume` continues it.

    Examples:
        outlast dead requeue 17 18
        outlast dead requeue --task render --from-scratch
        outlast dead requeue --task mail --error "connection refused" --since 2h --dry-run
    """
    _act(url, Verb.REQUEUE, asked, chosen, from_scratch=from_scratch)


def discard(*, asked: AskedDead, chosen: Chosen, url: Url = None) -> None:
    """Delete dead jobs permanently.

    Their attempts and crash reports go with them. Name them as for `outlast dead requeue`: by
    number, by --task, --queue and the other filters, or give --all. --dry-run counts them and shows
    the newest.

    Examples:
        outlast dead discard 17
        outlast dead discard --queue mail --dry-run
    """
    _act(url, Verb.DISCARD, asked, chosen)


def _act(
    url: str | None, verb: Verb, asked: AskedJobs, chosen: Chosen, *, from_scratch: bool = False
) -> None:
    ids = chosen.read(asked)
    if not ids:
        act_on_all(url, verb, asked, dry_run=chosen.dry_run, from_scratch=from_scratch)
        return

    async def work(store: Store) -> None:
        dead, refused = await _only_dead(store, ids)
        done = act_on_jobs(store, verb, dead, me(), from_scratch=from_scratch)
        await tell_each(store, done, refused)

    on_store(url, work)


async def _only_dead(store: Store, ids: list[int]) -> tuple[list[int], list[str]]:
    """Return the dead jobs among these, and what is wrong with the others."""
    states = await read_states(store, ids)
    refused = [
        _describe_not_dead(one, states.get(one), store.url)
        for one in ids
        if states.get(one) is not State.DEAD
    ]
    return [one for one in ids if states.get(one) is State.DEAD], refused


def _describe_not_dead(job_id: int, state: State | None, url: str) -> str:
    if state is None:
        return describe_missing(job_id, url)
    other_way = f": `outlast requeue {job_id}` revives it" if state is State.CANCELLED else ""
    return f"job {job_id} is {state}, not dead{other_way}"


NAME_MAX, CAUSE_MAX = 60, 80


def groups(*, asked: Annotated[AskedJobs, CHOSEN], url: Url = None, json: Json = False) -> None:
    """Group dead jobs by cause: task, kind, exception, and place in your code.

    The groups with the latest deaths come first. The newest 20,000 dead jobs are read; 2,000 with
    --task, --queue or --tenant.

    Examples:
        outlast dead groups
        outlast dead list --group 2f6c01ab99e04d17
        outlast dead requeue --group 2f6c01ab99e04d17
    """
    found = read_store(url, lambda store: read_dead_groups(store, asked.job_filter()))
    if json:
        print_json(dead_groups_document(found))
        return
    out = console()
    out.print(_table(out, found.groups, SYSTEM.wall()) if found.groups else "no dead jobs")
    if found.full:
        text = f"of the newest {count_of(found.looked_at, 'dead job')}; there are more"
        out.print(text, style="dim", soft_wrap=True)


def _table(out: Console, groups: Sequence[DeathGroup], now: float) -> Grid:
    rows = [
        {
            "jobs": str(one.number),
            "task": line(one.task, NAME_MAX),
            "died of": line(describe_cause(one), CAUSE_MAX),
            "in": line(one.place, NAME_MAX),
            "last": ago(one.last_at, now),
            "group": line(one.group),
            "as in": f"job {one.job_id}",
        }
        for one in groups
    ]
    return table(rows, out.width)


def describe_cause(group: DeathGroup) -> str:
    """Return how the jobs of a group ended: ``error: ValueError``."""
    kind = group.kind or "unknown cause"
    return f"{kind}: {group.exception}" if group.exception else kind


GROUP = make_group(HELP, list_, groups, requeue, discard)
