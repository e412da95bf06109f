"""A dead job is reported once, by the worker whose end of it the store has accepted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outlast.events import CATALOGUE
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import JobFacts, Policy
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.values import Answer, Orphan
from outlast.worker.claims.counters import Counters
from outlast.worker.claims.dead_jobs import reclaim_and_tell, tell_end_of_orphan, tell_end_of_own
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.foreign_ends import ForeignEnd, listen
from tests.unit.worker import worker_kit
from tests.unit.worker.worker_kit import COMPLETED, RELEASED, claimed, heard_fields

LAST = Policy(retries=0, max_losses=0)
RAISED = Outcome(
    kind=OutcomeKind.CRASHED,
    crash=Crash(kind=CrashKind.ERROR, message="ValueError: no page 7\nof 6"),
)
DEAD = Outcome(kind=OutcomeKind.DEAD, message="no such customer")


clock, in_flight = worker_kit.clock, worker_kit.in_flight


def told(events: list[Any], name: str = "job_dead") -> list[dict[str, Any]]:
    return [fields for each, fields in events if each == name]


def hand_in(in_flight: InFlight, *answers: Answer) -> None:
    for answer in answers:
        in_flight.take_answers(in_flight.take(1), [answer])


def test_a_death_is_reported_after_the_store_accepted_it(in_flight):
    with heard_fields() as events:
        in_flight.claim([claimed(7, policy=LAST, number=4, queue="mail")])
        in_flight.end(7, RAISED)
        assert told(events) == [], "the end may still be refused"
        hand_in(in_flight, Answer.BUSY, Answer.ACCEPTED)
    assert told(events) == [
        {
            "job_id": claimed(7).job_id,
            "token": 7,
            "task": claimed(7).task,
            "queue": "mail",
            "kind": "error",
            "message": "ValueError: no page 7",
            "attempts": 4,
        }
    ]
    assert CATALOGUE["job_dead"].level == "error"


@pytest.mark.parametrize(
    ("outcome", "answer", "deaths"),
    [
        (RAISED, Answer.ACCEPTED, 1),
        (DEAD, Answer.ACCEPTED, 1),
        (RAISED, Answer.ALREADY, 1),  # the answer to the first hand-in was lost
        (RAISED, Answer.REFUSED, 0),
        (COMPLETED, Answer.ACCEPTED, 0),
        (RELEASED, Answer.ACCEPTED, 0),
    ],
)
def test_only_accepted_deaths_are_reported(in_flight, outcome, answer, deaths):
    with heard_fields() as events:
        in_flight.claim([claimed(7, policy=LAST)])
        in_flight.end(7, outcome)
        hand_in(in_flight, answer)
    assert len(told(events)) == deaths


def test_an_attempt_that_is_to_run_again_has_failed_and_not_died(in_flight):
    with heard_fields() as events:
        in_flight.claim([claimed(7, policy=Policy(retries=1))])
        in_flight.end(7, RAISED)
        hand_in(in_flight, Answer.ACCEPTED)
    (failed,) = told(events, "attempt_failed")
    assert (failed["kind"], failed["state"]) == ("error", "queued")
    assert failed["message"] == "ValueError: no page 7"
    assert CATALOGUE["attempt_failed"].level == "warning"
    assert told(events) == []


@pytest.mark.parametrize(("answer", "deaths"), [(Answer.ALREADY, 0), (Answer.ACCEPTED, 1)])
def test_a_completion_in_its_own_transaction_is_no_death_if_it_was_committed(
    in_flight, answer, deaths
):
    with heard_fields() as events:
        in_flight.claim([claimed(7, policy=LAST)])
        in_flight.end(7, COMPLETED, completed_in=True)
        assert told(events, "attempt_failed") == []
        hand_in(in_flight, answer)
    assert len(told(events)) == len(told(events, "attempt_failed")) == deaths


def test_a_job_can_die_of_a_result_that_the_store_refuses(in_flight):
    with heard_fields() as events:
        in_flight.claim([claimed(7, policy=LAST)])
        in_flight.end(7, COMPLETED)
        (end,) = in_flight.take(1)
        in_flight.reject(end)
        in_flight.take_answers([end], [Answer.ACCEPTED])
    (dead,) = told(events)
    assert dead["kind"] == "rejected_result"


class Rows:
    """A store with two orphans, one of which another worker closes first."""

    async def reclaim(self, decide, limit=0, only=None) -> list[Transition]:
        decided = [decide(each) for each in (orphan(1, LAST), orphan(2, LAST), orphan(3, Policy()))]
        return [each for each in decided if each.job_id != 2]


def orphan(job_id: int, policy: Policy) -> Orphan:
    facts = JobFacts(job_id=job_id, token=10 + job_id, policy=policy)
    return Orphan(facts=facts, worker_id=3, task="mail", queue="q", attempts=2)


def lost(each: Orphan) -> Transition:
    crash = each.crash(CrashKind.LOST_WORKER, "worker w is gone: silence")
    outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash)
    return decide(each.facts, outcome, lambda: 0.5)


@pytest.mark.parametrize("policy", [LAST, Policy()], ids=["dead", "again"])
def test_listeners_hear_of_an_attempt_whose_runner_has_died(in_flight, policy):
    in_flight.claim([claimed(7, policy=policy)])
    running = in_flight.running[7]
    heard: list[ForeignEnd] = []
    stop = listen(heard.append)
    facts = JobFacts(job_id=7, token=7, policy=policy)
    tell_end_of_own(running, decide(facts, RAISED, lambda: 0.5), running.started_at + 3)
    stop()
    assert [(each.token, each.is_dead, each.seconds) for each in heard] == [(7, policy is LAST, 3)]


async def test_listeners_hear_of_each_attempt_that_a_reaper_closes():
    heard: list[ForeignEnd] = []
    stop = listen(heard.append)
    rows: Any = Rows()
    await reclaim_and_tell(rows, lost, Counters())
    stop()
    assert [(each.job_id, each.outcome, each.is_dead) for each in heard] == [
        (1, "lost_worker", True),
        (3, "lost_worker", False),
    ]
    first = heard[0]
    assert (first.token, first.task, first.queue, first.number) == (11, "mail", "q", 2)
    assert first.message == "worker w is gone: silence"
    assert (first.seconds, first.resumed) == (None, None)


def test_an_attempt_that_had_not_begun_has_no_end_to_hear_of():
    heard: list[ForeignEnd] = []
    stop = listen(heard.append)
    waited = msgspec.structs.replace(orphan(1, LAST), began=False)
    tell_end_of_orphan(waited, lost(waited))
    stop()
    assert heard == []


async def test_a_reaper_reports_the_deaths_that_it_closes():
    rows: Any = Rows()
    with heard_fields() as events:
        assert len((await reclaim_and_tell(rows, lost, Counters()))[0]) == 2
    (dead,) = told(events)
    assert (dead["job_id"], dead["task"], dead["queue"]) == (1, "mail", "q")
    assert (dead["kind"], dead["attempts"]) == ("lost_worker", 2)
    assert dead["message"] == "worker w is gone: silence"
