"""Lets attempts make children, and wait for them.

A job has each child once, however many attempts it takes. A child that was spawned with a name is
known by it; of the others, the n-th that an attempt spawns is the n-th of the job. A later attempt
that spawns it again gets the same child, and is refused if it asks for other work in that place or
under that name.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.client.attempt import Attempt, Family
from outlast.client.attempt_store import AttemptStore
from outlast.client.events import check_name, wait_event
from outlast.client.flow_parts import FlowPart, Plan, check_part, gives_list, plan_of
from outlast.client.flows import FlowRun
from outlast.client.job import Job
from outlast.client.task import Task, enqueue_plan, job_of
from outlast.errors import BadData, UsageError, text_of
from outlast.model.job import ENDED, State
from outlast.payload.codec import decode_result
from outlast.store.values import Enqueued, Spawn

if TYPE_CHECKING:
    from outlast.client.stores import StoreProvider
    from outlast.payload.payloads import Payloads
    from outlast.store.protocol import Store
    from outlast.store.rows import Child

_read_kept = msgspec.json.Decoder(tuple[str, int]).decode  # the value of its step
READ_MAX = 500  # children in one read
NAMED_FROM = 1_000_000_000  # the ordinal of the first child that has a name


class Spawned(msgspec.Struct, frozen=True):
    """What a call of ``spawn`` has returned: the ordinals of its last jobs, which say when it is
    over, and whether its result is a list."""

    last: list[int]
    gives_list: bool


def make_family(stores: StoreProvider) -> Family:
    """Return what one attempt does on the store of its application: make children, and wait."""
    children = _Children(stores)
    return Family(children.spawn, children.wait_for, children.wait_event)


class _Children:
    def __init__(self, stores: StoreProvider) -> None:
        self._stores = stores
        self._runs: dict[FlowRun, Spawned] = {}
        self._count = 0  # children without a name that the attempt has asked for
        self._free = 0  # the next ordinal for children that have one; 0: it is not known yet
        self._has_failed = False

    async def spawn(self, attempt: Attempt, part: FlowPart, name: str | None) -> FlowRun:
        """Do what ``Attempt.spawn`` does."""
        check_part(part)
        plan, last = plan_of([part])
        if any(each.job == attempt.job_id for job in plan.jobs for each in job.after):
            raise UsageError(f"a child of job {attempt.job_id} cannot wait for it to end")
        if any(job.on_key is not None for job in plan.jobs):
            raise UsageError(
                "once_per, debounce, until and on_conflict cannot be used for a child: an attempt"
                " makes each child once"
            )
        if self._has_failed:
            raise UsageError(
                "an earlier spawn of this attempt failed, perhaps after it made its children: let"
                " the attempt end with that error"
            )
        store, step = AttemptStore(attempt, self._stores), f"spawn {self._count}"
        counted = self._count if name is None else None
        if name is None:
            self._count += len(plan.jobs)
        else:
            check_name(name)
            step = f"child {name}"
        store.begin(step)
        try:
            first, jobs = await store.patiently(lambda: self._spawn(store, plan, step, counted))
        except BaseException:
            self._has_failed = True
            raise
        store.note_kept()
        run = FlowRun(self._stores, part, jobs, last)
        self._runs[run] = Spawned([first + place for place in last], gives_list(part))
        return run

    async def _spawn(
        self, store: AttemptStore, plan: Plan, step: str, counted: int | None
    ) -> tuple[int, list[Job[Any]]]:
        """Return the children of this plan, new ones or those an earlier try has committed,
        and the ordinal of the first."""
        digest = _digest(plan, store.payloads)
        (found,) = await store.find(step)
        if found is None:
            first = await self._reserve(store, len(plan.jobs)) if counted is None else counted
            kept = store.encode(step, msgspec.json.encode((digest, first)).decode())
            try:
                return first, await enqueue_plan(store.stores, plan, Spawn(kept, first))
            except BadData as error:
                if "outlast_dependencies_sound" not in text_of(error):
                    raise
                raise UsageError("a job cannot spawn itself: give the child another key") from error
        was, first = _read_kept(found)
        children = await _read(store, range(first, first + len(plan.jobs))) if was == digest else []
        pairs = list(zip(plan.calls, children, strict=False))
        if not pairs or not all(_is_of(child, call.task) for call, child in pairs):
            raise UsageError(
                f"an earlier attempt of job {store.job_id} spawned other work here, as {step!r}:"
                " spawn the same calls with the same arguments in each attempt, in the same order"
                " or under names of their own; keep values that differ as steps"
            )
        return first, [job_of(call.task, Enqueued(child.id, created=True)) for call, child in pairs]

    async def _reserve(self, store: AttemptStore, count: int) -> int:
        """Return the first of as many ordinals that no child with a name has."""
        if not self._free:
            end = await store.ask(lambda it: it.inspector.children_end(store.job_id))
            self._free = self._free or max(NAMED_FROM, end)
        self._free += count
        return self._free - count

    async def wait_for(self, attempt: Attempt, run: FlowRun) -> Any:
        """Do what ``Attempt.wait_for`` does."""
        spawned = self._runs.get(run) if isinstance(run, FlowRun) else None
        if spawned is None:
            raise UsageError(
                f"wait_for takes work that this attempt has spawned, not {run!r:.80}; to run after"
                " other jobs, use using(after=[…])"
            )
        store = AttemptStore(attempt, self._stores)
        begin = min(spawned.last)
        children = await _read(store, range(begin, max(spawned.last) + 1))
        last = [children[ordinal - begin] for ordinal in spawned.last]
        if all(child.state is None or child.state in ENDED for child in last):
            with suppress(TimeoutError):  # one was cancelled with this job, and is not back yet
                pairs = zip(run.last, last, strict=True)
                results = [await _result(store, job, child) for job, child in pairs]
                return results if spawned.gives_list else results[0]
        await store.watch([child.id for child in last])
        raise store.wait(0, f"it waits for {len(last):,} of its children", blocks=True)

    async def wait_event(
        self, attempt: Attempt, name: str, timeout: float | timedelta, returns: Any
    ) -> Any:
        """Do what ``Attempt.wait_event`` does."""
        return await wait_event(AttemptStore(attempt, self._stores), name, timeout, returns)


def _is_of(child: Child, task: Task[..., Any]) -> bool:
    """Whether a child is of this task, under any of its names; one whose row is gone may be."""
    return child.task is None or child.task in (task.name, *task.aliases)


def _digest(plan: Plan, payloads: Payloads) -> str:
    """Return what tells the jobs of a plan from others: their arguments and order."""
    work = [(payloads.decode("args", job.args), job.policy.inputs, job.after) for job in plan.jobs]
    return sha256(msgspec.json.encode(work)).hexdigest()


async def _read(store: AttemptStore, ordinals: range) -> list[Child]:
    async def look(opened: Store) -> list[Child]:
        found: list[Child] = []
        n = ordinals.start
        while n < ordinals.stop:
            last = min(n + READ_MAX, ordinals.stop)
            rows = await opened.inspector.children(store.job_id, n + 1, last)
            found += rows
            n = rows[-1].n if rows else last
        return found

    children = await store.ask(look)
    if len(children) < len(ordinals):
        raise store.lost("its children no longer exist: a failover may have lost their commit")
    return children


async def _result(store: AttemptStore, job: Job[Any], child: Child) -> Any:
    if child.state == State.COMPLETED:
        text = None if child.result is None else store.decode("result", child.result)
        return decode_result(text, job._returns)  # noqa: SLF001
    return await store.patiently(lambda: job.result(0))  # raises what its end means
