"""Every verb of a store, each as one call by a worker that holds a job."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.errors import BadData, LostLease
from outlast.model.crash import Progress
from outlast.model.limits import LimitSpec
from outlast.model.pause import PauseKind
from outlast.store.actions import BulkStep, Note, Overtaken
from outlast.store.limits import DeclaredTask, Hold, NewLimit, SetLimit
from outlast.store.logs import JobLog, LogLine
from outlast.store.minutes import Counted
from outlast.store.protocol import Store
from outlast.store.rows import AttemptFilter, JobFilter, Texts, WorkerStatus
from outlast.store.stacks import Stack
from outlast.store.values import (
    Claimed,
    ClaimRequest,
    LockIdentity,
    NamedStep,
    NewEvent,
    NewPause,
    Report,
    Save,
    Spawn,
)
from tests.conformance.kit import TASK, Hands, ended, job, lost_worker, new_worker
from tests.conformance.schedules_kit import firing, schedule

LOCK = LockIdentity(boot_id="b1", path="/locks/w1", device=1, inode=2)
NOTE = Note(actor="ada", verb="test")
Verb = Callable[[Hands, Claimed], Awaitable[Any]]


def _pair(held: Claimed) -> tuple[int, int]:
    return held.job_id, held.token


async def _reap(hands: Hands, _: Claimed) -> None:
    looks = (await hands.store.observe()).workers
    for look in looks:
        await hands.store.reap(look)


async def _fire(hands: Hands, _: Claimed) -> None:
    due = (await hands.store.due_schedules()).schedules
    await hands.store.fire([firing(each, each.since) for each in due])


async def _take_step(hands: Hands, _: Claimed) -> None:
    with contextlib.suppress(Overtaken):
        await hands.store.take_step(BulkStep(action_id=1, before_id=1, then=None))


async def _spawn(hands: Hands, held: Claimed) -> None:
    with contextlib.suppress(LostLease):  # another verb has ended the attempt
        await hands.store.spawn([job()], Spawn(NamedStep(*_pair(held), "spawn 0", "1"), 0))


async def _spend(hands: Hands, held: Claimed) -> None:
    with contextlib.suppress(BadData):  # the job is under no limit
        await hands.store.spend(*_pair(held), "a", 1.0)


def _log_of(held: Claimed) -> JobLog:
    return JobLog(held.job_id, held.token, held.number, [LogLine(1.0, "a line")])


WRITES: dict[str, Verb] = {
    "keep_logs": lambda hands, held: hands.store.keep_logs([_log_of(held)]),
    "ask_stack": lambda hands, held: hands.store.ask_stack(*_pair(held), seen="", then="1:1"),
    "keep_stack": lambda hands, held: hands.store.keep_stack(
        held.job_id, Stack(token=held.token, asked=1, text="a stack")
    ),
    "enqueue": lambda hands, _: hands.store.enqueue([job()]),
    "enqueue with a key": lambda hands, _: hands.store.enqueue([job(key="k"), job(key="l")]),
    "register": lambda hands, _: hands.store.register(new_worker("other")),
    "reconnect": lambda hands, held: hands.store.reconnect(hands.me, held.token),
    "set_status": lambda hands, _: hands.store.set_status(hands.me, WorkerStatus.DRAINING),
    "request_drain": lambda hands, _: hands.store.request_drain([hands.me.worker_id]),
    "announce": lambda hands, _: hands.store.announce(hands.me, [TASK], {}),
    "presence_off": lambda hands, _: hands.store.presence_off(hands.me, "for a test"),
    "tell_wakeup": lambda hands, _: hands.store.tell_wakeup(hands.me, "poll"),
    "tell_failing": lambda hands, _: hands.store.tell_failing(hands.me, None),
    "heartbeat": lambda hands, _: hands.store.heartbeat(hands.me),
    "exchange": lambda hands, held: hands.store.exchange(
        hands.me, [ended(held)], [ClaimRequest([TASK], 1)]
    ),
    "reconcile": lambda hands, _: hands.store.reconcile(hands.me, []),
    "checkpoint": lambda hands, held: hands.store.checkpoint([Save(*_pair(held), 1, "1")]),
    "progress": lambda hands, held: hands.store.progress(
        [Report(*_pair(held), Progress(fraction=0.5))]
    ),
    "tell_gone": lambda hands, _: hands.store.tell_gone(LOCK, 1),
    "keep_steps": lambda hands, held: hands.store.keep_steps([NamedStep(*_pair(held), "s", "1")]),
    "spawn": _spawn,
    "watch_children": lambda hands, held: hands.store.watch_children(*_pair(held), [1]),
    "send_event": lambda hands, _: hands.store.send_event(NewEvent("e", "[1]")),
    "reap": _reap,
    "reclaim": lambda hands, held: hands.store.reclaim(lost_worker, only=[_pair(held)]),
    "cancel": lambda hands, held: hands.store.cancel([held.job_id]),
    "requeue": lambda hands, held: hands.store.requeue([held.job_id]),
    "skip": lambda hands, held: hands.store.skip([held.job_id]),
    "discard": lambda hands, held: hands.store.discard([held.job_id]),
    "expire": lambda hands, _: hands.store.expire(),
    "prune": lambda hands, _: hands.store.prune(jobs_older_than=-1, workers_older_than=-1),
    "put_schedules": lambda hands, _: hands.store.put_schedules([schedule("other")]),
    "delete_schedule": lambda hands, _: hands.store.delete_schedule("nightly"),
    "pause_schedule": lambda hands, _: hands.store.pause_schedule("nightly", paused=True),
    "fire": _fire,
    "note_undeclared": lambda hands, _: hands.store.note_undeclared(["nightly"]),
    "pause": lambda hands, _: hands.store.pause(NewPause(kind=PauseKind.QUEUE, name="q")),
    "resume": lambda hands, _: hands.store.resume(PauseKind.QUEUE, "q"),
    "acknowledge_pauses": lambda hands, _: hands.store.acknowledge_pauses(hands.me, "1"),
    "declare_limits": lambda hands, _: hands.store.declare_limits(
        [NewLimit("b", LimitSpec(running=1))], [DeclaredTask("t", ("b",))]
    ),
    "set_limit": lambda hands, _: hands.store.set_limit(SetLimit(name="a", running=2)),
    "hold_limit": lambda hands, _: hands.store.hold_limit(Hold("a", "", 1.0)),
    "spend": _spend,
    "note_minute": lambda hands, _: hands.store.note_minute(1, 1, [Counted(kind="attempt")]),
    "merge_minutes": lambda hands, _: hands.store.merge_minutes(),
    "raise_tokens": lambda hands, held: hands.store.raise_tokens(held.token),
    "trigger": lambda hands, _: hands.store.trigger(job(), record=NOTE),
    "note": lambda hands, _: hands.store.note(NOTE),
    "take_step": _take_step,
    "stop_action": lambda hands, _: hands.store.stop_action(1),
}
READS: dict[str, Verb] = {
    "find_event": lambda hands, _: hands.store.find_event("e"),
    "find_steps": lambda hands, held: hands.store.find_steps([NamedStep(*_pair(held), "s")]),
    "recount_limits": lambda hands, _: hands.store.recount_limits(),  # writes where it has to
    "store_id": lambda hands, _: hands.store.store_id(),
    "observe": lambda hands, _: hands.store.observe(),
    "overdue": lambda hands, _: hands.store.overdue(0.0),
    "superseded": lambda hands, held: hands.store.superseded([_pair(held)]),
    "due_schedules": lambda hands, _: hands.store.due_schedules(),
    "schedules": lambda hands, _: hands.store.inspector.schedules(),
    "schedule": lambda hands, _: hands.store.inspector.schedule("nightly"),
    "job": lambda hands, held: hands.store.inspector.job(held.job_id),
    "jobs": lambda hands, _: hands.store.inspector.jobs(JobFilter()),
    "attempts": lambda hands, held: hands.store.inspector.attempts(held.job_id),
    "job_ids": lambda hands, _: hands.store.inspector.job_ids(JobFilter()),
    "jobs_of": lambda hands, held: hands.store.inspector.jobs_of([held.job_id]),
    "named": lambda hands, held: hands.store.inspector.named(held.token, None),
    "search": lambda hands, held: hands.store.inspector.search([held.job_id], Texts(args="{")),
    "logs": lambda hands, held: hands.store.inspector.logs(held.job_id),
    "last_attempts": lambda hands, held: hands.store.inspector.last_attempts([held.job_id]),
    "last_token": lambda hands, _: hands.store.inspector.last_token(),
    "workers": lambda hands, _: hands.store.inspector.workers(),
    "held": lambda hands, _: hands.store.inspector.held(),
    "refusals": lambda hands, _: hands.store.inspector.refusals(),
    "place": lambda hands, held: hands.store.inspector.place(held.job_id),
    "statistics": lambda hands, _: hands.store.inspector.statistics(),
    "pauses": lambda hands, _: hands.store.inspector.pauses(),
    "limits": lambda hands, _: hands.store.inspector.limits(),
    "limit": lambda hands, _: hands.store.inspector.limit("a"),
    "steps": lambda hands, held: hands.store.inspector.steps(held.job_id),
    "dependencies": lambda hands, held: hands.store.inspector.dependencies(held.job_id),
    "unresolved": lambda hands, _: hands.store.inspector.unresolved(),
    "newest_flows": lambda hands, _: hands.store.inspector.newest_flows(99, 10, blocked=False),
    "flow_links": lambda hands, held: hands.store.inspector.flow_links([held.job_id], 10),
    "flow_members": lambda hands, held: hands.store.inspector.flow_members([held.job_id]),
    "permits": lambda hands, _: hands.store.inspector.permits("a"),
    "is_sent": lambda hands, held: hands.store.inspector.is_sent(held.job_id),
    "stream_place": lambda hands, held: hands.store.inspector.stream_place(held.job_id),
    "miscounted": lambda hands, _: hands.store.inspector.miscounted(),
    "forgotten": lambda hands, _: hands.store.inspector.forgotten(),
    "actions": lambda hands, _: hands.store.inspector.actions(),
    "running_actions": lambda hands, _: hands.store.inspector.running_actions(),
    "history": lambda hands, _: hands.store.inspector.history(),
    "counts": lambda hands, _: hands.store.inspector.counts(),
    "dead_groups": lambda hands, _: hands.store.inspector.dead_groups(JobFilter()),
    "ended_attempts": lambda hands, _: hands.store.inspector.ended_attempts(AttemptFilter()),
    "last_ends": lambda hands, held: hands.store.inspector.last_ends([held.job_id]),
    "causes": lambda hands, _: hands.store.inspector.causes(),
    "suspects": lambda hands, _: hands.store.inspector.suspects(),
    "waits_for_itself": lambda hands, held: hands.store.inspector.waits_for_itself(held.job_id),
    "returns": lambda hands, held: hands.store.inspector.returns(held.job_id),
    "children": lambda hands, held: hands.store.inspector.children(held.job_id, 1, 9),
    "children_end": lambda hands, held: hands.store.inspector.children_end(held.job_id),
    "minutes": lambda hands, _: hands.store.inspector.minutes(3_600.0),
    "wanted": lambda hands, _: hands.store.inspector.wanted("default"),
    "waiting": lambda hands, _: hands.store.inspector.waiting("default", 10),
    "totals": lambda hands, _: hands.store.inspector.totals(),
    "unencrypted": lambda hands, _: hands.store.inspector.unencrypted(),
}
NO_TRIP_TO_A_FILE: dict[str, Verb] = {
    "no_writes": lambda hands, _: hands.store.inspector.no_writes(),
    "now": lambda hands, _: hands.store.inspector.now(),
    "peek": lambda hands, _: hands.store.peek(hands.me),
    "doubled": lambda hands, _: hands.store.inspector.doubled(),
    "lock_holders": lambda hands, _: hands.store.inspector.lock_holders(),
    "keep_watch": lambda hands, _: hands.store.keep_watch(0, 1),
}
ALL = {**WRITES, **READS}


async def holding(store: Store) -> tuple[Hands, Claimed]:
    """Return a worker and the job that it holds; another one waits, a schedule is due, and there is
    a limit."""
    hands = await Hands.on(store)
    await store.declare_limits([NewLimit("a", LimitSpec(running=1))])
    await store.put_schedules([schedule()])
    await store.enqueue([job(), job()])
    return hands, await hands.claim_one()


async def all_of(store: Store) -> list[Any]:
    """Return what can be seen of jobs, attempts and workers, except ages."""
    jobs = await store.inspector.jobs(JobFilter())
    attempts = [await store.inspector.attempts(each.id) for each in jobs]
    schedules = await store.inspector.schedules()
    return [
        jobs,
        attempts,
        schedules,
        await store.inspector.refusals(),
        await store.inspector.counts(),
        await store.inspector.actions(),
        await store.inspector.limits(),
    ]
