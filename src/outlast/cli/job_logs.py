"""``outlast logs``: show the kept output of a job's attempts."""

from __future__ import annotations

import asyncio
from typing import Annotated

from outlast.base.text import safe, stamp
from outlast.cli.connect import describe_missing, on_store
from outlast.cli.options import JobId, Json, Url, flag
from outlast.errors import JobNotFound, UsageError
from outlast.insight.documents import logs_document
from outlast.model.job import ENDED
from outlast.store.logs import LogRow
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob

LOOK_SECONDS = 0.5
NOTHING = (
    "no output of this job is kept: @app.task(logs=True), or `outlast worker --logs`, keeps what a"
    " job prints"
)
NOTHING_YET = "it has printed no whole line yet"
NOTHING_AT_ALL = "it has printed nothing"


def logs(
    job_id: JobId,
    follow: Annotated[bool, flag("--follow", "Go on until the job has ended.", "-f")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show what the attempts of a job have printed, while they run and afterwards.

    Output is kept for tasks with @app.task(logs=True), and for all jobs of a worker with --logs:
    the last 200 lines, or 64 KiB, of each of the last five attempts, written every half second. It
    is deleted with the job.

    Examples:
        outlast logs 17
        outlast logs 17 --follow
    """
    if follow and json:
        raise UsageError("--json is one document: it does not go with --follow")
    printed: dict[int, int] = {}

    async def work(store: Store) -> None:
        while True:
            row = await store.inspector.job(job_id, 0)
            if row is None:
                raise JobNotFound(describe_missing(job_id, url))
            kept = await store.inspector.logs(job_id)
            if json:
                _write(job_id, kept)
            else:
                print_new(kept, printed)
            if not follow or row.state in ENDED:
                break
            await asyncio.sleep(LOOK_SECONDS)
        if not json and not printed:
            print(_describe_nothing(row))

    on_store(url, work)


def _describe_nothing(row: StoredJob) -> str:
    if not row.policy.logs:
        return NOTHING
    return NOTHING_AT_ALL if row.state in ENDED else NOTHING_YET


def print_new(kept: list[LogRow], printed: dict[int, int]) -> None:
    """Print each line once. ``printed``: token -> lines printed, with those that were dropped."""
    for log in kept:
        before = printed.get(log.token, 0)
        if log.token not in printed:
            print(f"attempt {log.number} (token {log.token})")
        if log.dropped > before:
            print(f"… {log.dropped - before} lines before these are not kept")
        for line in log.lines[max(0, before - log.dropped) :]:
            print(f"{stamp(line.at)}  {safe(line.text)}")
        printed[log.token] = log.dropped + len(log.lines)
    print(end="", flush=True)


def _write(job_id: int, kept: list[LogRow]) -> None:
    from outlast.cli.show import print_json

    print_json(logs_document(job_id, kept))
