"""``outlast pause``, ``resume`` and ``pauses``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlast.base.clock import SYSTEM
from outlast.base.text import count_of, line, safe
from outlast.cli.connect import me, on_store, read_store, whoami
from outlast.cli.errors import Failed, say
from outlast.cli.options import Json, Url, flag, option, span
from outlast.cli.show import console, print_json
from outlast.client.pauses import check_text, make_pause
from outlast.errors import UsageError
from outlast.insight.acting import By
from outlast.insight.pauses import (
    WAIT_SECONDS,
    PauseList,
    command_to_resume,
    describe,
    is_named,
    name_of,
    pause_and_wait,
    pauses_document,
    read_pauses,
)
from outlast.insight.pauses import resume as end_pause
from outlast.model.pause import Pause, PauseKind
from outlast.store.rows import WorkerRow

if TYPE_CHECKING:
    from rich.console import Console

    from outlast.store.protocol import Store

Kind = Annotated[
    str,
    typer.Argument(metavar="queue|task|tenant|all", help="The kind; all: everything."),
]
Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Its name; leave it out for all.", show_default=False),
]


def pause(
    kind: Kind,
    name: Name = None,
    reason: Annotated[str | None, option("--reason", "TEXT", "Why, for others.")] = None,
    by: Annotated[str | None, option("--by", "WHO", "Who does it. Default: USER@HOST.")] = None,
    stop: Annotated[bool, flag("--stop", "Also ask running jobs to stop, uncharged.")] = False,
    wait: Annotated[
        float | None,
        span("--wait", "Time for workers to acknowledge it, as in 30 or 1m. Default: 10 s."),
    ] = None,
    url: Url = None,
) -> None:
    """Start no more jobs of a queue, a task, a tenant, or any at all, until it is resumed.

    The command returns once every active worker has acknowledged the pause, usually in a second;
    from then on none of these jobs starts. Running jobs continue, unless --stop is given: then they
    are asked to stop, and return to the queue, uncharged. If a worker has not acknowledged it in
    time, the exit code is 1 and the message names the worker; the pause remains.

    Jobs can still be enqueued; they wait. Pausing the same thing again updates who paused it, why,
    and --stop.

    Examples:
        outlast pause queue mail --reason "the mail server is down"
        outlast pause task render --stop
        outlast pause tenant acme
        outlast pause all --wait 1m
    """
    target = _target(kind, name)
    new = make_pause(target, paused_by=by or whoami(), reason=reason, stop=stop)
    seconds = WAIT_SECONDS if wait is None else wait
    who = me(reason) if by is None else By(by, reason)
    what = name_of(*target)

    async def work(store: Store) -> None:
        is_known = await is_named(store, *target)
        made, left = await pause_and_wait(store, new, seconds, by=who)
        if not is_known:
            say(f"no job and no worker has {what}: it is paused all the same")
        if left:
            raise Failed(
                f"{what} is paused, but {_unheard(left)}: until then jobs of it may start there\n"
                "see `outlast workers` and `outlast pauses`"
            )
        print(f"{what} is paused: none of its jobs starts; `{command_to_resume(made)}` ends that")

    on_store(url, work)


def resume(kind: Kind, name: Name = None, url: Url = None) -> None:
    """End a pause: workers claim its jobs again, within about a second.

    Other pauses of the same jobs stay in force. The exit code is 1 if it was not paused.

    Examples:
        outlast resume queue mail
        outlast resume all
    """
    target = _target(kind, name)
    if on_store(url, lambda store: end_pause(store, *target, by=me())) is None:
        raise Failed(f"{name_of(*target)} is not paused: see `outlast pauses`")
    print(f"{name_of(*target)} is resumed")


def pauses(url: Url = None, json: Json = False) -> None:
    """List all pauses: since when, by whom and why.

    A pause is in force once all live workers have acknowledged it; the list names the workers that
    have not.

    Examples:
        outlast pauses
        outlast pauses --json
    """
    found = read_store(url, read_pauses)
    if json:
        print_json(pauses_document(found))
    else:
        _show(console(), found)


def _show(out: Console, found: PauseList) -> None:
    if not found.pauses:
        out.print("nothing is paused")
    for each in found.pauses:
        out.print(_told(each, found.unheard(each)), soft_wrap=True)


def _told(pause: Pause, left: list[WorkerRow]) -> str:
    stops = " Running jobs were asked to stop." if pause.stop else ""
    heard = f" But {_unheard(left)}." if left else ""
    return f"{describe(pause, SYSTEM.wall())}{stops}{heard}\n-> {command_to_resume(pause)}"


def _unheard(left: list[WorkerRow]) -> str:
    names = ", ".join(f"{line(one.name)} ({one.id})" for one in left)
    have = "has" if len(left) == 1 else "have"
    return f"{count_of(len(left), 'worker')} {have} not acknowledged it yet: {names}"


def _target(kind: str, name: str | None) -> tuple[PauseKind, str]:
    """Return what to pause or resume. Raises UsageError."""
    if kind not in list(PauseKind):
        raise UsageError(f"{safe(kind)}: write queue, task, tenant or all, then its name")
    chosen = PauseKind(kind)
    if chosen is PauseKind.ALL:
        if name is not None:
            raise UsageError("all takes no name: it stands for every queue")
        return chosen, ""
    if name is None:
        raise UsageError(f"which {kind}? Give its name")
    check_text(kind, name)
    return chosen, name
