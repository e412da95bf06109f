"""``outlast rehearse``: read the queue with a new release before it is deployed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from outlast.base.text import count_of, line
from outlast.cli.application import load
from outlast.cli.connect import read_store
from outlast.cli.errors import DONE, NOT_SO
from outlast.cli.options import Application, AppUrl, Json, flag, option
from outlast.errors import UsageError
from outlast.insight.resource import SCHEMA
from outlast.store.backend import describe_place, resolve_url

if TYPE_CHECKING:
    from outlast.client.rehearsal import Mismatch, Rehearsal

SHOWN_MAX = 400  # characters of a sentence


def rehearse(
    app: Application,
    queues: Annotated[
        str | None,
        option(
            "--queues",
            "a,b",
            "The queues its workers will serve. Default: those of active workers.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        option("--ignore", "KIND[:NAME]", "Accept findings, * for any text; may be repeated."),
    ] = None,
    every: Annotated[
        bool, flag("--all", "Read all jobs. Default: 100,000, evenly spaced.")
    ] = False,
    url: AppUrl = None,
    json: Json = False,
) -> None:
    """Read the queue with a new release, and say what it would do differently.

    Run it where the new release is installed, before its workers start. It reads each queued and
    running job as a runner does, up to the call of its task: whether the release knows the task,
    accepts the arguments and can read the checkpoint; and whether options, limits, queues and
    schedules match the store. It runs no task and writes nothing; only your modules are imported.

    Findings are grouped, each with a count, a job as an example, and what to do. Kinds are task,
    arguments, checkpoint, key, option, limit, worker and schedule; --ignore accepts an intended
    change. The exit code is 1 if there are findings; 2 and 3 mean that it could not read the
    application or the store.

    Examples:
        outlast rehearse shop.jobs:app
        outlast rehearse shop.jobs:app --queues mail,default --ignore option:render
        outlast rehearse shop.jobs:app --ignore 'task:billing.*' --all --json
    """
    from outlast.cli.show import now_and_then, print_json
    from outlast.client.rehearsal import READ_MAX
    from outlast.client.rehearsal import rehearse as check

    accepted = [_check_pattern(each) for each in ignore or []]
    served = None if queues is None else [name.strip() for name in queues.split(",")]
    application = load(app)
    address = resolve_url(application.url if url is None else url)
    told = now_and_then(
        lambda found: f"{found.read:,} of {found.unfinished:,} jobs so far", json=json
    )
    rehearsal = read_store(
        address,
        lambda store: check(
            application,
            store.inspector,
            most=None if every else READ_MAX,
            queues=served,
            on_page=told,
        ),
    )
    before = len(rehearsal.findings)
    rehearsal.findings = [one for one in rehearsal.findings if not _is_accepted(one, accepted)]
    ignored = before - len(rehearsal.findings)
    if json:
        print_json(_document(rehearsal, describe_place(address), ignored))
    else:
        _show(rehearsal, describe_place(address), ignored)
    raise typer.Exit(NOT_SO if rehearsal.findings or rehearsal.more else DONE)


def _check_pattern(text: str) -> str:
    from outlast.client.rehearsal import Area

    kind = text.partition(":")[0]
    if kind not in {*Area}:
        raise UsageError(
            f"--ignore {text!r}: there is no such kind; choose from: {', '.join(Area)}"
        )
    return text


def _is_accepted(one: Mismatch, patterns: list[str]) -> bool:
    names = (one.kind, f"{one.kind}:{one.name}")
    return any(fnmatchcase(name, each) for each in patterns for name in names)


def _document(rehearsal: Rehearsal, place: str, ignored: int) -> dict[str, object]:
    counts = {"unfinished": rehearsal.unfinished, "read": rehearsal.read}
    counts |= {"schedules": rehearsal.schedules, "ignored": ignored, "more": rehearsal.more}
    return {"schema": SCHEMA, "store": place, **counts, "findings": to_builtins(rehearsal.findings)}


def _show(rehearsal: Rehearsal, place: str, ignored: int) -> None:
    from rich.text import Text

    from outlast.cli.show import console

    out = console()
    for one in rehearsal.findings:
        jobs = f": {count_of(one.count, 'job')}, such as job {one.job}" if one.count else ""
        out.print(Text(f"{one.kind} {line(one.name)}{jobs}", style="bold"), soft_wrap=True)
        out.print(Text(f"    {line(one.sentence, SHOWN_MAX)}"), soft_wrap=True)
        out.print(Text(f"    -> {one.fix}"), soft_wrap=True)
    if rehearsal.more:
        out.print(f"{rehearsal.more:,} more are not shown")
    out.print(f"{place}: {_verdict(rehearsal, ignored)}", markup=False, soft_wrap=True)


def _verdict(rehearsal: Rehearsal, ignored: int) -> str:
    told = count_of(len(rehearsal.findings), "finding") + (
        f", {ignored} ignored" if ignored else ""
    )
    read = f"read {rehearsal.read:,} of {rehearsal.unfinished:,} unfinished jobs"
    read += f" and {count_of(rehearsal.schedules, 'schedule')}"
    is_part = rehearsal.read < rehearsal.unfinished
    return f"{told}; {read}" + ("; --all reads every one" if is_part else "")
