"""Random histories of jobs under limits: each store keeps the laws, as a small model sees them.

L1: a permit counts the running attempts. L2: what starts had room. L3: what may start starts.
Which of two jobs is first is each store's own matter, so each is held against a model of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from harness.servers import PostgresServer
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.model.limits import LimitSpec, Need, permit_id
from outlast.store import open_store
from outlast.store.limits import Hold, NewLimit, SetLimit
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import Answer, Claimed, ClaimRequest, NewJob
from tests.conformance.kit import TASK, Hands, facts_of, job, lost_worker, no_dice, reap
from tests.conformance.limits_kit import limited, need
from tests.databases import Databases
from tests.manual_clock import ManualClock


@dataclass
class LimitedJob:
    """A job of the history."""

    new: NewJob
    needs: tuple[Need, ...]
    state: State = State.QUEUED
    due: bool = True
    solo: int = 0


@dataclass
class ModelLimit:
    """What a limit allows; ``keys``: own counts. ``held``: until when, by key ("": all)."""

    running: int | None = None
    spacing: float | None = None
    burst: float = 1.0
    keys: dict[str, int] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)


class LimitModel:
    """Jobs under limits on a clock that never steps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: dict[int, LimitedJob] = {}
        self.limits: dict[str, ModelLimit] = {}
        self.ahead: dict[tuple[str, str], float] = {}
        self.holders: dict[int, int] = {}  # stream in order -> the job that has begun last

    def go_on(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.ahead = {each: max(0.0, ahead - seconds) for each, ahead in self.ahead.items()}

    def count(self, name: str, key: str) -> int:
        """How many attempts run under a permit."""
        return sum(
            (need.name, need.key) == (name, key)
            for job in self.jobs.values()
            if job.state is State.RUNNING
            for need in job.needs
        )

    def free(self, need: Need) -> int:
        """How many jobs may start under a permit."""
        limit = self.limits.get(need.name)
        if limit is None or any(limit.held.get(each, 0.0) > self.now for each in ("", need.key)):
            return 0
        cap = limit.keys.get(need.key, limit.running)
        free = 1_000 if cap is None else max(0, cap - self.count(need.name, need.key))
        if limit.spacing is None:
            return free
        ahead = self.ahead.get((need.name, need.key), 0.0)
        return min(free, floor((limit.burst * limit.spacing - ahead) / limit.spacing + 1e-6))

    def may_start(self, job: LimitedJob) -> bool:
        """Whether a queued job lacks nothing."""
        waits = job.state is State.QUEUED and job.due
        holder = self.jobs.get(self.holders.get(job.new.stream or 0, 0), job)
        if holder is not job and holder.state in {State.QUEUED, State.RUNNING}:
            return False
        return waits and all(self.free(need) > 0 for need in job.needs)

    def start(self, job_ids: Iterable[int]) -> None:
        """Note what a reply has brought. L2: each permit had room for it."""
        for job_id in job_ids:
            job = self.jobs[job_id]
            assert self.may_start(job), f"job {job_id} has begun without room"
            job.state = State.RUNNING
            if any(one.ordered for one in job.needs):
                self.holders[job.new.stream or 0] = job_id
            for one in job.needs:
                spacing = self.limits[one.name].spacing or 0.0
                each = one.name, one.key
                self.ahead[each] = self.ahead.get(each, 0.0) + spacing

    def give_back_rate(self, job_id: int) -> None:
        """Note that an attempt never began."""
        for one in self.jobs[job_id].needs:
            each = one.name, one.key
            spacing = self.limits[one.name].spacing or 0.0
            self.ahead[each] = max(0.0, self.ahead.get(each, 0.0) - spacing)

    def startable(self) -> list[int]:
        """The jobs that may start (L3: after enough claims there are none)."""
        return [job_id for job_id, job in self.jobs.items() if self.may_start(job)]


FAR = 1e8
POLICY = Policy(retries=1, max_losses=3, backoff_first=FAR, backoff_max=FAR)
IN_ORDER = Need(permit_id("order", ""), "order", "", 1.0, True)
KINDS: list[tuple[tuple[Need, ...], dict[str, Any]]] = [
    ((), {}),  # in the line
    ((need("a"),), {}),
    ((need("a"),), {"priority": 1}),
    ((need("a"),), {"queue": "other"}),
    ((need("b", "t1"),), {"tenant": "t1"}),
    ((need("a"), need("b", "t2")), {"tenant": "t2"}),
    ((need("rate"),), {}),
    ((need("rate"), need("a")), {"task": "app.other"}),
    ((need("unknown"),), {}),
    ((), {"fair": "t1", "tenant": "t1"}),
    ((need("a"),), {"fair": "t2", "tenant": "t2"}),
    ((IN_ORDER,), {"tenant": "t1"}),
    ((IN_ORDER,), {"tenant": "t2"}),
    ((IN_ORDER, need("a")), {"task": "app.other"}),
]


class LimitHistory(RuleBasedStateMachine):
    """Draws a history, plays it on a store, and holds what it answers against the model."""

    def __init__(self, store: Store, clock: ManualClock | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = store
        self.clock = clock  # None: time goes as it will, and no limit has a rate
        self.behind = 0.0  # of what the store's clock has shown: a rate may then be late
        self.model = LimitModel()
        self.hands: list[Hands] = []
        self.attempts: list[tuple[Hands, Claimed]] = []
        self.run(store.open())
        self.declare("a", 2)
        self.declare("b", 1)
        self.declare("order", 1, ordered=True)
        self.declare("rate", 3, spacing=None if clock is None else 10.0, burst=2.0)
        self.hire()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    def declare(self, name: str, running: int | None, **rate: Any) -> None:
        spec = LimitSpec(running=running, **rate)
        self.run(self.store.declare_limits([NewLimit(name, spec)]))
        self.model.limits[name] = ModelLimit(running, spec.spacing, spec.burst)

    def hire(self) -> None:
        self.hands.append(self.run(Hands.on(self.store, f"w{len(self.hands)}")))

    def see(self) -> None:
        """Take from the store what has become of jobs; not which permits they hold."""
        rows = self.run(self.store.inspector.jobs(JobFilter(limit=10_000)))
        for row in rows:
            if (known := self.model.jobs.get(row.id)) is not None:
                known.state, known.due, known.solo = row.state, not row.waiting, row.solo

    # -- the steps

    @rule(kind=st.sampled_from(KINDS), count=st.integers(1, 3), far=st.booleans())
    def enqueue(self, kind: tuple[tuple[Need, ...], dict[str, Any]], count: int, far: bool) -> None:
        needs, fields = kind
        values = fields | {"policy": POLICY, "delay": FAR if far else 0.0}
        is_plain = not needs and "fair" not in fields
        new: NewJob = job(**values) if is_plain else limited(*needs, **values)
        for made in self.run(self.store.enqueue([new] * count)):
            known = LimitedJob(new, needs, due=not far)
            self.model.jobs[made.job_id] = known

    @rule(
        data=st.data(), limit=st.sampled_from([1, 2, 3, 50]), passed=st.sampled_from([(), ("t2",)])
    )
    def claim(self, data: st.DataObject, limit: int, passed: tuple[str, ...]) -> None:
        solo = data.draw(st.sampled_from([0, 0, 0, 1, 2]))
        tasks = data.draw(st.sampled_from([[TASK], ["app.other"], [TASK, "app.other"]]))
        worker = data.draw(st.sampled_from(self.hands))
        self.take(worker, ClaimRequest(tasks, limit, solo=solo, not_tenants=passed))

    def take(self, worker: Hands, request: ClaimRequest) -> int:
        reply = self.run(self.store.exchange(worker.me, [], [request]))
        self.model.start(each.job_id for each in reply.claimed)
        self.attempts += [(worker, each) for each in reply.claimed]
        for each in reply.claimed:
            known = self.model.jobs[each.job_id]
            assert known.new.tenant is None or known.new.tenant not in request.not_tenants
        return len(reply.claimed)

    @rule()
    def all_that_may_start_starts(self) -> None:
        tasks = [TASK, "app.other"]
        quiet = 0
        while quiet < 2:
            took = sum(
                self.take(self.hands[-1], ClaimRequest(tasks, 50, solo=solo)) for solo in (0, 1, 2)
            )
            quiet = 0 if took else quiet + 1
        assert [each for each in self.model.startable() if not self.may_be_late(each)] == []

    def may_be_late(self, job_id: int) -> bool:
        rated = any(need.name == "rate" for need in self.model.jobs[job_id].needs)
        return rated and self.behind > 0

    @precondition(lambda self: self.attempts)
    @rule(
        data=st.data(),
        kind=st.sampled_from([*OutcomeKind, OutcomeKind.COMPLETED]),
        far=st.booleans(),
        began=st.booleans(),
    )
    def end(self, data: st.DataObject, kind: OutcomeKind, far: bool, began: bool) -> None:
        """Any attempt ends, also one that is long over, and an end comes twice."""
        worker, one = data.draw(st.sampled_from(self.attempts))
        kinds = [CrashKind.ERROR, CrashKind.SIGNALLED]
        crash = Crash(kind=data.draw(st.sampled_from(kinds)))
        outcome = Outcome(
            kind=kind,
            crash=crash if kind is OutcomeKind.CRASHED else None,
            delay=FAR if far else 0.0,
            began=began or kind is not OutcomeKind.RELEASED,
        )
        end = decide(facts_of(one), outcome, no_dice)
        for _ in range(2):
            (answer,) = self.run(worker.hand_in(end))
            if answer is Answer.ACCEPTED and not end.began:
                self.model.give_back_rate(one.job_id)
        self.see()

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.hands))
        for job_id, _ in self.run(self.store.reconcile(worker.me, [])):
            self.model.give_back_rate(job_id)
        self.see()

    @precondition(lambda self: len(self.hands) < 4)
    @rule()
    def a_worker_vanishes(self) -> None:
        self.run(reap(self.store, self.run(self.hands[-1].seen())))
        self.run(self.store.reclaim(lost_worker))
        self.hire()
        self.see()

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), again=st.booleans())
    def cancel(self, data: st.DataObject, again: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        verb = self.store.requeue if again else self.store.cancel
        self.run(verb([job_id]))
        self.see()

    @rule(name=st.sampled_from(["a", "b"]), running=st.integers(0, 4), key=st.booleans())
    def set_limit(self, name: str, running: int, key: bool) -> None:
        of = {"a": "", "b": "t1"}[name] if key else None
        assert self.run(self.store.set_limit(SetLimit(name=name, key=of, running=running)))
        limit = self.model.limits[name]
        if of is None:
            limit.running = running
        else:
            limit.keys[of] = running

    @rule(name=st.sampled_from(["a", "rate"]), ends=st.booleans())
    def hold(self, name: str, ends: bool) -> None:
        assert self.run(self.store.hold_limit(Hold(name, "", 0.0 if ends else FAR)))
        self.model.limits[name].held[""] = 0.0 if ends else self.model.now + FAR

    @rule(running=st.integers(0, 2))
    def an_unknown_limit_is_declared(self, running: int) -> None:
        self.declare("unknown", running)

    @precondition(lambda self: self.clock is not None)
    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0, 15.0, 100_000.0]), back=st.booleans())
    def time_goes_on(self, seconds: float, back: bool) -> None:
        assert self.clock is not None
        if back:
            self.clock.step_wall(-3_600.0)
            self.behind += 3_600.0
        else:
            self.clock.step_wall(seconds)
            self.behind = max(0.0, self.behind - seconds)
            self.model.go_on(seconds)
        self.run(self.store.prune(jobs_older_than=1e9, workers_older_than=1e9))

    # -- the laws

    @invariant()
    def a_permit_counts_what_runs(self) -> None:
        assert self.run(self.store.inspector.miscounted()) == []
        assert self.run(self.store.inspector.forgotten()) == []
        for name in self.model.limits:
            for row in self.run(self.store.inspector.permits(name)):
                assert row.used - row.noted == self.model.count(name, row.key)


BOUNDED = settings(
    max_examples=8,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_sqlite_keeps_the_laws(tmp_path: Path) -> None:
    numbers = iter(range(10_000))

    def history() -> LimitHistory:
        clock = ManualClock()
        url = f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return LimitHistory(SqliteStore(url, clock=clock, durable=False), clock)

    run_machine(history, settings=settings(BOUNDED, max_examples=15))  # type: ignore[arg-type]


@pytest.mark.slow
def test_postgresql_keeps_the_laws(
    pg_server: PostgresServer, databases: Databases, request: pytest.FixtureRequest
) -> None:
    def history() -> LimitHistory:
        name = databases.make()
        request.addfinalizer(lambda: databases.drop(name))
        return LimitHistory(open_store(pg_server.url(name)), None)

    run_machine(history, settings=BOUNDED)  # type: ignore[arg-type]
