"""``outlast stats``."""

from __future__ import annotations

import json as jsons
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from outlast.base.clock import SYSTEM
from outlast.base.text import at_least, line, rough
from outlast.cli.connect import read_store
from outlast.cli.options import Json, Url, flag
from outlast.cli.show import FIXED, Row, console, describe_workers, print_json, table
from outlast.insight.stats import COUNTS, read_overview
from outlast.store.inspector import ReadableStore

if TYPE_CHECKING:
    from rich.console import Console

EVERY_SECONDS = 2.0
NAME_MAX = 60
UNSERVABLE_SHOWN, LIMITS_SHOWN = 20, 5


def stats(
    watch: Annotated[bool, flag("--watch", "Refresh every 2 s, until Ctrl-C.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the numbers of jobs, the jobs that no worker can take, and the rates.

    For each queue: due jobs (and how long the oldest has been due), jobs that are not due yet,
    suspects (which wait to run alone), jobs blocked by others, running jobs, and ended jobs that
    are kept. A + means that counting stopped, so there may be more. Completed and cancelled jobs
    are counted among the jobs that ended last in all queues together; a + then marks a queue's
    share of them. --watch with --json prints one document a line.

    Examples:
        outlast stats
        outlast stats --watch
        outlast stats --json
    """

    async def look(store: ReadableStore) -> None:
        async for document in _looks(store, again=watch):
            _show(document, watch=watch, json=json)

    read_store(url, look)


async def _looks(store: ReadableStore, *, again: bool) -> AsyncIterator[dict[str, Any]]:
    while True:
        yield (await read_overview(store)).stats
        if not again:
            return
        await SYSTEM.sleep(EVERY_SECONDS)


def _show(document: dict[str, Any], *, watch: bool, json: bool) -> None:
    if json and watch:
        print(jsons.dumps(document), flush=True)
    elif json:
        print_json(document)
    else:
        out = console()
        if watch and out.is_terminal:
            out.clear()
        _tables(out, document)


def _tables(out: Console, document: dict[str, Any]) -> None:
    rows = [_row(one) for one in document["queues"]]
    out.print(table(rows, out.width) if rows else "no jobs")
    _unservable(out, document["unservable"])
    out.print()
    for text in _lines(document):
        out.print(text, soft_wrap=True)


def _row(one: dict[str, Any]) -> Row:
    oldest = one["oldest_due_seconds"]
    return {
        "QUEUE": line(one["queue"], NAME_MAX),
        "DUE": _number(one, "due"),
        "OLDEST": "" if oldest is None else rough(oldest),
        **{name.upper(): _number(one, name) for name in COUNTS if name != "due"},
    }


def _number(one: dict[str, Any], name: str) -> str:
    return f"{one[name]}{'+' if name in one['at_least'] else ''}"


def _unservable(out: Console, entries: list[dict[str, Any]]) -> None:
    if not entries:
        return
    rows = [
        {
            "TASK": line(one["task"], NAME_MAX),
            "QUEUE": line(one["queue"], NAME_MAX),
            "DUE": f"{one['due']}{'+' if one['at_least'] else ''}",
            "REASON": one["reason"].replace("_", " "),
        }
        for one in entries[:UNSERVABLE_SHOWN]
    ]
    out.print("\nno worker can take", style="bold magenta")
    out.print(table(rows, out.width, FIXED | {"REASON"}))
    if len(entries) > UNSERVABLE_SHOWN:
        hidden = len(entries) - UNSERVABLE_SHOWN
        out.print(f"and {hidden} more; --json has all", style="dim")


def _lines(document: dict[str, Any]) -> list[str]:
    ill = document["ill"]
    workers = describe_workers(document["workers"], ill)
    left = [f"orphans    {ill['running']} of the running jobs have no worker that runs them"]
    done, lost = document["completed"], document["deactivations"]
    minute, hour = _number(done, "minute"), _number(done, "hour")
    held = [_paused(each) for each in document["pauses"]]
    limits = [_limit(each) for each in document["limits"]]
    if len(limits) > LIMITS_SHOWN:
        limits[LIMITS_SHOWN:] = [f"and {len(limits) - LIMITS_SHOWN} more"]
    return [
        *([f"paused     {'; '.join(held)}"] if held else []),
        *([f"limits     due jobs wait for {', '.join(limits)}"] if limits else []),
        f"workers    {workers}; {lost['hour']} lost in the last hour, {lost['day']} in a day",
        *(left if ill["running"] else []),
        f"completed  {minute} in the last minute, {hour} in an hour",
        f"refused    {document['refusals']['day']} writes in the last day",
    ]


def _limit(one: dict[str, Any]) -> str:
    return f"{line(one['limit'], NAME_MAX)} ({at_least(one['waiting'], one['at_least'])})"


def _paused(pause: dict[str, Any]) -> str:
    name = "everything" if pause["name"] is None else f"{pause['kind']} {pause['name']}"
    return line(name, NAME_MAX)
