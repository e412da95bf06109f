"""``outlast flows``."""

from __future__ import annotations

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, at_least, line
from outlast.cli.connect import on_store
from outlast.cli.options import Json, Limit, Url
from outlast.insight.flows import describe_states, flows_document, list_flows

NAME_MAX = 40


def flows(limit: Limit = 20, url: Url = None, json: Json = False) -> None:
    """List recent flows, unfinished ones first.

    A flow is all jobs that are linked: by then, chain, group and after, and as children of others.
    It is shown by the lowest of their numbers, with its name if it has one, and `outlast flow show`
    takes any of their numbers. The list looks at the newest jobs that wait for others, or have,
    and counts up to 1,000 jobs of each flow.

    Examples:
        outlast flows
        outlast flows --json
    """
    found = on_store(url, lambda store: list_flows(store, limit))
    from outlast.cli.show import console, print_json

    if json:
        print_json(flows_document(found))
        return
    from outlast.cli.show import table

    out, now = console(), SYSTEM.wall()
    rows = [
        {
            "ID": str(flow.id),
            "NAME": line(flow.name, NAME_MAX),
            "JOBS": at_least(len(flow.jobs), flow.is_cut),
            "ENQUEUED": ago(flow.oldest_at, now),
            "STATES": describe_states(flow),
            "TASKS": line(", ".join(dict.fromkeys(task for _, task in flow.groups)), NAME_MAX),
        }
        for flow in found.flows
    ]
    out.print(table(rows, out.width, {"ENQUEUED", "STATES"}) if rows else "no flows")
    if found.is_cut:
        out.print("there may be older ones; --limit shows more", style="dim")
