"""The model of the differential test: dictionaries, and what a step does to them.

Jobs and attempts have names of the history's own here (0, 1, 2 …). Delays are either none or so
long that nothing falls due by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from outlast.model.crash import Crash, CrashKind
from outlast.model.job import JobFacts, Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.values import Answer, Requeued
from tests.conformance.kit import no_dice

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
    cohort: int | None = None
    due: bool = True

    def shown(self) -> tuple[object, ...]:
        """What an inspector shows of it."""
        waiting = self.state is State.QUEUED and not self.due
        counted = (self.count, self.failures, self.losses)
        suspected = (self.solo, self.incident, self.cohort)
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
            cohort=self.cohort,
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
            job.solo, job.incident, job.cohort = end.solo, end.incident, end.cohort
        job.due = end.delay == 0
        if job.state is State.QUEUED and job.due and not job.solo:
            job.place = self.next_place()
        if end.clears is not None:
            self.model_clear(end.clears)
        return Answer.ACCEPTED

    def model_clear(self, incident: int) -> None:
        for _, job in sorted(self.jobs.items()):
            if job.incident == incident and job.state is State.QUEUED and job.solo == 1:
                job.solo, job.incident, job.cohort = 0, None, None
                job.place = self.next_place() if job.due else None

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
        job.incident = job.cohort = None
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
