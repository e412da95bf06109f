"""Act on all jobs that match: count them (--dry-run), or act in steps, with a bar on a terminal.

``insight.bulk`` takes the steps. The action is recorded before it begins, so if this process is
interrupted, another command or an open page can continue it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from outlast.base.text import count_of, line
from outlast.cli.connect import describe_missing, me, on_store
from outlast.cli.errors import Failed, say
from outlast.cli.listing import tell_unknown
from outlast.cli.options import flag
from outlast.errors import StoreError
from outlast.insight.acting import ACTS, TOLD, UNCHANGED, Verb
from outlast.insight.bulk import Preview, Unchanged, begin, bulk_filter, go_on, job_filter, preview
from outlast.insight.calls import describe_call
from outlast.insight.filters import AskedJobs
from outlast.model.job import State
from outlast.store.actions import LEFT, ActionRow, ActionState

if TYPE_CHECKING:
    from outlast.store.protocol import Store

DryRun = Annotated[bool, flag("--dry-run", "Only show what would be done.")]
SHOWN_MAX = 80  # characters of arguments

Show = Callable[[ActionRow], None]


def act_on_all(
    url: str | None, verb: Verb, asked: AskedJobs, *, dry_run: bool, from_scratch: bool = False
) -> None:
    """Act on all jobs that match, or show them. Failed if some of them stayed unchanged."""

    async def work(store: Store) -> None:
        which = await bulk_filter(store, asked, from_scratch=from_scratch)
        seen = await preview(store, verb, which)
        is_none = seen.count == 0 and not seen.at_least
        if is_none:
            await tell_unknown(store, job_filter(verb, which))
        if dry_run:
            _show_preview(seen)
        elif is_none:
            print(f"0 jobs {_done(verb)}")
        else:
            await follow(store, await begin(store, seen, me()))

    on_store(url, work, dry_run=dry_run)


async def follow(store: Store, action_id: int) -> None:
    """Continue an action until it ends, and show its progress."""
    row: ActionRow | None = None
    unchanged: Unchanged = {}
    try:
        with _bar() as show:
            async for row in go_on(store, action_id, unchanged=unchanged):
                show(row)
    except (asyncio.CancelledError, StoreError):
        say(
            f"action {action_id} has not ended: it continues where a page is open, or by `outlast"
            f" actions resume {action_id}`; `outlast actions stop {action_id}` ends it"
        )
        raise
    if row is None:
        raise Failed(f"there is no action {action_id}: see `outlast actions`")
    if row.as_of is None:  # an act on a single thing
        raise Failed(f"action {action_id} has ended: see `outlast actions`")
    _tell(row, unchanged)


def _show_preview(seen: Preview) -> None:
    more = " or more" if seen.at_least else ""
    state = seen.filter.state or ACTS[seen.verb].states[0]
    done = TOLD["requested"] if state is State.RUNNING else _done(seen.verb)
    jobs = f"{state} {'job' if seen.count == 1 else 'jobs'}"
    print(f"{seen.count:,}{more} {jobs} would be {done}{', the newest:' if seen.sample else ''}")
    for row in seen.sample:
        call = line(describe_call(row.task, row.args), SHOWN_MAX)
        print(f"  {row.id}  {line(row.task, SHOWN_MAX)}  {call}")


def _done(verb: str) -> str:
    return next(iter(ACTS[verb].effects))


async def tell_each(
    store: Store,
    batches: AsyncIterator[Mapping[int, str | None]],
    refused: Sequence[str] = (),
) -> None:
    """Print the outcome for each named job as it arrives. Failed if any is unchanged: it lists
    ``refused``, the reasons known beforehand, then the reason for each such job."""
    reasons = list(refused)
    async for answers in batches:
        for job_id, answer in answers.items():
            if answer is None:
                reasons.append(describe_missing(job_id, store.url))
            elif answer in LEFT:
                reasons.append(_describe_unchanged(job_id, answer))
            else:
                print(f"job {job_id} {TOLD.get(answer, answer)}")
    refuse(reasons)


def _describe_unchanged(job_id: int, answer: str) -> str:
    return f"job {job_id} {UNCHANGED[answer]}"


def refuse(reasons: Sequence[str]) -> None:
    """Raise Failed, with a line for each reason, if there is one."""
    if reasons:
        raise Failed("\noutlast: ".join(reasons))


def _tell(row: ActionRow, unchanged: Unchanged) -> None:
    done = {what: number for what, number in row.counts.items() if what not in LEFT}
    left = {what: number for what, number in row.counts.items() if what in LEFT}
    for what, number in (done or {_done(row.verb): 0}).items():
        print(f"{count_of(number, 'job')} {TOLD.get(what, what)}")
    if row.state is ActionState.STOPPED:
        raise Failed(f"action {row.id} was stopped: the other jobs are unchanged")
    if left:
        told = ", ".join(f"{number} {what.replace('_', ' ')}" for what, number in left.items())
        reasons = (_describe_unchanged(*each) for each in sorted(unchanged.items()))
        refuse([f"some jobs are unchanged: {told}", *reasons])


@contextlib.contextmanager
def _bar() -> Iterator[Show]:
    """Yield a function that shows an action's progress as a bar, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(row: ActionRow) -> None:
            bar.update(
                task,
                description=f"action {row.id}",
                total=row.expected,
                completed=sum(row.counts.values()),
            )

        yield show
