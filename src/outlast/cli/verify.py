"""``outlast verify``: run the history checker on a given store."""

from __future__ import annotations

from typing import Annotated

import typer

from outlast.base.text import count_of
from outlast.cli.connect import read_store
from outlast.cli.errors import DONE, NOT_SO
from outlast.cli.options import Json, Url, option
from outlast.cli.show import console, now_and_then, print_json
from outlast.insight.verify import PROMISES, Verified, document
from outlast.insight.verify import verify as check
from outlast.store.backend import describe_place, resolve_url


def verify(
    findings: Annotated[int, option("--limit", "N", "Stop after N findings.", min=1)] = 100,
    url: Url = None,
    json: Json = False,
) -> None:
    """Check the kept history against the guarantees.

    Every job and attempt in the store is checked: no token ended twice, tokens increase, every
    attempt has its evidence and exactly one reason for its end, no budget was exceeded, no job is
    dead without a reason. The command only reads and is safe while workers run. The exit code is 1
    if a guarantee is violated; a doubt (a clock that was stepped back, a job that is about to be
    reclaimed) is only shown.

    Examples:
        outlast verify
        outlast verify --url postgresql://app@db/shop --json
    """
    told = now_and_then(lambda verified: f"{verified.jobs} jobs so far", json=json)
    verified = read_store(
        url, lambda store: check(store.inspector, findings_max=findings, on_page=told)
    )
    if json:
        print_json(document(verified))
    else:
        _show(verified, describe_place(resolve_url(url)))
    raise typer.Exit(NOT_SO if verified.violations else DONE)


def _show(verified: Verified, where: str) -> None:
    out = console()
    for finding in verified.findings:
        word = "doubt" if finding.doubt else "VIOLATION"
        of = "" if finding.job_id is None else f"job {finding.job_id}  "
        out.print(f"{word}  {of}{finding.rule}: {finding.sentence}", markup=False)
        if not finding.doubt:
            out.print(f"    {PROMISES[finding.rule]}", style="dim", markup=False)
    out.print(f"{where}: {verdict(verified)}", markup=False, soft_wrap=True)


def verdict(verified: Verified) -> str:
    """Return in one line what was checked and whether all rules hold."""
    looked = f"{count_of(verified.jobs, 'job')}, {count_of(verified.attempts, 'closed attempt')}"
    if verified.violations:
        return f"{count_of(len(verified.violations), 'violation')} ({looked})"
    return f"{looked}: {len(PROMISES)} rules hold"
