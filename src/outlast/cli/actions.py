"""``outlast actions``: who did what, through the command line, the page or its API."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, line, stamp
from outlast.cli.bulk import follow
from outlast.cli.connect import on_store, read_store
from outlast.cli.errors import Failed
from outlast.cli.options import Before, Json, Limit, Url, make_group, option
from outlast.cli.show import console, print_json, print_table
from outlast.insight.bulk import ActionList, actions_document, list_actions
from outlast.store.actions import ActionRow, ActionState

NAME_MAX = 80

ActionId = Annotated[int, typer.Argument(metavar="ID", help="The action's number.")]

HELP = """List what people did: who, when, to what, why, and with what result.

What people do with these commands (as USER@HOST), on the page and over its API is recorded: cancel,
requeue, discard, drain, pause, resume, changes to schedules and limits, and requests for the stack
of a job. What your own programs do is not. The newest 10,000 actions of each user are kept, for
90 days.

Examples:
    outlast actions
    outlast actions --job 17
    outlast actions --json
    outlast actions stop 12
    outlast actions resume 12
"""


def list_(
    job: Annotated[int | None, option("--job", "ID", "Only actions on this one job.")] = None,
    limit: Limit = 50,
    before: Before = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List actions."""
    found = read_store(url, lambda store: list_actions(store, limit, before, job))
    if json:
        print_json(actions_document(found))
    else:
        _show(found)


def stop(action_id: ActionId, url: Url = None) -> None:
    """Stop an action on many jobs after its current step.

    Its completed steps are not undone.

    Example:
        outlast actions stop 12
    """
    if not on_store(url, lambda store: store.stop_action(action_id)):
        raise Failed(f"action {action_id} has already ended: see `outlast actions`")
    print(f"action {action_id} is stopped")


def resume(action_id: ActionId, url: Url = None) -> None:
    """Continue an action on many jobs whose process was interrupted, and show its progress.

    The page may have begun it. If another process is carrying it out, this one only shows the
    progress.

    Example:
        outlast actions resume 12
    """
    on_store(url, lambda store: follow(store, action_id))


def _show(found: ActionList) -> None:
    now = SYSTEM.wall()
    rows = [
        {
            "ID": str(row.id),
            "WHEN": ago(row.at, now),
            "USER": line(row.actor, NAME_MAX),
            "VERB": line(row.verb, NAME_MAX),
            "TARGET": line(_target(row), 200),
            "RESULT": line(_counts(row), 200),
            "REASON": line(row.reason, 200),
        }
        for row in found.rows
    ]
    print_table(rows, "no actions yet")
    if found.before is not None:
        console().print(f"--before {found.before} shows what was done before", style="dim")


def _target(row: ActionRow) -> str:
    return row.target if row.filter is None else f"{row.target}: {_filter(row.filter)}"


def _filter(text: str) -> str:
    try:
        told = msgspec.json.decode(text, type=dict[str, str | float | bool])
    except msgspec.DecodeError:
        return text
    if isinstance(since := told.get("since"), float):
        told["since"] = stamp(since)
    return ", ".join(f"{name} {value}" for name, value in told.items()) or "all"


def _counts(row: ActionRow) -> str:
    told = ", ".join(f"{number:,} {name}" for name, number in row.counts.items())
    if row.state is ActionState.DONE:
        return told
    return f"{row.state.value}: {told or 'nothing yet'}"


GROUP = make_group(HELP, stop, resume, default=list_)
