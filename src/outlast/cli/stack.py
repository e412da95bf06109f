"""``outlast stack``."""

from __future__ import annotations

from typing import Annotated

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, line, safe
from outlast.cli.connect import describe_missing, on_store
from outlast.cli.errors import NotSoError
from outlast.cli.options import JobId, Json, Url, span
from outlast.cli.who import me
from outlast.errors import JobNotFound, text_of
from outlast.insight.acting import Refused
from outlast.insight.documents import SCHEMA, stack_document
from outlast.insight.stacks import WAIT_SECONDS, NoStack, ask_for_stack, wait_for_stack
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob


def stack(
    job_id: JobId,
    wait: Annotated[
        float | None,
        span("--wait", "How long its worker has to answer, as in 30 or 1m. Default: 10 s."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show where a running job is: its line, and the stacks of its process, its own first.

    Its worker is asked, and reads the process without disturbing the job, even if that waits in an
    await, hangs in a call, or keeps all else in its process from running. For a command (outlast
    run) its processes are shown. The answer is kept with the job, and can be seen on its page and
    in outlast job ID --json. The request is listed by outlast actions.

    The exit code is 1 if the job does not run, or if no answer comes in time: then the message says
    when its worker was last heard of.

    Examples:
        outlast stack 17
        outlast stack 17 --wait 1m
        outlast stack 17 --json
    """
    seconds = WAIT_SECONDS if wait is None else wait

    async def work(store: Store) -> StoredJob:
        asked = await ask_for_stack(store, job_id, me())
        return await wait_for_stack(store, asked, seconds)

    try:
        row = on_store(url, work, reads=False)
    except JobNotFound as error:
        raise JobNotFound(describe_missing(job_id, url)) from error
    except (Refused, NoStack) as error:
        raise NotSoError(text_of(error)) from error
    if json:
        from outlast.cli.show import print_json

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
