"""Which jobs are charged when processes die: suspects, solo runs, and the bounds on their cost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.model.crash import PROCESS_DEATHS, Charge, Crash, CrashKind
from outlast.model.job import JobFacts, Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide, find_suspects
from tests.cases import each_case

RETRIES = 3
SUSPECT = {"solo": 1, "incident": 5}
OWN_DEATHS = [CrashKind.EXITED, CrashKind.SIGNALLED, CrashKind.OUT_OF_MEMORY]


def crashed(kind: CrashKind, **fields) -> Outcome:
    return Outcome(kind=OutcomeKind.CRASHED, crash=Crash(kind=kind), **fields)


def bystander(*neighbours: int, **fields) -> Outcome:
    crash = Crash(kind=CrashKind.BYSTANDER, neighbours=[*neighbours])
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash, **fields)


def said(outcome: Outcome) -> str:
    return str(outcome.crash.kind if outcome.crash else outcome.kind)


def after(outcome: Outcome, **facts) -> Transition:
    return decide(JobFacts(**({"job_id": 1, "token": 70} | facts)), outcome, lambda: 1.0)


def how(moved: Transition) -> tuple[int, int | None]:
    return moved.solo, moved.incident


# ------------------------------------------------------------------------------ suspects


def test_the_one_that_the_evidence_names_is_the_only_suspect():
    assert find_suspects({3: None, 4: None, 9: None}, 4) == {4: 4}
    assert find_suspects({3: 1, 4: 1}, 4) == {4: 1}, "of the incident it belongs to"


def test_evidence_that_names_no_member_is_ignored():
    assert find_suspects({3: None, 4: None}, 99) == find_suspects({3: None, 4: None}, None)


def test_all_that_died_together_are_suspects_of_one_incident():
    assert find_suspects(dict.fromkeys([8, 6, 7, 9]), None) == dict.fromkeys([6, 7, 8, 9], 6)


def test_a_second_death_belongs_to_the_incident_of_the_first():
    again = find_suspects({20: 4, 21: None, 22: 9}, None)
    assert again == dict.fromkeys([20, 21, 22], 4)


def test_without_a_death_there_are_no_suspects():
    assert find_suspects({}, 3) == {}


# --------------------------------------------------------------------- deaths of runners


def test_a_bystander_is_suspected_unless_evidence_names_another_and_runs_at_once():
    suspect = after(bystander(2, incident=60), losses=4)
    assert (suspect.charge, suspect.losses, suspect.delay) == (Charge.LOSS, 5, 0.0)
    assert how(suspect) == (1, 60)
    assert how(after(bystander(2))) == (0, None)
    assert how(after(bystander(2), **SUSPECT)) == (0, None)


@each_case("incident", [None, 60])
def test_deaths_of_neighbours_end_no_job_but_lead_to_isolation(incident):
    moved = after(bystander(2, incident=incident), losses=10)
    assert (moved.state, moved.charge, moved.losses) == (State.QUEUED, Charge.NONE, 10)
    assert how(moved) == (1, 70)


@each_case("suspect", [{}, SUSPECT])
def test_a_bystander_without_neighbours_is_a_loss_that_ends_a_job(suspect):
    named = 5 if suspect else None
    first = after(bystander(incident=named), **suspect)
    assert (first.charge, first.losses, first.delay) == (Charge.LOSS, 1, 0.0)
    third = after(bystander(incident=named), losses=2, **suspect)
    assert third.delay == 2 * Policy().backoff_first, "it kills runners, and does not hurry"
    assert how(third) == tuple(suspect.values() or (0, None)), "it was interrupted"
    last = after(bystander(incident=named), losses=10, **suspect)
    assert (last.state, last.charge, last.losses) == (State.DEAD, Charge.LOSS, 11)


@each_case("kind", OWN_DEATHS)
def test_a_job_that_dies_alone_stays_isolated_and_clears_the_others(kind):
    moved = after(crashed(kind), **SUSPECT)
    assert (moved.charge, moved.clears) == (Charge.FAILURE, 5)
    assert how(moved) == (1, 70), "under an incident of its own, which clears no suspect"
    last = after(crashed(kind), failures=RETRIES, **SUSPECT)
    assert (last.state, last.clears) == (State.DEAD, 5)


@each_case("kind", OWN_DEATHS)
def test_a_death_alone_makes_no_suspect_of_a_job_that_was_none(kind):
    moved = after(crashed(kind))
    assert how(moved) == (0, None)
    assert moved.clears is None


@each_case(
    "outcome",
    [
        *(crashed(kind) for kind in CrashKind if kind not in PROCESS_DEATHS | {"undecodable"}),
        Outcome(kind=OutcomeKind.SNOOZED),
    ],
)
def test_a_suspect_whose_runner_outlived_it_is_none_any_more(outcome):
    assert how(after(outcome, **SUSPECT)) == (0, None)


@each_case(
    "outcome",
    [
        Outcome(kind=OutcomeKind.RELEASED),
        crashed(CrashKind.UNDECODABLE),
        crashed(CrashKind.LOST_LEASE),
        crashed(CrashKind.LOST_WORKER),
        bystander(),
    ],
)
def test_a_suspect_that_was_interrupted_or_has_never_begun_stays_one(outcome):
    assert how(after(outcome, **SUSPECT)) == (1, 5)


# --------------------------------------------------------------------- deaths of workers


def test_after_the_second_lost_worker_a_job_runs_alone_in_its_worker():
    assert after(crashed(CrashKind.LOST_WORKER), losses=0).solo == 0
    second = after(crashed(CrashKind.LOST_WORKER), losses=1)
    assert (second.solo, second.losses, second.charge) == (2, 2, Charge.LOSS)
    assert how(after(crashed(CrashKind.LOST_WORKER), losses=1, **SUSPECT)) == (2, 5)


def test_alone_in_its_worker_a_proven_death_is_charged_and_ends_in_dead():
    proven = crashed(CrashKind.LOST_WORKER, proven=True)
    moved = after(proven, solo=2, losses=2)
    assert (moved.charge, moved.failures, moved.losses) == (Charge.FAILURE, 1, 2)
    assert moved.solo == 2
    assert after(proven, solo=2, losses=2, failures=RETRIES).state is State.DEAD


def test_silence_is_no_proof():
    moved = after(crashed(CrashKind.LOST_WORKER), solo=2, losses=2)
    assert (moved.charge, moved.losses, moved.solo) == (Charge.LOSS, 3, 2)


def test_a_proven_death_of_a_worker_that_it_shared_is_a_loss():
    moved = after(crashed(CrashKind.LOST_WORKER, proven=True), losses=5)
    assert moved.charge is Charge.LOSS


def test_progress_alone_in_a_worker_forgives_losses():
    """Its checkpoint has advanced, so its losses are none."""
    proven = crashed(CrashKind.LOST_WORKER, proven=True)
    moved = after(proven, solo=2, losses=0)
    assert (moved.charge, moved.losses, moved.failures, moved.solo) == (Charge.LOSS, 1, 0, 0)
    assert how(after(proven, solo=2, losses=0, incident=5)) == (1, 5)


def test_a_long_job_with_checkpoints_survives_any_number_of_preemptions():
    facts = JobFacts(job_id=1, token=1)
    for token in range(2, 30):
        moved = decide(facts, crashed(CrashKind.LOST_WORKER, proven=True), lambda: 1.0)
        assert (moved.state, moved.failures) == (State.QUEUED, 0)
        facts = JobFacts(job_id=1, token=token, solo=moved.solo, losses=0)  # it saved again


# ------------------------------------------------------------------- the bounds on all this


class Room:
    """One runner after the other, with one poison job among innocents."""

    def __init__(self, innocents: int, named: bool) -> None:
        self.named = named
        self.tokens = iter(range(1, 10**6))
        self.policy = Policy(retries=RETRIES)
        self.queued = {job: JobFacts(job_id=job, token=0) for job in range(innocents + 1)}
        self.ended: dict[int, Transition] = {}
        self.deaths = 0

    def group(self, pick) -> list[int]:
        """Return what the next runner takes: one suspect, or some of the line."""
        suspects = sorted(job for job, facts in self.queued.items() if facts.solo)
        line = sorted(self.queued.keys() - set(suspects))
        if suspects and (not line or pick(2)):
            return [suspects[pick(len(suspects))]]
        return line[: 1 + pick(len(line))] if pick(2) else line

    def run(self, jobs: list[int], pick) -> None:
        """Some innocents complete first; then the poison, if it is there, takes the rest along."""
        for job in jobs:
            self.queued[job] = self.claimed(self.queued[job])
        for job in jobs:
            if job != 0 and (0 not in jobs or pick(3) == 0):
                self.end(job, Outcome(kind=OutcomeKind.COMPLETED))
        left = [job for job in jobs if job in self.queued]
        if 0 in left:
            self.die(left)

    def claimed(self, facts: JobFacts) -> JobFacts:
        return JobFacts(
            job_id=facts.job_id,
            token=next(self.tokens),
            failures=facts.failures,
            losses=facts.losses,
            policy=self.policy,
            solo=facts.solo,
            incident=facts.incident,
        )

    def die(self, jobs: list[int]) -> None:
        self.deaths += 1
        if len(jobs) == 1:
            self.end(jobs[0], crashed(CrashKind.SIGNALLED))
            return
        died = {self.queued[job].token: self.queued[job].incident for job in jobs}
        found = find_suspects(died, self.queued[0].token if self.named else None)
        for job in jobs:
            incident = found.get(self.queued[job].token)
            self.end(job, bystander(*(set(jobs) - {job}), incident=incident))

    def end(self, job: int, outcome: Outcome) -> None:
        moved = decide(self.queued.pop(job), outcome, lambda: 1.0)
        if moved.state is not State.QUEUED:
            self.ended[job] = moved
        else:
            self.queued[job] = JobFacts(
                job_id=job,
                token=moved.token,
                failures=moved.failures,
                losses=moved.losses,
                solo=moved.solo,
                incident=moved.incident,
            )
        for other, facts in self.queued.items():
            if moved.clears is not None and facts.incident == moved.clears:
                self.queued[other] = JobFacts(job_id=other, token=0, losses=facts.losses)


@settings(deadline=None)
@given(st.integers(0, 200), st.booleans(), st.randoms(use_true_random=False))
def test_one_poison_among_innocents_is_dead_by_its_own_deaths_and_kills_no_innocent_again(
    innocents, named, dice
):
    room = Room(innocents, named)
    while room.queued:
        room.run(room.group(dice.randrange), dice.randrange)
    assert room.deaths <= RETRIES + 2, "the shared one, and its own"
    poison = room.ended.pop(0)
    assert (poison.state, poison.failures) == (State.DEAD, RETRIES + 1)
    for moved in room.ended.values():
        assert (moved.state, moved.failures) == (State.COMPLETED, 0)
        assert moved.losses <= 1
