"""The production decisions, as values: the next state of a job when its attempt ends."""

from __future__ import annotations

from functools import cache

from outlast.model import lifecycle
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import JobFacts, Policy
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import Claimed
from outlast.worker.base import Running
from outlast.worker.claims.in_flight import _let_store_check
from outlast.worker.runners import exits
from outlast.worker.runners.process import Death
from tests.model.state import LOST, End, Held, Job

Facts = tuple[int, int, int, int, int, int, bool]  # token, job, failures, … incident, cancel
DEATH = Death(
    pid=1, exit_code=None, signal="SIGKILL", rss_peak_bytes=0, cpu_seconds=0.0, stacks="", output=[]
)


class Decisions:
    """``decide`` under one policy. Twins patch production, so nothing outlives an exploration."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.own = cache(self._own)
        self.lost = cache(self._lost)
        self.overdue = cache(self._overdue)
        self.died_together = cache(self._died_together)

    def _own(self, held: Held, word: str) -> End:
        """The end of an attempt as its own worker reports it."""
        return self._decided(_facts(held), _outcome(word))

    def _lost(self, index: int, job: Job) -> End:
        """A reaper's decision on an orphan."""
        return self._decided(_facts_on_row(index, job), _crash("lost_worker", job.owner == LOST))

    def _overdue(self, index: int, job: Job) -> End:
        """Any worker's decision on an attempt far above its timeout."""
        return self._decided(_facts_on_row(index, job), _crash("timeout"))

    def _died_together(self, attempts: tuple[Held, ...]) -> tuple[End, ...]:
        """The ends of those that were in a runner that has died, with the production's blame."""
        claims = [self._claimed(each) for each in attempts]
        running = [Running(each, each.token, 0.0, 0.0, each.losses) for each in claims]
        suspects = exits.suspects_of(running, DEATH)
        tokens = [each.token for each in attempts]
        return tuple(
            self._decided(
                _facts(held),
                exits.outcome_of(
                    one,
                    DEATH,
                    [token for token in tokens if token != held.token],
                    incident=suspects.get(held.token),
                    killed_for=None,
                    trusted=True,
                    draining=False,
                ),
            )
            for held, one in zip(attempts, running, strict=True)
        )

    def _claimed(self, held: Held) -> Claimed:
        return Claimed(
            job_id=held.job,
            token=held.token,
            task="t",
            queue="q",
            args="{}",
            number=1,
            failures=held.failures,
            losses=held.losses,
            policy=self._policy,
            solo=held.solo,
            incident=held.incident or None,
        )

    def _decided(self, facts: Facts, outcome: Outcome) -> End:
        token, job, failures, losses, solo, incident, cancel = facts
        decided = lifecycle.decide(
            JobFacts(
                job_id=job,
                token=token,
                failures=failures,
                losses=losses,
                policy=self._policy,
                cancel_requested=cancel,
                solo=solo,
                incident=incident or None,
            ),
            outcome,
            lambda: 0.5,
        )
        assert decided.delay == 0
        return End(
            decided.token,
            decided.job_id,
            decided.state.value,
            decided.outcome,
            decided.charge.value,
            decided.failures,
            decided.losses,
            decided.solo,
            decided.incident or 0,
            decided.clears or 0,
        )


def _facts(held: Held) -> Facts:
    return (*held[:6], False)


def _facts_on_row(index: int, job: Job) -> Facts:
    suspected = (job.solo, job.incident)
    return (job.token, index, job.failures, job.losses, *suspected, job.cancel)


def _outcome(word: str) -> Outcome:
    if word in set(CrashKind):
        if word == CrashKind.COMPLETION_NOT_COMMITTED:
            return _let_store_check(Outcome(kind=OutcomeKind.COMPLETED))
        return _crash(word)
    return Outcome(kind=OutcomeKind(word))


def _crash(kind: str, proven: bool = False) -> Outcome:
    return Outcome(kind=OutcomeKind.CRASHED, crash=Crash(kind=CrashKind(kind)), proven=proven)
