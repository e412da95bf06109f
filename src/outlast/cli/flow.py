"""``outlast flows``; ``outlast flow``: show a flow, cancel it, retry it, skip a job of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, at_least, count_of, line
from outlast.cli.bulk import DryRun
from outlast.cli.connect import describe_missing, me, on_store, read_store
from outlast.cli.options import JobId, Json, Limit, Url, make_group, option
from outlast.cli.show import Grid, console, print_json, table, word
from outlast.errors import JobNotFound
from outlast.insight.acting import SKIP, TOLD, Verb, act_on_job
from outlast.insight.flows import (
    SHOWN,
    WALK_MAX,
    FlowJob,
    FlowView,
    act_on_flow,
    describe_retry,
    describe_states,
    flow_document,
    flows_document,
    list_flows,
    read_flow,
)
from outlast.insight.sentences import list_some
from outlast.store.inspector import ReadableStore
from outlast.store.values import Wants

if TYPE_CHECKING:
    from outlast.store.protocol import Store

NAME_MAX = 40
AFTER_SHOWN = 5  # of what one job waits for, in the table
_HOW = {Wants.COMPLETED: "", Wants.ENDED: " ended", Wants.DEAD: " dead"}
Shown = Annotated[int, option("--limit", "N", "Show at most N of its jobs.", min=1, max=10_000)]

HELP = """Show a flow, cancel it, retry its failed jobs, or continue without one of them.

A flow is a set of linked jobs: linked by then, chain, group and after, or as parent and child. ID
is the number of any job in it.

Examples:
    outlast flow show 17
    outlast flow retry 17 --dry-run
    outlast flow cancel 17
    outlast flow skip 17
"""


def flows(limit: Limit = 20, url: Url = None, json: Json = False) -> None:
    """List recent flows, unfinished ones first.

    A flow is a set of linked jobs: linked by then, chain, group and after, or as parent and child.
    The list shows the lowest number in each flow, and its name if it has one; `outlast flow show`
    takes the number of any job in it. The flows are found from the newest jobs that wait, or have
    waited, for others; up to 1,000 jobs of each flow are counted.

    Examples:
        outlast flows
        outlast flows --json
    """
    found = read_store(url, lambda store: list_flows(store, limit))
    if json:
        print_json(flows_document(found))
        return
    out, now = console(), SYSTEM.wall()
    rows = [
        {
            "ID": str(flow.id),
            "NAME": line(flow.name, NAME_MAX),
            "JOBS": at_least(len(flow.jobs), flow.is_cut),
            "ENQUEUED": ago(flow.enqueued_at, now),
            "STATES": describe_states(flow),
            "TASKS": line(", ".join(dict.fromkeys(task for _, task in flow.groups)), NAME_MAX),
        }
        for flow in found.flows
    ]
    out.print(table(rows, out.width, {"ENQUEUED", "STATES"}) if rows else "no flows")
    if found.is_cut:
        out.print("there may be older ones; --limit shows more", style="dim")


def show(job_id: JobId, limit: Shown = SHOWN, url: Url = None, json: Json = False) -> None:
    """Show who waits for whom, what failed, and what a retry would run again.

    Layer 1 waits for nothing, layer 2 for jobs of layer 1, and so on; a child comes after its
    parent. For a large flow, the jobs of each layer and task are counted, and some are shown, dead
    ones first. At most 100,000 jobs are read.

    Examples:
        outlast flow show 17
        outlast flow show 17 --json
    """
    flow = read_store(url, lambda store: _find(store, job_id))
    if json:
        print_json(flow_document(flow, limit))
        return
    out = console()
    called = f"flow {flow.id}" + (f", {line(flow.name, 80)}" if flow.name else "")
    more = " or more" if flow.is_cut else ""
    jobs = count_of(len(flow.jobs), "job")
    out.print(f"{called}: {jobs}{more}: {describe_states(flow)}", soft_wrap=True, end="\n\n")
    some = flow.some(limit)
    if len(some) < len(flow.jobs):
        out.print(_layers(flow, out.width), end="\n\n")
    out.print(_jobs(some, out.width))
    if len(some) < len(flow.jobs):
        rest = len(flow.jobs) - len(some)
        out.print(f"and {count_of(rest, 'more job')}; --limit shows more", style="dim")
    out.print(f"\n{describe_retry(flow)}", soft_wrap=True)


def _layers(flow: FlowView, width: int) -> Grid:
    rows = []
    for (layer, task), jobs in flow.groups.items():
        part = FlowView(id=flow.id, jobs=jobs, is_cut=False)
        rows.append(
            {
                "LAYER": str(layer),
                "TASK": line(task, 60) or "deleted",
                "JOBS": f"{len(jobs):,}",
                "STATES": describe_states(part),
            }
        )
    return table(rows, width, {"LAYER", "STATES"})


def _jobs(jobs: list[FlowJob], width: int) -> Grid:
    rows: list[dict[str, Any]] = [
        {
            "LAYER": str(job.layer),
            "ID": str(job.id),
            "STATE": word(job.phase or "deleted"),
            "TASK": line(job.task, 60),
            "AFTER": _after(job),
            "RETRY": {"runs": "runs again", "waits": "waits again"}.get(job.retry or "", ""),
        }
        for job in jobs
    ]
    return table(rows, width, {"LAYER", "STATE", "RETRY"})


def _after(job: FlowJob) -> str:
    names = [f"{link.upstream_id}{_HOW[link.wants]}" for link in job.upstream]
    told = [] if job.parent is None else [f"child of {job.parent}"]
    return ", ".join([*told, *([list_some(names, AFTER_SHOWN)] if names else [])])


def cancel(job_id: JobId, dry_run: DryRun = False, url: Url = None) -> None:
    """Cancel the jobs of a flow that have not ended.

    Waiting jobs are cancelled at once. Running jobs are asked to stop; one that completes first
    stays completed. --dry-run only counts them.

    Examples:
        outlast flow cancel 17 --dry-run
        outlast flow cancel 17
    """

    async def work(store: Store) -> None:
        flow = await _find(store, job_id)
        left = flow.unfinished()
        if dry_run:
            print(f"{count_of(len(left), 'job')} would be cancelled, or asked to stop")
        elif not left:
            print(f"flow {flow.id} has already ended: nothing was cancelled")
        else:
            _tell(await act_on_flow(store, flow, Verb.CANCEL, me()))
        _tell_cut(flow)

    on_store(url, work, dry_run=dry_run)


def retry(job_id: JobId, dry_run: DryRun = False, url: Url = None) -> None:
    """Requeue the dead jobs of a flow.

    They get fresh budgets and continue from their last checkpoint. Jobs that were cancelled because
    of them wait again, down to the end of the flow, except jobs with a key. A job that a person
    cancelled stays cancelled.

    Examples:
        outlast flow retry 17 --dry-run
        outlast flow retry 17
    """

    async def work(store: Store) -> None:
        flow = await _find(store, job_id)
        if dry_run or not flow.again("runs"):
            print(describe_retry(flow))
        else:
            _tell(await act_on_flow(store, flow, Verb.REQUEUE, me()))
        _tell_cut(flow)

    on_store(url, work, dry_run=dry_run)


def skip(job_id: JobId, url: Url = None) -> None:
    """Let a flow continue without one of its dead or blocked jobs.

    The job counts as completed, without a result. Jobs that were cancelled because of it wait
    again, and jobs that waited for it alone start, with None in place of its result. A skip cannot
    be undone.

    Example:
        outlast flow skip 17
    """

    async def work(store: Store) -> None:
        row = await store.inspector.job(job_id)
        if row is None:
            raise JobNotFound(describe_missing(job_id, store.url))
        print(f"job {job_id} {await act_on_job(store, SKIP, row, me())}")

    on_store(url, work)


def _tell(counts: Mapping[str, int]) -> None:
    for what, number in counts.items():
        print(f"{count_of(number, 'job')} {TOLD.get(what, what)}")


def _tell_cut(flow: FlowView) -> None:
    if flow.is_cut:
        print(f"only the {len(flow.jobs):,} jobs nearest to this one were read: the flow has more")


async def _find(store: ReadableStore, job_id: int) -> FlowView:
    flow = await read_flow(store, job_id, WALK_MAX)
    if flow is None:
        raise JobNotFound(describe_missing(job_id, store.url))
    return flow


GROUP = make_group(HELP, show, cancel, retry, skip)
