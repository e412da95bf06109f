"""``outlast dead``: the jobs that used up a budget; look at them, revive them, delete them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
import typer

from outlast.cli.connect import missing, on_store
from outlast.cli.jobs import refuse, tell_requeued
from outlast.cli.options import (
    FromScratch,
    Json,
    Limit,
    Queue,
    SomeIds,
    TaskName,
    Tenant,
    Url,
    command,
    laid_out,
)
from outlast.clock import SYSTEM
from outlast.errors import UsageError
from outlast.insight.documents import SCHEMA, job_document
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, JobFilter, StoredJob
from outlast.store.values import Requeued
from outlast.text import count_of

BATCH = 500  # jobs in one transaction

All = Annotated[bool, typer.Option("--all", help="All dead jobs.", show_default=False)]

HELP = """Look at dead jobs, revive them, or delete them.

A job is dead when it has used up a budget, failures or losses, or when its task said so. It is
kept with all its evidence until an operator acts.
"""


class Choice(msgspec.Struct, frozen=True):
    """Which dead jobs are meant: ids, or all that pass the filters."""

    ids: list[int]
    task: str | None
    queue: str | None
    tenant: str | None

    def filter(self, limit: int, before_id: int | None = None) -> JobFilter:
        """Return the filter for one page of them."""
        return JobFilter(
            state=State.DEAD,
            queue=self.queue,
            task=self.task,
            tenant=self.tenant,
            limit=limit,
            before_id=before_id,
        )


def add_to(group: typer.Typer) -> None:
    """Add the group."""
    dead = typer.Typer(help=laid_out(HELP), no_args_is_help=True)
    command(dead, "list")(list_)
    command(dead, "requeue")(requeue)
    command(dead, "discard")(discard)
    group.add_typer(dead, name="dead")


def list_(
    task: TaskName = None,
    queue: Queue = None,
    tenant: Tenant = None,
    limit: Limit = 50,
    url: Url = None,
    json: Json = False,
) -> None:
    """List dead jobs with what ended them, newest first.

    `outlast job ID` shows the whole evidence of one of them.

    Examples:
        outlast dead list
        outlast dead list --task render --json
    """
    which = Choice([], task, queue, tenant).filter(limit)

    async def look(store: Store) -> list[tuple[StoredJob, list[AttemptRow]]]:
        rows = await store.inspector.jobs(which)
        return [(row, await store.inspector.attempts(row.id)) for row in rows]

    found = on_store(url, look)
    documents = [job_document(row, attempts) for row, attempts in found]
    from outlast.cli.show import console, dead_table, print_json

    if json:
        for document in documents:
            del document["attempts"], document["schema"]
        print_json({"schema": SCHEMA, "jobs": documents})
        return
    why = [(row, document["error"]) for (row, _), document in zip(found, documents, strict=True)]
    out = console()
    out.print(dead_table(out, why, SYSTEM.wall()) if why else "no dead jobs")
    if len(found) == limit:
        out.print(f"the newest {limit}; --limit shows more", style="dim")


def requeue(
    job_ids: SomeIds = None,
    task: TaskName = None,
    queue: Queue = None,
    tenant: Tenant = None,
    every: All = False,
    from_scratch: FromScratch = False,
    url: Url = None,
) -> None:
    """Revive dead jobs.

    They get fresh budgets and go on from their last checkpoint. Name them by number, by --task,
    --queue and --tenant, or say --all.

    Examples:
        outlast dead requeue 17 18
        outlast dead requeue --task render --from-scratch
    """
    choice = chosen(job_ids, (task, queue, tenant), every=every)

    async def work(store: Store) -> list[str]:
        done, refused = 0, []
        async for ids, complaints in batches(store, choice):
            answers = await store.requeue(ids, from_scratch=from_scratch)
            done += sum(answer is Requeued.REQUEUED for answer in answers.values())
            named = ids if choice.ids else [one for one in ids if not _done(answers.get(one))]
            refused += complaints + tell_requeued(named, answers, store.url)
        if not choice.ids:
            print(f"{count_of(done, 'job')} requeued")
        return refused

    refuse(on_store(url, work, reads=False))


def _done(answer: Requeued | None) -> bool:
    """Whether nothing needs to be said of a job that was found by a filter."""
    return answer is None or answer is Requeued.REQUEUED


def discard(
    job_ids: SomeIds = None,
    task: TaskName = None,
    queue: Queue = None,
    tenant: Tenant = None,
    every: All = False,
    url: Url = None,
) -> None:
    """Delete dead jobs for good.

    Their attempts and crash reports go with them. Name them by number, by --task, --queue and
    --tenant, or say --all.

    Examples:
        outlast dead discard 17
        outlast dead discard --queue mail
    """
    choice = chosen(job_ids, (task, queue, tenant), every=every)

    async def work(store: Store) -> list[str]:
        done, refused = 0, []
        async for ids, complaints in batches(store, choice):
            done += await store.discard(ids)
            refused += complaints
        print(f"{count_of(done, 'job')} discarded")
        return refused

    refuse(on_store(url, work, reads=False))


def chosen(
    job_ids: list[int] | None, filters: tuple[str | None, str | None, str | None], *, every: bool
) -> Choice:
    """Return what was chosen. UsageError where nothing was, or too much."""
    ways = [bool(job_ids), any(one is not None for one in filters), every]
    if sum(ways) != 1:
        raise UsageError(
            "name the dead jobs: by ID…, or by --task, --queue and --tenant, or with --all"
        )
    return Choice(list(dict.fromkeys(job_ids or [])), *filters)


async def batches(store: Store, choice: Choice) -> AsyncIterator[tuple[list[int], list[str]]]:
    """Yield the ids of chosen dead jobs in bounded batches, with complaints about the others."""
    if choice.ids:
        for at in range(0, len(choice.ids), BATCH):
            yield await _split(store, choice.ids[at : at + BATCH])
        return
    before: int | None = None
    while rows := await store.inspector.jobs(choice.filter(BATCH, before)):
        before = rows[-1].id
        yield [row.id for row in rows], []


async def _split(store: Store, ids: list[int]) -> tuple[list[int], list[str]]:
    dead, complaints = [], []
    for one in ids:
        row = await store.inspector.job(one)
        if row is None:
            complaints.append(missing(one, store.url))
        elif row.state is not State.DEAD:
            complaints.append(f"job {one} is {row.state}, not dead{_other_way(row)}")
        else:
            dead.append(one)
    return dead, complaints


def _other_way(row: StoredJob) -> str:
    if row.state is not State.CANCELLED:
        return ""
    return f": `outlast requeue {row.id}` revives it"
