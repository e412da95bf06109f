"""``outlast event``: send an event that jobs wait for."""

from __future__ import annotations

from typing import Annotated

import typer

from outlast.base.text import line
from outlast.cli.connect import me, on_store
from outlast.cli.errors import Failed
from outlast.cli.jobs import check_json
from outlast.cli.options import Url, option
from outlast.client.events import check_name
from outlast.insight.acting import send_event
from outlast.store.values import NewEvent


def event(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.")],
    value: Annotated[
        str, typer.Argument(metavar="JSON", help="Its value, as JSON; default: null.")
    ] = "null",
    reason: Annotated[str | None, option("--reason", "TEXT", "Why, for others.")] = None,
    url: Url = None,
) -> None:
    """Send an event, such as an approval, to the jobs that wait for it.

    Jobs that wait for it continue within a second; a job that waits later finds it at once. The
    first value sent under a name is kept: a later one changes nothing, and the exit code is 1. The
    value is not encrypted: an application that requires encryption refuses it; send its events by
    app.send_event(). `outlast jobs --state waiting` lists waiting jobs, and `outlast why` says what
    each waits for.

    Examples:
        outlast event approve:17 '{"by": "ada"}'
        outlast event 'prices are in'
    """
    check_name(name)
    sent = NewEvent(name, f"[{check_json(value)}]")
    if not on_store(url, lambda store: send_event(store, sent, me(reason))):
        raise Failed(f"{line(name)} was sent before, and keeps its first value")
    print(f"{line(name)} is sent")
