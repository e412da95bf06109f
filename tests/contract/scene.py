"""A store with something of each kind that people can see, at the same times in each run."""

from __future__ import annotations

import pytest

from outlast.base.clock import SystemClock
from outlast.insight.acting import (
    By,
    Verb,
    act_on_job,
    ask_to_drain,
    hold_limit,
    pause_schedule,
    send_event,
    set_limit,
    trigger_schedule,
)
from outlast.insight.bulk import BulkFilter, begin, go_on, preview
from outlast.insight.stacks import ask_for_stack
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.model.pause import PauseKind
from outlast.store.limits import Hold, SetLimit
from outlast.store.logs import JobLog, LogLine
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.sqlite.checks import SqliteFacts
from outlast.store.stacks import Stack
from outlast.store.values import Failing, NamedStep, NewEvent, NewPause, Spawn, Upstream, Wants
from tests.cli.rows import TASKS, Rows
from tests.conformance import limits_kit, schedules_kit
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job, row_of
from tests.conformance.limits_kit import limited, need
from tests.conformance.test_minutes import counted

ADA = By("ada@desk", "it burns")
FINAL = Policy(retries=0)


class StandingClock:
    """The time in seconds since 1970, which stands still until it is moved; with it, all else that
    differs from run to run and from host to host."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000.0
        patch.setattr(SystemClock, "wall", lambda _: self.now)
        patch.setattr(SystemClock, "random", lambda _: 0.5)
        patch.setattr("outlast.store.sqlite.environment.environment", _environment)
        patch.setattr("outlast.insight.doctor.host._cleaner", lambda *_: None)
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


async def _environment(_: object) -> SqliteFacts:
    return SqliteFacts(
        version="3.50.7", faults=[], path="store.db", journal_mode="wal", synchronous=2,
        writable=True, free_bytes=2**30, wal_bytes=4_096,
    )  # fmt: skip


async def fill(store: Store, clock: StandingClock) -> dict[str, int]:
    """Fill an empty store; return the ids of some jobs by what they are."""
    stopped = await Hands.on(store, "stopped", lease=3.0, host="host", tags=["gpu"])
    await store.set_status(stopped.me, WorkerStatus.STOPPED)
    lost = await Hands.on(store, "lost", lease=3.0, instance="pod-1")
    await enqueued(store, job())
    orphaned = await lost.claim_one()
    await lost.vanish()
    silent = await Hands.on(store, "silent", lease=5.0, queues=["default", "slow"])
    await enqueued(store, job(queue="slow"))
    await silent.claim_one()
    clock.now += 100
    about = {"host": "host", "lease": 3_600.0, "release": "2026.1"}
    rows = Rows(store, await Hands.on(store, "host-1", tasks=TASKS, **about))
    ids = {"orphaned": orphaned.job_id} | await rows.make()
    clock.now += 30
    worker = await Hands.on(store, "host-2", **about)
    await store.announce(worker.me, [TASK, "pay"], {"train": ["gpu"]})
    await store.tell_wakeup(worker.me, "nats: no server")
    await store.tell_failing(worker.me, Failing("prune", "disk full", 20.0))
    await store.presence_off(worker.me, "no lock file")
    ids |= await _ends(store, clock, worker)
    ids |= await _limits(store, worker)
    ids |= await _flow(store, worker)
    await _schedules(store, clock)
    await _acts(store, clock, ids["cancelled"])
    await store.note_minute(worker.me.worker_id, 1, [counted(3), counted(1, outcome="error")])
    await store.merge_minutes()
    await store.heartbeat(worker.me)
    return ids


async def _ends(store: Store, clock: StandingClock, worker: Hands) -> dict[str, int]:
    about = Policy(meta='{"order":17}', labels=("import", "eu"), keep=3_600.0, logs=True)
    await enqueued(store, job(policy=about, tenant="acme", args='{"n":1}', key="order:17"))
    done = await worker.claim_one()
    await store.keep_logs([JobLog(done.job_id, done.token, 1, [LogLine(clock.now, "page 1")], 3)])
    await store.keep_steps([NamedStep(done.job_id, done.token, "paid", '{"id":5}')])
    clock.now += 2.5
    await worker.hand_in(ended(done, result='{"ok":true}'))
    await enqueued(store, job(policy=FINAL), *[job()] * 3)
    dead, waits, runs, odd = await worker.claim()
    sleeps = ended(waits, OutcomeKind.SNOOZED, delay=600.0, event="approve:17")
    await worker.hand_in(crashed(dead), sleeps)
    step = NamedStep(runs.job_id, runs.token, "pay all", '"p"')
    await store.spawn([job(task="pay", queue="slow")], Spawn(step, 0))
    asked = await ask_for_stack(store, runs.job_id, ADA)
    told = Stack(token=runs.token, asked=asked.ask.number, text='File "a.py"\n', line="a.py:7")
    await store.keep_stack(runs.job_id, told)
    async with raw(store.url) as file:
        await file.run(f"UPDATE outlast_jobs SET policy = '[' WHERE id = {odd.job_id}")
    (expired,) = await enqueued(store, job(queue="slow", expires=1.0))
    clock.now += 2
    await store.expire()
    found = {"done": done, "failed": dead, "waits": waits, "runs": runs, "malformed": odd}
    return {"expired": expired} | {name: one.job_id for name, one in found.items()}


async def _limits(store: Store, worker: Hands) -> dict[str, int]:
    await limits_kit.declare(store, "api", running=1)
    await limits_kit.declare(store, "smtp", spacing=60.0, burst=2.0)
    await limits_kit.declare(store, "tenants", running=2, per="tenant")
    await limits_kit.declare(store, "shards", running=1, per="limit_key", ordered=True)
    under = [*[limited(need("api"))] * 3, *[limited(need("smtp"))] * 3]
    ids = await enqueued(store, *under, limited(need("tenants", "acme"), tenant="acme"))
    await worker.claim()
    await set_limit(store, SetLimit(name="tenants", key="acme", running=1), ADA)
    await hold_limit(store, Hold("api", "", 30.0), ADA)
    return {"limited": ids[2], "throttled": ids[5]}


async def _flow(store: Store, worker: Hands) -> dict[str, int]:
    whole = [job(queue="flow", policy=FINAL), job(queue="flow"), job(after=(Upstream(-1),))]
    whole += [job(after=(Upstream(-2, Wants.ENDED), Upstream(-3))), job(after=(Upstream(-2),))]
    ids = await enqueued(store, *whole)
    first, _ = await worker.claim(2, queues=["flow"])
    await worker.hand_in(crashed(first))
    await worker.claim(1, queues=["none"])
    return {"flow": ids[1], "upstream": ids[2], "blocked": ids[3]}


async def _schedules(store: Store, clock: StandingClock) -> None:
    call = job(args='{"n":1}', queue="slow", tenant="acme")
    nightly = '{"cron":"30 2 * * *","zone":"Europe/Berlin"}'
    await schedules_kit.declare(store, "nightly", spec=nightly, call=call)
    await schedules_kit.put_one(store, "often")
    await schedules_kit.put_one(store, "paused", spec='{"every":3600}')
    clock.now += 60
    due = next(one for one in (await store.due_schedules()).schedules if one.name == "often")
    await schedules_kit.fire_one(store, schedules_kit.firing(due, due.next_tick))
    await pause_schedule(store, "paused", ADA, paused=True)
    await trigger_schedule(store, "nightly", clock.now, ADA)


async def _acts(store: Store, clock: StandingClock, cancelled: int) -> None:
    leaving = await Hands.on(store, "leaving", lease=3_600.0)
    await ask_to_drain(store, ["leaving"], by=ADA)
    await store.set_status(leaving.me, WorkerStatus.DRAINING)
    await act_on_job(store, Verb.REQUEUE, await row_of(store, cancelled), ADA)
    await act_on_job(store, Verb.CANCEL, await row_of(store, cancelled), ADA)
    await send_event(store, NewEvent("approve:18", "[1]"), ADA)
    await enqueued(store, *[job(policy=Policy(labels=("sweep",)))] * 2)
    seen = await preview(store, Verb.CANCEL, BulkFilter(label="sweep"))
    async for _ in go_on(store, await begin(store, seen, ADA)):
        clock.now += 1
    for kind, name in (("queue", "slow"), ("tenant", "acme"), ("task", "old.name")):
        pause = NewPause(kind=PauseKind(kind), name=name, paused_by=ADA.actor, reason=ADA.reason)
        await store.pause(pause)
