"""``outlast job``, ``why``, ``logs`` and ``stack``: everything known of one job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, line, safe
from outlast.cli.connect import describe_missing, me, on_store, read_store
from outlast.cli.options import JobId, Json, Url, advise, flag, span
from outlast.cli.show import console, print_json, word
from outlast.errors import JobNotFound, UsageError
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.queries import read_details
from outlast.insight.why import why as explained
from outlast.model.job import ENDED
from outlast.store.inspector import ReadableStore
from outlast.store.rows import StoredJob

if TYPE_CHECKING:
    from outlast.store.protocol import Store

LOOK_SECONDS = 0.5
NOTHING = (
    "no output of this job is kept: @app.task(logs=True), or `outlast worker --logs`, keeps what a"
    " job prints"
)
NOTHING_YET = "it has printed no whole line yet"
NOTHING_AT_ALL = "it has printed nothing"


def job(
    context: typer.Context,
    job_id: JobId,
    stacks: Annotated[bool, flag("--stacks", "Show the stacks of all threads of a crash.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show everything about one job, its attempts and their crash reports.

    It shows what happens next, what is left of its budgets, its progress, checkpoint, arguments and
    result; then all attempts, with a crash report for each failed one. A report begins with the
    line of your code and shows only the task's stack; --stacks shows all threads.

    Examples:
        outlast job 17
        outlast job 17 --json
    """
    from outlast.cli.job_page import Page

    found = read_store(url, lambda store: read_details(store, job_id, SYSTEM.wall()))
    if found is None:
        raise JobNotFound(describe_missing(job_id, url))
    if json:
        from outlast.insight.documents import job_document

        print_json(job_document(found.row, found.attempts, found.refusals, phase=found.phase))
    else:
        Page(console(), found, _explain(context, found), stacks=stacks).write()


def why(context: typer.Context, job_id: JobId, url: Url = None, json: Json = False) -> None:
    """Say why a job is in its state, and what would move it on.

    It says which worker runs the job and for how long it may run, what the job waits for, which
    worker is missing, or why the job died; then what would move it on.

    Examples:
        outlast why 17
        outlast why 17 --json
    """
    about = read_store(url, lambda store: read_details(store, job_id, SYSTEM.wall()))
    if about is None:
        raise JobNotFound(describe_missing(job_id, url))
    answer = _explain(context, about)
    if json:
        from outlast.insight.documents import why_document

        print_json(why_document(about.row, answer))
        return
    out = console()
    out.print(f"job {job_id}: ", word(answer.position.replace("_", " ")), sep="", end="\n\n")
    for sentence in answer.sentences:
        out.print(sentence, soft_wrap=True)
    for move in answer.moves:
        out.print(f"-> {move}", style="bold", soft_wrap=True)


def _explain(context: typer.Context, about: JobDetails) -> Explanation:
    answer = explained(about)
    sentences = [advise(context, one) for one in answer.sentences]
    moves = [advise(context, one) for one in answer.moves]
    return msgspec.structs.replace(answer, sentences=sentences, moves=moves)


def logs(
    context: typer.Context,
    job_id: JobId,
    follow: Annotated[bool, flag("--follow", "Continue until the job has ended.", "-f")] = False,
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
        raise UsageError("--json is one document: leave out --follow")
    from outlast.cli.job_page import print_new

    printed: dict[int, int] = {}

    async def work(store: ReadableStore) -> None:
        while True:
            row = await store.inspector.job(job_id, 0)
            if row is None:
                raise JobNotFound(describe_missing(job_id, url))
            kept = await store.inspector.logs(job_id)
            if json:
                from outlast.insight.documents import logs_document

                print_json(logs_document(job_id, kept))
            else:
                print_new(kept, printed)
            if not follow or row.state in ENDED:
                break
            await asyncio.sleep(LOOK_SECONDS)
        if not json and not printed:
            print(advise(context, _describe_nothing(row)))

    read_store(url, work)


def _describe_nothing(row: StoredJob) -> str:
    if not row.policy.logs:
        return NOTHING
    return NOTHING_AT_ALL if row.state in ENDED else NOTHING_YET


def stack(
    job_id: JobId,
    wait: Annotated[
        float | None,
        span("--wait", "Time for its worker to answer, as in 30 or 1m. Default: 10 s."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the line that a running job is executing, and all stacks of its process, its own first.

    Its worker reads the process without disturbing the job, even if the job is suspended at an
    await, hangs in a call, or blocks everything else in its process. For a command (outlast run)
    its processes are shown. The answer is kept with the job: its page and outlast job ID --json
    show it. outlast actions lists the request.

    The exit code is 1 if the job is not running, or if its worker does not answer in time: then the
    message gives the time of the worker's last heartbeat.

    Examples:
        outlast stack 17
        outlast stack 17 --wait 1m
        outlast stack 17 --json
    """
    from outlast.insight.stacks import WAIT_SECONDS, ask_for_stack, wait_for_stack

    seconds = WAIT_SECONDS if wait is None else wait

    async def work(store: Store) -> StoredJob:
        asked = await ask_for_stack(store, job_id, me())
        return await wait_for_stack(store, asked, seconds)

    try:
        row = on_store(url, work)
    except JobNotFound as error:
        raise JobNotFound(describe_missing(job_id, url)) from error
    if json:
        from outlast.insight.documents import stack_document
        from outlast.insight.resource import SCHEMA

        print_json({"schema": SCHEMA, "id": row.id, "stack": stack_document(row)})
    else:
        _show(row)


def _show(row: StoredJob) -> None:
    found = row.stack
    if found is None:
        return
    by = f", by worker {line(row.worker)} on {line(row.host)}" if row.worker else ""
    print(f"job {row.id}, token {found.token}, {ago(row.stack_at, SYSTEM.wall())}{by}")
    print(f"it is at {line(found.line.strip(), 1_000)}\n" if found.line else "")
    print(safe(found.text))
