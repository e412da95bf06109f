"""The same random history on a small pure model, on SQLite and on PostgreSQL: they must agree.

The model is dictionaries and ``model.lifecycle.decide``. Jobs and attempts have names of the
history's own here (0, 1, 2 …), because the stores draw different ids and tokens. Delays are
either none or so long that nothing falls due by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from harness.servers import PostgresServer
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import ENDED, JobFacts, Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import (
    Answer,
    Cancelled,
    ClaimRequest,
    NewJob,
    Orphan,
    Requeued,
    Save,
    WorkerRef,
)
from tests.conformance.kit import TASK, new_worker, no_dice
from tests.databases import Databases


@dataclass
class Side:
    """One store, and how it calls the jobs, attempts and workers of the history."""

    store: Store
    jobs: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    workers: list[WorkerRef] = field(default_factory=list)

    async def shown(self) -> dict[int, tuple[object, ...]]:
        """Return what the inspector shows, in the names of the history."""
        rows = await self.store.inspector.jobs(JobFilter(limit=1_000))
        return {
            self.jobs.index(row.id): (
                row.state,
                row.waiting,
                row.attempt_count,
                row.failures,
                row.losses,
                row.cancel_requested,
                row.checkpoint,
                self.named(row.token),
                (row.solo, self.named(row.incident)),
            )
            for row in rows
        }

    def named(self, token: int | None) -> int | None:
        """A token in the name of the history."""
        return None if token is None else self.tokens.index(token)

    def token(self, name: int | None) -> int | None:
        """Return this store's token of an attempt."""
        return None if name is None else self.tokens[name]

    async def closed(self) -> list[tuple[int, str]]:
        """All closed attempts and their outcomes, in the names of the history."""
        looks = [await self.store.inspector.attempts(job_id) for job_id in self.jobs]
        return sorted((self.tokens.index(row.token), row.outcome) for look in looks for row in look)


POLICY = Policy(retries=1, max_losses=2, backoff_first=1_000.0, backoff_max=1_000.0)
UNFINISHED = (State.QUEUED, State.RUNNING)
LOST = Outcome(kind=OutcomeKind.CRASHED, crash=Crash(kind=CrashKind.LOST_WORKER))


@dataclass
class ModelJob:
    """A job as the model expects it. ``place`` orders the line; None: not in it."""

    priority: int
    key: str | None
    place: int | None
    state: State = State.QUEUED
    attempt: int | None = None
    worker: int | None = None
    count: int = 0
    failures: int = 0
    losses: int = 0
    cancel: bool = False
    checkpoint: str | None = None
    saved: int = 0
    solo: int = 0
    incident: int | None = None
    due: bool = True

    def shown(self) -> tuple[object, ...]:
        """What an inspector shows of it."""
        waiting = self.state is State.QUEUED and not self.due
        counted = (self.count, self.failures, self.losses)
        suspected = (self.solo, self.incident)
        return (
            self.state,
            waiting,
            *counted,
            self.cancel,
            self.checkpoint,
            self.attempt,
            suspected,
        )

    def facts(self, name: int, token: int) -> JobFacts:
        """What a decision about its attempt needs."""
        return JobFacts(
            job_id=name,
            token=token,
            failures=self.failures,
            losses=self.losses,
            policy=POLICY,
            solo=self.solo,
            incident=self.incident,
        )


@dataclass
class ModelAttempt:
    """One claim: the facts its worker was told, and how it was closed."""

    job: int
    worker: int
    facts: JobFacts
    outcome: str | None = None


class Model:
    """All jobs and attempts of a history, and what each verb of a store does to them."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, ModelJob] = {}
        self.attempts: list[ModelAttempt] = []
        self.places = 0

    def next_place(self) -> int:
        self.places += 1
        return self.places

    def model_claim(self, name: int, worker: int) -> None:
        job = self.jobs[name]
        job.state, job.place, job.saved = State.RUNNING, None, 0
        job.attempt, job.worker, job.count = len(self.attempts), worker, job.count + 1
        self.attempts.append(ModelAttempt(name, worker, job.facts(name, job.attempt)))

    def model_end(self, end: Transition) -> Answer:
        job, attempt = self.jobs.get(end.job_id), self.attempts[end.token]
        if job is None or attempt.outcome is not None:
            same = job is not None and attempt.outcome == end.outcome
            return Answer.ALREADY if same else Answer.REFUSED
        attempt.outcome = end.outcome
        job.failures, job.losses, job.worker = end.failures, end.losses, None
        job.state = State.CANCELLED if end.state is State.QUEUED and job.cancel else end.state
        if end.state is not State.COMPLETED:
            job.solo, job.incident = end.solo, end.incident
        job.due = end.delay == 0
        if job.state is State.QUEUED and job.due:
            job.place = self.next_place()
        if end.clears is not None:
            self.model_clear(end.clears)
        return Answer.ACCEPTED

    def model_clear(self, incident: int) -> None:
        for job in self.jobs.values():
            if job.incident == incident and job.state is State.QUEUED and job.solo == 1:
                job.solo, job.incident = 0, None

    def model_save(self, name: int, number: int, value: str) -> Answer:
        job = self.jobs.get(self.attempts[name].job)
        if job is None or self.attempts[name].outcome is not None:
            return Answer.REFUSED
        if number <= job.saved:
            return Answer.ALREADY
        if job.checkpoint != value:
            job.losses = 0
        job.checkpoint, job.saved = value, number
        return Answer.ACCEPTED

    def model_requeue(self, name: int, *, from_scratch: bool) -> Requeued:
        job = self.jobs[name]
        if job.state is State.COMPLETED:
            return Requeued.COMPLETED
        if job.state in UNFINISHED:
            return Requeued.NOT_ENDED
        rivals = [other for other in self.jobs.values() if other.state in UNFINISHED]
        if job.key is not None and any(other.key == job.key for other in rivals):
            return Requeued.KEY_TAKEN
        job.state, job.place, job.cancel = State.QUEUED, self.next_place(), False
        job.failures = job.losses = job.solo = 0
        job.incident = None
        job.due = True
        if from_scratch:
            job.checkpoint = None
        return Requeued.REQUEUED

    def model_reclaim(self, name: int) -> tuple[int, State, int, int]:
        job = self.jobs[name]
        assert job.attempt is not None
        facts = msgspec.structs.replace(job.facts(name, job.attempt), cancel_requested=job.cancel)
        end = decide(facts, LOST, no_dice)
        assert self.model_end(end) is Answer.ACCEPTED
        return job.attempt, job.state, job.failures, job.losses


FAR = 1_000.0


class History(Model, RuleBasedStateMachine):
    """Draws a history and plays each step on the model and on both stores."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.sides = [Side(open_store(url)) for url in urls]
        self.alive: list[bool] = []
        self.drawn = 0
        self.on_all(lambda side: side.store.open())

    def teardown(self) -> None:
        closed = self.on_all(Side.closed)
        expected = [
            (name, attempt.outcome)
            for name, attempt in enumerate(self.attempts)
            if attempt.outcome not in {None, "completed"} and attempt.job in self.jobs
        ]
        self.on_all(lambda side: side.store.close())
        self.loop.close()
        assert closed == [expected] * len(self.sides)

    def on_all(self, play: Callable[[Side], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Play one step on every store; return what they answered."""

        async def both() -> list[Any]:
            return await asyncio.gather(*map(play, self.sides))

        return self.loop.run_until_complete(both())

    def same(self, play: Callable[[Side], Coroutine[Any, Any, Any]], expected: object) -> None:
        """Play one step; every store must answer what the model expects."""
        assert self.on_all(play) == [expected] * len(self.sides)

    def some(self, data: st.DataObject, count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    # -- the steps

    @rule(
        priority=st.integers(-1, 1), key=st.sampled_from([None, None, "a", "b"]), far=st.booleans()
    )
    def enqueue(self, priority: int, key: str | None, far: bool) -> None:
        delay = FAR if far else 0.0
        new = NewJob(task=TASK, priority=priority, key=key, delay=delay, policy=POLICY)
        held = [
            name
            for name, job in self.jobs.items()
            if key is not None and job.key == key and job.state in UNFINISHED
        ]

        async def play(side: Side) -> tuple[int, bool]:
            (made,) = await side.store.enqueue([new])
            if made.created:
                side.jobs.append(made.job_id)
            return side.jobs.index(made.job_id), made.created

        self.same(play, (held[0], False) if held else (self.drawn, True))
        if not held:
            place = None if far else self.next_place()
            self.jobs[self.drawn] = ModelJob(priority, key, place, due=not far)
            self.drawn += 1

    @precondition(lambda self: sum(self.alive) < 3)
    @rule()
    def register(self) -> None:
        name = f"w{len(self.alive)}"

        async def play(side: Side) -> None:
            side.workers.append(await side.store.register(new_worker(name)))

        self.same(play, None)
        self.alive.append(True)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim(self, data: st.DataObject, limit: int) -> None:
        worker = self.some(data, len(self.alive))
        line = [name for name, job in self.jobs.items() if job.place is not None and not job.solo]
        line.sort(key=lambda name: (-self.jobs[name].priority, self.jobs[name].place))
        expected = line[:limit] if self.alive[worker] else []

        async def play(side: Side) -> list[tuple[int, int, int, int, str | None]]:
            requests = [ClaimRequest(tasks=[TASK], limit=limit)]
            reply = await side.store.exchange(side.workers[worker], [], requests)
            assert reply.valid is self.alive[worker]
            drawn = [one.token for one in reply.claimed]  # in any order among each other
            assert len({*drawn}) == len(drawn)
            assert min(drawn, default=1) > max(side.tokens, default=0) or not drawn
            side.tokens += drawn
            return [
                (side.jobs.index(one.job_id), one.number, one.failures, one.losses, one.checkpoint)
                for one in reply.claimed
            ]

        self.claims(play, expected, worker)

    @precondition(lambda self: any(job.solo for job in self.jobs.values()))
    @rule(data=st.data(), solo=st.integers(1, 2))
    def claim_a_suspect(self, data: st.DataObject, solo: int) -> None:
        """All of them, in any order: no rule says who has waited for longest."""
        worker = self.some(data, len(self.alive))
        waiting = [
            name
            for name, job in self.jobs.items()
            if job.state is State.QUEUED and job.solo == solo and job.due
        ]
        expected = sorted(waiting) if self.alive[worker] else []

        async def play(side: Side) -> list[tuple[int, int, int, int, str | None]]:
            requests = [ClaimRequest(tasks=[TASK], limit=1_000, solo=solo)]
            reply = await side.store.exchange(side.workers[worker], [], requests)
            claimed = sorted(reply.claimed, key=lambda one: one.job_id)
            side.tokens += [one.token for one in claimed]
            return [
                (side.jobs.index(one.job_id), one.number, one.failures, one.losses, one.checkpoint)
                for one in claimed
            ]

        self.claims(play, expected, worker)

    def claims(self, play: Any, expected: list[int], worker: int) -> None:
        """Play a claim; all stores must tell the same of the same jobs."""
        told = [
            (name, job.count + 1, job.failures, job.losses, job.checkpoint)
            for name, job in ((name, self.jobs[name]) for name in expected)
        ]
        self.same(play, told)
        for name in expected:
            self.model_claim(name, worker)

    @precondition(lambda self: self.attempts)
    @rule(
        data=st.data(), kind=st.sampled_from([*OutcomeKind]), far=st.booleans(), twice=st.booleans()
    )
    def end(self, data: st.DataObject, kind: OutcomeKind, far: bool, twice: bool) -> None:
        """Any attempt ends, also one that is long over."""
        name = self.some(data, len(self.attempts))
        kinds = [CrashKind.ERROR, CrashKind.BYSTANDER, CrashKind.SIGNALLED]
        crash = Crash(kind=data.draw(st.sampled_from(kinds)))
        incident = self.some(data, len(self.attempts))
        outcome = Outcome(
            kind=kind,
            crash=crash if kind is OutcomeKind.CRASHED else None,
            delay=FAR if far else 0.0,
            incident=data.draw(st.sampled_from([None, incident])),
        )
        transition = decide(self.attempts[name].facts, outcome, no_dice)
        for _ in range(1 + twice):

            async def play(side: Side) -> Answer:
                worker = side.workers[self.attempts[name].worker]
                reply = await side.store.exchange(worker, [self.named(side, transition)], [])
                (answer,) = reply.answers
                return answer

            self.same(play, self.model_end(transition))

    def named(self, side: Side, transition: Transition) -> Transition:
        """The transition as this store calls its job and attempt."""
        return msgspec.structs.replace(
            transition,
            job_id=side.jobs[transition.job_id],
            token=side.tokens[transition.token],
            incident=side.token(transition.incident),
            clears=side.token(transition.clears),
        )

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), number=st.integers(1, 3), value=st.sampled_from(["1", "2"]))
    def checkpoint(self, data: st.DataObject, number: int, value: str) -> None:
        name = self.some(data, len(self.attempts))
        attempt = self.attempts[name]

        async def play(side: Side) -> Answer:
            save = Save(side.jobs[attempt.job], side.tokens[name], number, value)
            (answer,) = await side.store.checkpoint([save])
            return answer

        self.same(play, self.model_save(name, number, value))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.jobs[name]
        expected = {State.QUEUED: Cancelled.CANCELLED, State.RUNNING: Cancelled.REQUESTED}
        answer = expected.get(job.state, Cancelled.ENDED)

        async def play(side: Side) -> list[Cancelled]:
            return list((await side.store.cancel([side.jobs[name]])).values())

        self.same(play, [answer])
        if job.state in UNFINISHED:
            job.cancel = True
        if job.state is State.QUEUED:
            job.state, job.place = State.CANCELLED, None

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), from_scratch=st.booleans())
    def requeue(self, data: st.DataObject, from_scratch: bool) -> None:
        ended = [name for name, job in self.jobs.items() if job.state in ENDED]
        name = data.draw(st.sampled_from(ended or sorted(self.jobs)))
        answer = self.model_requeue(name, from_scratch=from_scratch)

        async def play(side: Side) -> list[Requeued]:
            ids = [side.jobs[name]]
            return list((await side.store.requeue(ids, from_scratch=from_scratch)).values())

        self.same(play, [answer])

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        dead = self.jobs[name].state is State.DEAD

        async def play(side: Side) -> int:
            return len(await side.store.discard([side.jobs[name]]))

        self.same(play, int(dead))
        if dead:
            del self.jobs[name]

    @precondition(lambda self: any(self.alive))
    @rule(data=st.data(), beat=st.booleans())
    def reap(self, data: st.DataObject, beat: bool) -> None:
        worker = data.draw(st.sampled_from([n for n, alive in enumerate(self.alive) if alive]))

        async def play(side: Side) -> bool:
            me = side.workers[worker]
            looks = {look.worker_id: look for look in (await side.store.observe()).workers}
            if beat:
                assert (await side.store.heartbeat(me)).renewed
            return await side.store.reap(looks[me.worker_id])

        self.same(play, not beat)
        self.alive[worker] = beat

    @rule()
    def reclaim(self) -> None:
        """Close all orphans, one at a time, so that the order is the same everywhere."""
        orphans = [
            name
            for name, job in self.jobs.items()
            if job.worker is not None and not self.alive[job.worker]
        ]
        orphans.sort(key=lambda name: self.jobs[name].attempt or 0)

        async def play(side: Side) -> list[tuple[int, State, int, int]]:
            applied: list[Transition] = []
            while some := await side.store.reclaim(lost, limit=1):
                applied += some
            return [
                (side.tokens.index(end.token), end.state, end.failures, end.losses)
                for end in applied
            ]

        self.same(play, [self.model_reclaim(name) for name in orphans])

    @precondition(lambda self: any(self.alive))
    @rule(data=st.data(), reconnect=st.booleans())
    def reconcile(self, data: st.DataObject, reconnect: bool) -> None:
        """A worker holds all of its attempts but the oldest."""
        worker = data.draw(st.sampled_from([n for n, alive in enumerate(self.alive) if alive]))
        own = {job.attempt: job for job in self.jobs.values() if job.worker == worker}
        oldest = min((name for name in own if name is not None), default=None)

        async def play(side: Side) -> list[tuple[int, int]]:
            me = side.workers[worker]
            if reconnect:
                again = await side.store.reconnect(me, 0)
                assert again is not None
                assert await side.store.reconcile(me, []) == []
                side.workers[worker] = me = again
            held = [side.tokens[name] for name in own if name is not None and name != oldest]
            released = await side.store.reconcile(me, held)
            return [
                (side.jobs.index(job_id), side.tokens.index(token)) for job_id, token in released
            ]

        released = [] if oldest is None else [(self.attempts[oldest].job, oldest)]
        self.same(play, released)
        if oldest is not None:
            job = own[oldest]
            facts = job.facts(self.attempts[oldest].job, oldest)
            self.model_end(decide(facts, Outcome(kind=OutcomeKind.RELEASED), no_dice))

    @invariant()
    def agree(self) -> None:
        """All stores show what the model has."""
        expected = {name: job.shown() for name, job in self.jobs.items()}
        assert self.on_all(Side.shown) == [expected] * len(self.sides)


def lost(orphan: Orphan) -> Transition:
    return decide(orphan.facts, LOST, no_dice)


BOUNDED = settings(
    max_examples=min(12, settings().max_examples // 4),
    stateful_step_count=30,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
def test_sqlite_agrees_with_the_model(tmp_path: Path) -> None:
    files = (f"sqlite:///{tmp_path}/{number}.db" for number in range(10_000))
    run_machine(lambda: History([next(files)]), settings=settings(BOUNDED, max_examples=25))  # type: ignore[arg-type]


def test_model_sqlite_and_postgresql_agree(
    tmp_path: Path,
    pg_server: PostgresServer,
    databases: Databases,
    request: pytest.FixtureRequest,
) -> None:
    def history() -> History:
        name = databases.make()
        request.addfinalizer(lambda: databases.drop(name))
        return History([f"sqlite:///{tmp_path}/{name}.db", pg_server.url(name)])

    run_machine(history, settings=BOUNDED)  # type: ignore[arg-type]
