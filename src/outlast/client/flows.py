"""Flows: jobs that run after others, and get their results.

A flow is a description: calls, and which of them wait for which others. All its jobs are stored
together, in one commit; a job that waits is ``blocked`` until what it waits for has ended. Nothing
but the store knows of a flow once it is enqueued: workers see jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.base.sync import blocking
from outlast.client.flow_parts import FlowPart, Plan, check_part, gives_list
from outlast.client.job import Job
from outlast.client.looks import IDS_MAX
from outlast.client.task_options import make_labels
from outlast.errors import UsageError
from outlast.model.job import Policy, State
from outlast.store.values import Cancelled, NewJob, Requeued, Upstream

if TYPE_CHECKING:
    from outlast.client.stores import StoreProvider
    from outlast.store.protocol import Store
    from outlast.store.rows import StoredJob


class Flow:
    """Calls and the order in which they run: what ``chain`` and ``group`` return.
    ``app.enqueue(flow)`` stores its jobs."""

    def __init__(self, parts: Sequence[FlowPart], *, in_turn: bool) -> None:
        if not parts:
            raise UsageError("a flow needs at least one call: test a list that may be empty")
        for part in parts:
            check_part(part)
        self._parts = parts
        self._in_turn = in_turn

    def then(self, part: FlowPart) -> Flow:
        """Return a flow of this one and then ``part``, which runs once the last jobs of this one
        have completed."""
        return chain(self, part)

    @property
    def _gives_list(self) -> bool:
        """Whether it ends with a group."""
        return not self._in_turn or gives_list(self._parts[-1])

    def __repr__(self) -> str:
        return f"<Flow of {len(self._parts)} parts>"

    def _lay(self, plan: Plan, upstream: tuple[Upstream, ...]) -> list[int]:
        last: list[int] = []
        for part in self._parts:
            if not self._in_turn:
                last += plan.add(part, upstream)
                continue
            last = plan.add(part, upstream)
            upstream = tuple(Upstream(-1 - place) for place in last)
        return last


def chain(*parts: FlowPart) -> Flow:
    """Return a flow in which each part runs once the one before it has completed.

    A part is a call, such as ``parse.call(outlast.RESULT)``, or a flow. If one dies or is
    cancelled, all after it are cancelled; requeuing the dead one undoes that.
    """
    links: list[FlowPart] = []
    for part in parts:  # a chain within is taken over, so that one may grow in a loop
        links += part._parts if isinstance(part, Flow) and part._in_turn else [part]  # noqa: SLF001
    return Flow(links, in_turn=True)


def group(calls: Iterable[FlowPart]) -> Flow:
    """Return a flow whose calls run side by side, in any order: ``group(…).then(pack.call(
    outlast.RESULTS))`` runs ``pack`` once all have completed."""
    return Flow(list(calls), in_turn=False)


def add_label(jobs: Sequence[NewJob], name: object) -> list[NewJob]:
    """Return jobs with one more label, each; ConfigError for a name that cannot be one."""
    policies: dict[Policy, Policy] = {}
    for policy in {job.policy for job in jobs}:
        labels = make_labels([*policy.labels, name])
        policies[policy] = msgspec.structs.replace(policy, labels=labels)
    return [msgspec.structs.replace(job, policy=policies[job.policy]) for job in jobs]


class FlowRun:
    """The jobs of a flow that was enqueued.

    Attributes:
        jobs: all of them, in their order.
        last: the jobs with which it ends: one for a chain, all for a group.
    """

    jobs: list[Job[Any]]
    last: list[Job[Any]]

    def __init__(
        self, stores: StoreProvider, part: FlowPart, jobs: list[Job[Any]], last: list[int]
    ) -> None:
        """``last``: the places of the last jobs of ``part`` among its jobs."""
        self._stores = stores
        self._gives_list = gives_list(part)
        self.jobs = jobs
        self.last = [jobs[place] for place in last]

    def __repr__(self) -> str:
        return f"<FlowRun of {len(self.jobs)} jobs>"

    async def progress(self) -> dict[State, int]:
        """Return how many of its jobs are in each state. Rows that were deleted do not count."""
        rows = await self._read()
        return dict(Counter(row.state for row in rows))

    progress_sync = blocking(progress)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for its last job and return that job's result; for a group, the list of all results.

        Raises what ``Job.result`` raises: JobCancelled, even if it was an earlier job that died,
        and TimeoutError after ``timeout`` seconds, which count for each of the last jobs.
        """
        results = [await job.result(timeout) for job in self.last]
        return results if self._gives_list else results[0]

    result_sync = blocking(result)

    async def cancel(self) -> int:
        """Cancel its waiting jobs and ask its running ones to stop; return how many there were."""
        ids = [job.id for job in reversed(self.jobs)]  # what waits for others comes first

        async def act(store: Store) -> int:
            answers = [await store.cancel(part) for part in _parts(ids)]
            return sum(one is not Cancelled.ENDED for each in answers for one in each.values())

        return await self._stores.ask(act)

    cancel_sync = blocking(cancel)

    async def retry(self) -> dict[int, Requeued]:
        """Requeue its dead jobs, each from its last checkpoint; return the effect on each, by id: a
        job whose key another job now holds stays dead. Jobs that were cancelled because of the
        requeued ones wait again."""
        dead = [row.id for row in await self._read() if row.state is State.DEAD]

        async def act(store: Store) -> dict[int, Requeued]:
            answers = [await store.requeue(part) for part in _parts(dead)]
            return {job_id: one for each in answers for job_id, one in each.items()}

        return await self._stores.ask(act)

    retry_sync = blocking(retry)

    async def _read(self) -> list[StoredJob]:
        async def look(store: Store) -> list[StoredJob]:
            parts = _parts([job.id for job in self.jobs])
            return [row for part in parts for row in await store.inspector.jobs_of(part, 0)]

        return await self._stores.ask(look)


def _parts(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[first : first + IDS_MAX] for first in range(0, len(ids), IDS_MAX)]
