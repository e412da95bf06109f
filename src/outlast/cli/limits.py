"""``outlast limits``: show, set, hold and reset limits on concurrency and rates."""

from __future__ import annotations

from typing import Annotated

import typer

from outlast.base.clock import SYSTEM
from outlast.base.text import at_least, line, shell_word, span
from outlast.cli.connect import me, on_store, read_store
from outlast.cli.options import Json, Url, advise, make_group, option
from outlast.cli.show import console, print_json, print_table, table
from outlast.errors import ConfigError
from outlast.insight.acting import hold_limit, set_limit
from outlast.insight.limits import (
    are_cut,
    counted,
    limit_document,
    limits_document,
    next_start,
    spec_text,
)
from outlast.insight.queries import read_one_limit
from outlast.store.limits import WAITING_SHOWN, Hold, LimitRow, SetLimit

Name = Annotated[str, typer.Argument(metavar="NAME", help="The limit, as the code calls it.")]
Key = Annotated[str | None, option("--key", "KEY", "Only for this tenant or limit key.")]

HELP = """List limits over the whole fleet, or show, set, hold or reset one.

A limit bounds how many jobs run at once, how many start per minute or the like, or both; the code
declares it.
A value that is set here takes precedence over the code, on all workers, until it is reset.

Examples:
    outlast limits
    outlast limits show openai
    outlast limits set openai --running 40
    outlast limits hold openai 300
"""


def list_(url: Url = None, json: Json = False) -> None:
    """List limits."""
    found = read_store(url, lambda store: store.inspector.limits())
    if json:
        print_json(limits_document(found))
        return
    rows = [
        {
            "LIMIT": line(row.name),
            "ALLOWS": spec_text(row),
            "RUNNING": counted(row, "used"),
            "KEYS": counted(row, "permits"),
            "WAITING": counted(row, "waiting"),
            "STATE": _state(row),
        }
        for row in found
    ]
    print_table(rows, "no limits: a worker whose code has app.limit(…) declares them", fixed=())
    if are_cut(found):
        print("there may be more; `outlast limits show NAME` shows any of them")


def show(name: Name, url: Url = None, json: Json = False) -> None:
    """Show one limit and its busiest keys.

    A limit that is shared by all jobs has a single line, without a key.

    Examples:
        outlast limits show openai
        outlast limits show openai --json
    """
    row, permits = read_store(url, lambda store: read_one_limit(store, name))
    if json:
        print_json(limit_document(row, permits))
        return
    out = console()
    out.print(f"{line(row.name)}: {spec_text(row)}")
    if state := _state(row):
        out.print(state)
    rows = [
        {
            "KEY": line(permit.key) or "all",
            "RUNNING": str(permit.used - permit.noted),
            "OF": "" if permit.running is None else str(permit.running),
            "WAITING": at_least(permit.waiting, permit.waiting >= WAITING_SHOWN),
            "NEXT START": next_start(permit, row, SYSTEM.wall()),
        }
        for permit in permits
    ]
    if rows:
        out.print(table(rows, out.width))
    if "permits" in row.at_least:
        out.print("there are more keys; these are the busiest", style="dim")


def set_(
    context: typer.Context,
    name: Name,
    running: Annotated[
        int | None, option("--running", "N", "Jobs at once; 0: none starts.")
    ] = None,
    rate: Annotated[
        str | None, option("--rate", "N/TIME", "Starts per time, as in 600/min or 5/s.")
    ] = None,
    burst: Annotated[
        float | None, option("--burst", "N", "Starts that the rate allows at the same moment.")
    ] = None,
    key: Key = None,
    url: Url = None,
) -> None:
    """Change a limit on all workers until it is reset. It takes precedence over the code.

    Jobs that it allows start within about a second. If it is lowered below the number of running
    jobs, these continue.

    Examples:
        outlast limits set openai --running 40
        outlast limits set openai --rate 900/min --burst 30
        outlast limits set account --key acme --running 10
    """
    if (running, rate, burst) == (None, None, None):
        raise ConfigError("say what to set: --running 40, --rate 600/min or --burst 50")
    from outlast.client.limits import make_set_limit

    new = make_set_limit(name, key=key, running=running, rate=rate, burst=burst)
    on_store(url, lambda store: set_limit(store, new, me()))
    back = f"`outlast limits reset {shell_word(name)}` restores the values in the code"
    print(f"{line(name)} is set: {advise(context, back)}")


def reset(name: Name, key: Key = None, url: Url = None) -> None:
    """Return to the values in the code, for one key, or for the limit and all its keys.

    The declaration of the newest worker takes effect at once.

    Examples:
        outlast limits reset openai
        outlast limits reset account --key acme
    """
    new = SetLimit(name=name, key=key, reset=True)
    on_store(url, lambda store: set_limit(store, new, me()))
    print(f"{line(name)} has the values in the code again")


def hold(
    name: Name,
    seconds: Annotated[float, typer.Argument(metavar="SECONDS", min=0, help="0 ends it.")],
    key: Key = None,
    url: Url = None,
) -> None:
    """Let nothing start under a limit for some seconds; 0 ends the hold.

    Running jobs continue.

    Examples:
        outlast limits hold openai 300
        outlast limits hold host --key example.org 60
        outlast limits hold openai 0
    """
    held = Hold(name, key or "", seconds)
    on_store(url, lambda store: hold_limit(store, held, me()))
    print(
        f"nothing under {line(name)} starts for {span(seconds)}"
        if seconds
        else f"the hold of {line(name)} is lifted"
    )


def _state(row: LimitRow) -> str:
    told = []
    if row.held_until is not None and row.held_until > SYSTEM.wall():
        told.append(f"held for {span(row.held_until - SYSTEM.wall())}")
    if row.own is not None:
        said = "nothing" if row.declared is None else spec_text(row.declared)
        told.append(f"set by hand; the code says {said}")
    elif row.declared is None:
        told.append("not declared by any code")
    return "; ".join(told)


GROUP = make_group(HELP, show, set_, hold, reset, default=list_)
