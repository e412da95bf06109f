"""``outlast workers``: list live and ended workers, and ask some of them to drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.base.clock import SYSTEM
from outlast.base.text import count_of, line, since, span
from outlast.cli.connect import me, on_store, read_store
from outlast.cli.errors import Failed
from outlast.cli.options import Json, Url, flag, make_group
from outlast.cli.show import console, describe_workers, gone_table, print_json, workers_table
from outlast.errors import UsageError
from outlast.insight.acting import ask_to_drain, follow_drain
from outlast.insight.availability import health, holds, list_alive, sleeps
from outlast.insight.documents import workers_document
from outlast.insight.queries import DAY, list_workers
from outlast.store.rows import WorkerRow, WorkerStatus

if TYPE_CHECKING:
    from outlast.store.protocol import Store

GONE_SHOWN = 20  # without --all

HELP = """List workers and their last heartbeats, or ask workers to drain.

Live workers come first, the longest silent on top; then the workers that stopped or were lost in
the last day, the latest on top. Rows of workers are kept for a week: --all shows all of them.

Examples:
    outlast workers
    outlast workers --all
    outlast workers --json
    outlast workers drain web-1 --wait
"""


def list_(
    every: Annotated[bool, flag("--all", "Show all ended workers, not only the latest.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List workers."""
    found, now = read_store(url, list_workers), SYSTEM.wall()
    rows, refused = found.rows, found.refused(now)
    if json:
        print_json(workers_document(rows, refused))
    else:
        _show(rows, refused, now, every=every)


def _show(
    rows: Sequence[WorkerRow], refused: Mapping[str, int], now: float, *, every: bool
) -> None:
    out = console()
    here = sorted((row for row in rows if holds(row)), key=lambda row: row.heartbeat_at)
    gone = sorted((row for row in rows if not holds(row)), key=_stopped_at, reverse=True)
    shown = gone if every else [row for row in gone if _stopped_at(row) > now - DAY][:GONE_SHOWN]
    asleep = ", ".join(line(row.name) for row in gone if sleeps(row, now))
    told = f"no worker is awake; asleep: {asleep}" if asleep else "no workers"
    out.print(workers_table(out, here, refused, now) if here else told)
    helpers = bool(list_alive(here))
    for row in here:
        if ill := _illness(row, now, helpers=helpers):
            out.print(f"{line(row.name)} {ill}", style="red", soft_wrap=True)
    if shown:
        out.print("\ngone:")
        out.print(gone_table(out, shown, refused, now))
    if rows:
        out.print(f"\n{_counts(rows)}", style="dim")
    if hidden := len(gone) - len(shown):
        out.print(f"{hidden} more have ended; --all shows them", style="dim")


def _illness(row: WorkerRow, now: float, *, helpers: bool) -> str:
    """Return what is wrong with a worker whose row marks it alive; "" if nothing is."""
    standing = health(row)
    held = count_of(row.running, "job")
    then = f"another worker returns its {held} to the queue"
    if not helpers:
        then = f"no worker is alive to return its {held} to the queue: start one"
    if standing == "dead":
        return f"is dead: its lock file is free; {then}"
    if standing == "silent":
        return f"has been silent for {span(row.unheard)} and is presumably lost; {then}"
    if standing == "failing":
        return f"has failed {since(row.failing_since, now)} at its {line(row.failing, 400)}"
    return ""


def _stopped_at(row: WorkerRow) -> float:
    return row.stopped_at or row.heartbeat_at


def _counts(rows: Sequence[WorkerRow]) -> str:
    """Return how many there are of each status: ``2 active, 1 lost``."""
    counts = Counter(row.status.value for row in rows)
    present = {one.value: counts[one.value] for one in WorkerStatus if counts[one.value]}
    return describe_workers(present, Counter(health(row) for row in rows))


def drain(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Names or ids of workers.")
    ] = None,
    every: Annotated[bool, flag("--all", "All workers of this store.")] = False,
    wait: Annotated[bool, flag("--wait", "Wait until they have ended.")] = False,
    url: Url = None,
) -> None:
    """Ask workers to take no more jobs, let running ones finish, and exit.

    This does what the first SIGTERM does, from any host that reaches the store: attempts get the
    --drain-timeout of their worker, the jobs of unfinished ones return to the queue uncharged, and
    the process ends with exit code 0. A worker receives the request with its next heartbeat at the
    latest. Asking twice changes nothing. With --wait the exit code is 1 if one of them was lost
    instead.

    Examples:
        outlast workers drain web-1
        outlast workers drain web-1 web-2 --wait
        outlast workers drain --all --wait
    """
    if bool(names) == every:
        raise UsageError("name the workers to drain, or give --all for all of them")
    on_store(url, lambda store: _drain(store, names, wait=wait))


async def _drain(store: Store, names: Sequence[str] | None, *, wait: bool) -> None:
    request = await ask_to_drain(store, names, by=me())
    if not request.chosen:
        print("no worker is alive, so none was asked")
    for row in request.chosen:
        if row.id not in request.asked:
            raise Failed(f"{_called(row)} has ended in the meantime")
        print(f"{_called(row)} was asked to drain; it runs {_jobs(row)}", flush=True)
    if wait:
        await _until_left(store, request.asked)


async def _until_left(store: Store, asked: set[int]) -> None:
    """Print the attempts still running, until all have left. Raises Failed if one was lost."""
    lost: list[str] = []
    ends = {WorkerStatus.STOPPED: "has left", WorkerStatus.LOST: "was lost"}
    async for row in follow_drain(store, asked):
        how = ends.get(row.status) or f"is {row.status.value} and runs {_jobs(row)}"
        print(f"{_called(row)} {how}", flush=True)
        if row.status is WorkerStatus.LOST:
            lost.append(_called(row))
    if lost:
        raise Failed(f"lost instead of drained: {', '.join(lost)}")


def _called(row: WorkerRow) -> str:
    return f"worker {line(row.name)} ({row.id})"


def _jobs(row: WorkerRow) -> str:
    return count_of(row.running, "job") if row.running else "nothing"


GROUP = make_group(HELP, drain, default=list_)
