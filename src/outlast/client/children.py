"""Lets attempts make children, and wait for them.

A job has each child once, however many attempts it takes: the n-th one that an attempt asks for
is the n-th one of the job. A later attempt that asks again gets the same; for other work under that
ordinal it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.client import steps
from outlast.client.events import wait_event
from outlast.client.flow_parts import FlowPart, Plan, check_part, plan_of
from outlast.client.flows import FlowRun
from outlast.client.job import Job
from outlast.client.task import enqueue_plan, job_of
from outlast.errors import Snooze, UsageError
from outlast.model.job import ENDED, State
from outlast.payload.codec import decode_result
from outlast.store.values import Enqueued, NamedStep, Spawn

if TYPE_CHECKING:
    from outlast.client.attempt import Attempt
    from outlast.client.stores import StoreProvider
    from outlast.payload.payloads import Payloads
    from outlast.store.protocol import Store
    from outlast.store.rows import Child

READ_MAX = 500  # children in one read


class Children:
    """What attempts do on the store of the application: make children, and wait."""

    def __init__(self, stores: StoreProvider) -> None:
        self._stores = stores

    async def spawn(self, attempt: Attempt, part: FlowPart) -> FlowRun:
        """Do what ``Attempt.spawn`` does."""
        check_part(part)
        plan, last = plan_of([part])
        if any(each.job == attempt.job_id for job in plan.jobs for each in job.after):
            raise UsageError(f"a child of job {attempt.job_id} cannot wait for it to end")
        if any(job.on_key is not None for job in plan.jobs):
            raise UsageError(
                "a child is made once: once_per, debounce, until, on_conflict do not go with it"
            )
        attempt._check_spawns()  # noqa: SLF001
        first = attempt._spawned  # noqa: SLF001
        name = f"spawn {first}"
        attempt._begin_step(name, _digest)  # noqa: SLF001
        attempt._spawned += len(plan.jobs)  # noqa: SLF001
        try:
            jobs = await _spawn(attempt, self._stores, plan, name, first)
        except BaseException:
            attempt._spawn_failed = True  # noqa: SLF001
            raise
        run = FlowRun(self._stores, part, jobs, last)
        run._first = first  # noqa: SLF001
        attempt._made.update(job.id for job in jobs)  # noqa: SLF001
        attempt._stepped = True  # noqa: SLF001
        return run

    async def wait_for(self, attempt: Attempt, run: FlowRun) -> Any:
        """Do what ``Attempt.wait_for`` does."""
        first = run._first if isinstance(run, FlowRun) else None  # noqa: SLF001
        if first is None or not attempt._made.issuperset(job.id for job in run.jobs):  # noqa: SLF001
            raise UsageError(
                f"wait_for waits for what this attempt has spawned, not for {run!r:.80}; to run"
                " after other jobs, use using(after=[…])"
            )
        places = run._places  # noqa: SLF001
        children = await _read(
            attempt, self._stores, range(first + min(places), first + max(places) + 1)
        )
        last = [children[place - min(places)] for place in places]
        if all(child.state is None or child.state in ENDED for child in last):
            results = [
                await _result(job, child, self._stores)
                for job, child in zip(run.last, last, strict=True)
            ]
            return results if run._gives_list else results[0]  # noqa: SLF001
        raise await _block(attempt, self._stores, [child.id for child in last])

    async def wait_event(
        self, attempt: Attempt, name: str, timeout: float | timedelta, returns: Any
    ) -> Any:
        """Do what ``Attempt.wait_event`` does."""
        return await wait_event(attempt, self._stores, name, timeout, returns)


async def _spawn(
    attempt: Attempt, stores: StoreProvider, plan: Plan, name: str, first: int
) -> list[Job[Any]]:
    digest = _digest(plan, stores.payloads)
    _, stored = attempt._encode_step(name, digest, str)  # noqa: SLF001
    step = NamedStep(attempt.job_id, attempt.token, name)
    if attempt.number > 1:
        (answer,) = await stores.ask(lambda store: store.find_steps([step]))
        found = attempt._found(answer)  # noqa: SLF001
        if found is not None:
            if steps.decode_step(name, found, str, stores.payloads) != digest:
                raise UsageError(
                    f"an earlier attempt of job {attempt.job_id} has spawned other work here, as"
                    f" its children from the {first + 1:,}. on: spawn the same calls, with the same"
                    " arguments, in each attempt; keep what differs, such as the time, as a step"
                )
            children = await _read(attempt, stores, range(first, first + len(plan.jobs)))
            pairs = zip(plan.calls, children, strict=True)
            return [job_of(call.task, Enqueued(child.id, created=True)) for call, child in pairs]
    kept = msgspec.structs.replace(step, value=stored)
    return await enqueue_plan(stores, plan, Spawn(kept, first))


def _digest(plan: Plan, payloads: Payloads) -> str:
    """Return what tells the jobs of a plan from others: their tasks, arguments and order."""
    work = [
        (job.task, payloads.decode("args", job.args), job.policy.inputs, job.after)
        for job in plan.jobs
    ]
    return sha256(msgspec.json.encode(work)).hexdigest()


async def _read(attempt: Attempt, stores: StoreProvider, ordinals: range) -> list[Child]:
    async def look(store: Store) -> list[Child]:
        found: list[Child] = []
        for n in range(ordinals.start, ordinals.stop, READ_MAX):
            last = min(n + READ_MAX, ordinals.stop)
            found += await store.inspector.children(attempt.job_id, n + 1, last)
        return found

    return await stores.ask(look)


async def _result(job: Job[Any], child: Child, stores: StoreProvider) -> Any:
    if child.state == State.COMPLETED:
        return decode_result(child.result, job._returns, stores.payloads)  # noqa: SLF001
    return await job.result(0)  # raises what its end means


async def _block(attempt: Attempt, stores: StoreProvider, ids: Sequence[int]) -> Snooze:
    """Let the end of the attempt wait for these children; return that end."""
    job_id, token = attempt.job_id, attempt.token
    if not await stores.ask(lambda store: store.watch_children(job_id, token, ids)):
        raise attempt._lost("it cannot wait for its children")  # noqa: SLF001
    snooze = Snooze(0)
    snooze._blocks = True  # noqa: SLF001
    snooze.args = (f"it waits for {len(ids):,} of its children",)
    return snooze
