"""``outlast dead``: list dead jobs, revive them, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from rich.console import Console, RenderableType

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, count_of, line
from outlast.cli.bulk import DryRun, act_on_all, refuse, tell_each
from outlast.cli.connect import describe_missing, me, on_store
from outlast.cli.listing import describe_rest, tell_unknown
from outlast.cli.options import (
    Before,
    Error,
    FromScratch,
    Json,
    Label,
    Limit,
    Named,
    SomeIds,
    Url,
    flag,
    make_group,
    option,
    span,
)
from outlast.cli.show import JsonList, console, dead_table, print_json, table
from outlast.errors import UsageError
from outlast.insight.acting import Verb, discard_jobs, requeue_jobs
from outlast.insight.bulk import BulkFilter
from outlast.insight.deaths import DeathGroup, DeathGroups, dead_groups_document, read_dead_groups
from outlast.insight.documents import dead_document, error_of
from outlast.insight.queries import SHOWN_MAX, find_jobs, read_dead, read_states
from outlast.model.crash import find_line_of_death
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, JobFilter, JobIds, StoredJob

Group = Annotated[str | None, option("--group", "ID", "Only this group of `dead groups`.")]

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
    named: Named,
    group: Group = None,
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
    which = JobFilter(
        state=State.DEAD,
        **asdict(named),
        fingerprint=group,
        limit=limit,
        before_id=before,
    )

    async def work(store: Store) -> None:
        found = await find_jobs(store, which)
        if not found.ids and before is None:
            await tell_unknown(store, which)
        await (_write if json else _show)(store, found, limit)

    on_store(url, work)


async def _write(store: Store, found: JobIds, _: int) -> None:
    made = JsonList()
    async for row, last in read_dead(store, found.ids):
        made.add(dead_document(row, last))
    made.end(next_before=found.before)


async def _show(store: Store, found: JobIds, limit: int) -> None:
    rows = read_dead(store, found.ids, SHOWN_MAX)
    why = [(row, find_cause(row, last)) async for row, last in rows]
    out = console()
    out.print(dead_table(out, why, SYSTEM.wall()) if why else "no dead jobs")
    if rest := describe_rest(len(why), limit, found.before):
        out.print(rest, style="dim", soft_wrap=True)


def find_cause(row: StoredJob, last: AttemptRow | None) -> str | None:
    """Return a job's cause of death, for the list; for a dead process also where it was."""
    place = find_line_of_death(None if last is None else last.crash)
    said = error_of(row, last)
    return f"{said}, at {place}" if said and place else said


@dataclass(kw_only=True)
class Chosen(Named):
    """Which dead jobs to act on: by number, by a filter, or all."""

    job_ids: SomeIds = None
    group: Group = None
    label: Label = None
    error: Error = None
    since: Annotated[
        float | None, span("--since", "Only jobs that died in this time, as in 2h.")
    ] = None
    every: Annotated[bool, flag("--all", "All dead jobs.")] = False
    dry_run: DryRun = False

    def read(self, *, from_scratch: bool = False) -> list[int] | BulkFilter:
        """Return the named jobs, each once, or the filter of all that match. Raises UsageError
        unless exactly one way of choosing was used."""
        named = {name: getattr(self, name) for name in ALIKE}
        is_filter = any(one is not None for one in (*named.values(), self.since))
        if sum((bool(self.job_ids), is_filter, self.every)) != 1:
            raise UsageError(
                "name the dead jobs: by ID…, or by --task, --queue and the other filters, or with"
                " --all"
            )
        if not self.job_ids:
            return BulkFilter(**named, from_scratch=from_scratch)
        if self.dry_run:
            raise UsageError("--dry-run needs a filter or --all: leave out the job ids")
        return list(dict.fromkeys(self.job_ids))


ALIKE = ("queue", "task", "tenant", "label", "group", "error")  # fields of BulkFilter


def requeue(*, chosen: Chosen, from_scratch: FromScratch = False, url: Url = None) -> None:
    """Revive dead jobs.

    They get fresh budgets and continue from their last checkpoint. Name them by number, by --task,
    --queue, --tenant and --group, by --label, --error and --since, or give --all. --dry-run counts
    them and shows the newest.

    With a filter or --all it works in steps of 500 jobs and shows a bar. If it is interrupted,
    `outlast actions resume` continues it.

    Examples:
        outlast dead requeue 17 18
        outlast dead requeue --task render --from-scratch
        outlast dead requeue --task mail --error "connection refused" --since 2h --dry-run
    """
    which = chosen.read(from_scratch=from_scratch)
    if isinstance(which, BulkFilter):
        act_on_all(url, Verb.REQUEUE, which, chosen.since, dry_run=chosen.dry_run)
        return

    async def work(store: Store) -> None:
        dead, refused = await _only_dead(store, which)
        done = requeue_jobs(store, dead, me(), from_scratch=from_scratch)
        await tell_each(store, done, refused)

    on_store(url, work, reads=False)


def discard(*, chosen: Chosen, url: Url = None) -> None:
    """Delete dead jobs permanently.

    Their attempts and crash reports go with them. Name them as for `outlast dead requeue`: by
    number, by --task, --queue and the other filters, or give --all. --dry-run counts them and shows
    the newest.

    Examples:
        outlast dead discard 17
        outlast dead discard --queue mail --dry-run
    """
    which = chosen.read()
    if isinstance(which, BulkFilter):
        act_on_all(url, Verb.DISCARD, which, chosen.since, dry_run=chosen.dry_run)
        return

    async def work(store: Store) -> None:
        dead, refused = await _only_dead(store, which)
        done = sum([number async for number in discard_jobs(store, dead, me())])
        print(f"{count_of(done, 'job')} discarded")
        refuse(refused)

    on_store(url, work, reads=False)


async def _only_dead(store: Store, ids: list[int]) -> tuple[list[int], list[str]]:
    """Return the dead ones among the jobs, and what is wrong with the others."""
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


def groups(*, named: Named, url: Url = None, json: Json = False) -> None:
    """Group dead jobs by cause: task, kind, exception, and place in your code.

    The groups with the latest deaths come first. The newest 20,000 dead jobs are read; 2,000 with
    --task, --queue or --tenant.

    Examples:
        outlast dead groups
        outlast dead list --group 2f6c01ab99e04d17
        outlast dead requeue --group 2f6c01ab99e04d17
    """
    which = JobFilter(**asdict(named))

    async def look(store: Store) -> DeathGroups:
        return await read_dead_groups(store, which)

    found = on_store(url, look)
    if json:
        print_json(dead_groups_document(found))
        return
    out = console()
    out.print(_table(out, found.groups, SYSTEM.wall()) if found.groups else "no dead jobs")
    if found.full:
        text = f"of the newest {count_of(found.looked_at, 'dead job')}; there are more"
        out.print(text, style="dim", soft_wrap=True)


def _table(out: Console, groups: Sequence[DeathGroup], now: float) -> RenderableType:
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
    kind = group.kind or "an unknown end"
    return f"{kind}: {group.exception}" if group.exception else kind


GROUP = make_group(HELP, list_, groups, requeue, discard)
