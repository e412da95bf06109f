"""``outlast doctor``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from outlast.base.clock import SYSTEM
from outlast.base.config import resolve_wakeup
from outlast.base.text import count_of, safe
from outlast.cli.application import Found, check_application
from outlast.cli.connect import check_exists, using
from outlast.cli.errors import DONE, NOT_SO, AppImportError
from outlast.cli.loop import run_loop
from outlast.cli.options import AppUrl, Json, advise
from outlast.cli.show import console, print_json
from outlast.errors import text_of
from outlast.store.backend import describe_place, open_readable, resolve_url

if TYPE_CHECKING:
    from outlast.insight.doctor.facts import Application, Exposure
    from outlast.store.finding import Finding

STYLES = {"ok": "green", "hint": "cyan", "warning": "yellow", "problem": "bold red"}
WIDTH = max(map(len, STYLES)) + 2


def doctor(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Your application, to check as well."),
    ] = None,
    url: AppUrl = None,
    json: Json = False,
) -> None:
    """Check the store, the workers and this machine, and say how to fix what is wrong.

    It checks the durability of the store, poolers, connections, transactions that were left open,
    disk and file system, lock files, data that strangers could read, lost and missing workers, jobs
    that no worker can take, and schedules with ticks at a clock change. With MODULE:APP it also
    checks whether the application imports, has the tasks of the waiting jobs, and requires
    encryption. It changes nothing. Exit code 1 if there is a problem; hints and warnings are only
    shown.

    Examples:
        outlast doctor
        outlast doctor shop.jobs:app --json
    """
    from outlast.insight.doctor.facts import doctor_document
    from outlast.insight.doctor.host import look_at
    from outlast.store.finding import Level

    found, application = _application(app)
    address = resolve_url(found.url if url is None and found is not None else url)
    wakeup = resolve_wakeup(None if found is None else found.wakeup)
    exposure = look_at(address, wakeup, [] if url is None else [url], os.environ)
    findings = [
        msgspec.structs.replace(one, fix=one.fix and advise(context, one.fix))
        for one in run_loop(lambda: _findings(address, application, exposure))
    ]
    if json:
        print_json(doctor_document(describe_place(address), findings))
    else:
        _show(console(), findings)
    raise typer.Exit(NOT_SO if any(one.level is Level.PROBLEM for one in findings) else DONE)


def _application(spec: str | None) -> tuple[Found | None, Application | None]:
    """Examine the application in a child process; an application that does not import is a
    finding."""
    from outlast.insight.doctor.facts import Application

    if spec is None:
        return None, None
    try:
        found = check_application(spec)
    except AppImportError as error:
        return None, Application(spec=spec, error=text_of(error))
    return found, Application(
        spec=spec, tasks=found.tasks, aliases=found.aliases, encryption=found.encryption
    )


async def _findings(url: str, application: Application | None, exposure: Exposure) -> list[Finding]:
    from outlast.insight.doctor.facts import Facts, gather
    from outlast.insight.doctor.findings import examine
    from outlast.insight.doctor.host import in_kubernetes, locks_of

    encrypted = application is not None and application.encryption != "none"
    async with using(open_readable(url, pooler=True)) as store:
        seen = await gather(store, check_exists, encrypted=encrypted)
    return examine(
        Facts(
            place=describe_place(url),
            now=SYSTEM.wall(),
            locks=locks_of(url),
            exposure=exposure,
            application=application,
            kubernetes=in_kubernetes(),
            **seen,
        )
    )


def _show(out: Any, findings: list[Finding]) -> None:
    for one in findings:
        level = Text(f"{one.level.value:<{WIDTH}}", style=STYLES[one.level.value])
        out.print(level + Text(f"{one.name}: {safe(one.sentence)}"), soft_wrap=True)
        if one.fix:
            out.print(Text(" " * WIDTH + f"-> {safe(one.fix)}", style="bold"), soft_wrap=True)
    worst = [one for one in findings if one.level.value in {"problem", "warning"}]
    counts = [
        count_of(sum(one.level.value == level for one in worst), level)
        for level in ("problem", "warning")
    ]
    out.print(f"\n{', '.join(counts)}")
