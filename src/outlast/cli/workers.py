"""``outlast workers``: lists live and ended workers, and asks some of them to drain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from outlast.cli.connect import on_store, workers_of
from outlast.cli.errors import NotSoError
from outlast.cli.options import Json, Url, command, laid_out
from outlast.clock import SYSTEM
from outlast.errors import UsageError
from outlast.insight.availability import alive, health, unheard
from outlast.insight.documents import refused_since, workers_document
from outlast.store.protocol import REFUSALS_KEPT, Store
from outlast.store.rows import RefusalRow, WorkerRow, WorkerStatus
from outlast.text import count_of, line, safe, since, span

GONE_SHOWN = 20  # without --all
DAY = 86_400.0
LOOK_SECONDS = 0.5  # between two looks while waiting
_HERE = {WorkerStatus.ACTIVE, WorkerStatus.DRAINING}

HELP = """List workers, and when they were last heard of; or ask some of them to leave.

First those that are there, the longest unheard of on top; then those that have stopped or were lost
in the last day, the latest on top. Their rows are kept for a week: --all shows them.

Examples:
    outlast workers
    outlast workers --all
    outlast workers --json
    outlast workers drain web-1 --wait
"""


def add_to(group: typer.Typer) -> None:
    """Add the group."""
    made = typer.Typer(help=laid_out(HELP), invoke_without_command=True)
    made.callback()(workers)
    command(made, "drain")(drain)
    group.add_typer(made, name="workers")


def workers(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Also all that are gone.", show_default=False)
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List workers, unless a command follows: it finds the URL in the context."""
    context.obj = url
    if context.invoked_subcommand is not None:
        if every or json:
            raise UsageError(f"options of the list do not go with {context.invoked_subcommand}")
        return
    rows, refusals = on_store(url, _look)
    now = SYSTEM.wall()
    refused = refused_since(refusals, now - DAY)
    from outlast.cli.show import print_json

    if json:
        print_json(workers_document(rows, now, refused))
    else:
        _show(rows, refused, now, every=every)


async def _look(store: Store) -> tuple[list[WorkerRow], list[RefusalRow]]:
    return await workers_of(store), await store.inspector.refusals(limit=REFUSALS_KEPT)


def _show(
    rows: Sequence[WorkerRow], refused: Mapping[str, int], now: float, *, every: bool
) -> None:
    from outlast.cli.show import console, gone_table, workers_table

    out = console()
    here = sorted((row for row in rows if row.status in _HERE), key=lambda row: row.heartbeat_at)
    gone = sorted((row for row in rows if row.status not in _HERE), key=_stopped_at, reverse=True)
    shown = gone if every else [row for row in gone if _stopped_at(row) > now - DAY][:GONE_SHOWN]
    out.print(workers_table(out, here, refused, now) if here else "no workers")
    helpers = bool(alive(here, now))
    for row in here:
        if ill := _illness(row, now, helpers=helpers):
            out.print(f"{line(row.name)} {ill}", style="red", soft_wrap=True)
    if shown:
        out.print("\ngone:")
        out.print(gone_table(out, shown, refused, now))
    if rows:
        out.print(f"\n{_counts(rows)}", style="dim")
    if hidden := len(gone) - len(shown):
        out.print(f"{hidden} more that are gone; --all shows them", style="dim")


def _illness(row: WorkerRow, now: float, *, helpers: bool) -> str:
    """Return what is wrong with a worker whose row says that it is there; "" if nothing is."""
    standing = health(row, now)
    held = count_of(row.running, "job")
    then = f"another worker gives its {held} back"
    if not helpers:
        then = f"no worker is alive to give its {held} back: start one"
    if standing == "dead":
        return f"is dead: its lock file is free; {then}"
    if standing == "silent":
        return f"has been silent for {span(unheard(row, now))} and is presumably lost; {then}"
    if standing == "failing":
        return f"has failed {since(row.failing_since, now)} at its {line(row.failing, 400)}"
    return ""


def _stopped_at(row: WorkerRow) -> float:
    return row.stopped_at or row.heartbeat_at


def _counts(rows: Sequence[WorkerRow]) -> str:
    """Return how many there are of each status: ``2 active, 1 lost``."""
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[one]} {one}" for one in WorkerStatus if counts[one])


def drain(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names or ids of workers.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All workers of this store.", show_default=False)
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when they have left.", show_default=False)
    ] = False,
    url: Url = None,
) -> None:
    """Ask workers to take no more work, let what runs finish, and end.

    It is the first SIGTERM, from wherever the store can be reached: attempts get the
    --drain-timeout of their worker, what is left is handed back uncharged, and the process ends
    with exit code 0. A worker receives it with its next heartbeat at the latest. Asking twice is
    the same as once. With --wait the exit code is 1 if one of them was lost on the way.

    Examples:
        outlast workers drain web-1
        outlast workers drain web-1 web-2 --wait
        outlast workers drain --all --wait
    """
    if bool(names) == every:
        raise UsageError("name the workers to drain, or give --all for all of them")
    address = context.obj if url is None else url
    on_store(address, lambda store: _drain(store, names, wait=wait), reads=False)


async def _drain(store: Store, names: Sequence[str] | None, *, wait: bool) -> None:
    rows = await store.inspector.workers()
    here = [row for row in rows if row.status in _HERE]
    chosen = here if names is None else [_meant(name, rows) for name in dict.fromkeys(names)]
    if not chosen:
        print("no worker is alive: none was asked")
    asked = await store.request_drain([row.id for row in chosen])
    for row in chosen:
        if row.id not in asked:
            raise NotSoError(f"{_called(row)} has left meanwhile")
        print(f"{_called(row)} was asked to drain; it runs {_jobs(row)}", flush=True)
    if wait:
        await _until_left(store, asked)


def _meant(name: str, rows: Sequence[WorkerRow]) -> WorkerRow:
    """Return the live worker of that name or, if none has it, of that id."""
    found = [row for row in rows if row.name == name] or [r for r in rows if str(r.id) == name]
    here = [row for row in found if row.status in _HERE]
    if len(here) == 1:
        return here[0]
    if here:
        ids = ", ".join(f"{row.id} (host {row.host}, pid {row.pid})" for row in here)
        raise NotSoError(f"{len(here)} workers are called {name}: give one of the ids {ids}")
    if found:
        raise NotSoError(f"worker {name} is gone already: it is {found[-1].status.value}")
    raise NotSoError(f"there is no worker {name}: see `outlast workers`")


async def _until_left(store: Store, left: set[int]) -> None:
    """Tell what is left to do, until all have left; NotSoError if one was lost."""
    told: dict[int, str] = {}
    lost: list[str] = []
    while left:
        rows = [row for row in await store.inspector.workers() if row.id in left]
        for row in rows:
            if told.get(row.id) != (word := _how_far(row)):
                print(f"{_called(row)} {word}", flush=True)
                told[row.id] = word
        lost += [_called(row) for row in rows if row.status is WorkerStatus.LOST]
        left = {row.id for row in rows if row.status in _HERE}
        await asyncio.sleep(LOOK_SECONDS if left else 0)
    if lost:
        raise NotSoError(f"not drained but lost: {', '.join(lost)}")


def _called(row: WorkerRow) -> str:
    return f"worker {safe(row.name)} ({row.id})"


def _how_far(row: WorkerRow) -> str:
    ends = {WorkerStatus.STOPPED: "has left", WorkerStatus.LOST: "was lost"}
    return ends.get(row.status) or f"is {row.status.value} and runs {_jobs(row)}"


def _jobs(row: WorkerRow) -> str:
    return count_of(row.running, "job") if row.running else "nothing"
