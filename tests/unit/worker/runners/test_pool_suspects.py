"""Suspects in a pool of runners: they get the spare, alone, and delay no other attempt."""

from __future__ import annotations

from outlast.model.job import ALONE_IN_WORKER
from outlast.runner.protocol import AttemptsEnded, End
from outlast.store.values import Claimed, ClaimRequest
from tests.unit.worker.runners.pool_kit import CONCURRENCY, OWN, SHARED, SIZE, Bench, own, shared
from tests.unit.worker.worker_kit import COMPLETED, claimed


def suspect(token: int, task: str = SHARED, **fields) -> Claimed:
    values = {"solo": 1, "incident": 1, "cohort": 1, **fields}
    return claimed(token, task, **values)


def solo_requests(bench: Bench) -> list[ClaimRequest]:
    return [request for request in bench.pool.starter.make_requests(0) if request.solo]


async def test_the_spare_takes_a_cohort_while_other_runners_are_busy():
    bench = await Bench().ready()
    request = ClaimRequest([OWN, SHARED], CONCURRENCY, [], solo=1)
    assert solo_requests(bench) == [request]
    bench.place(own(1), own(2))
    assert bench.pool.starter.make_requests(0) == [request]


async def test_without_a_ready_spare_suspects_wait():
    bench = await Bench().starting(shared=False)
    await bench.when_spare_is_due()
    assert solo_requests(bench) == []
    bench.runners[SIZE].greets(shared=False)
    assert len(solo_requests(bench)) == 1


async def test_a_cohort_runs_in_one_idle_runner_and_another_spare_starts():
    bench = await Bench().ready(shared=False)
    before = bench.owner.changes
    bench.place(shared(1), suspect(2), suspect(3))
    cohort = bench.runner(2)
    assert cohort.tokens == {2, 3}
    assert bench.owner.changes > before, "the pool is told to look"
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == SIZE + 2
    bench.runners[-1].greets(shared=False)
    assert solo_requests(bench) == [], "one cohort at a time"


async def test_a_runner_with_suspects_takes_no_other_attempts():
    bench = await Bench().ready(shared=False)
    bench.place(suspect(1))
    cohort = bench.runner(1)
    assert [request.limit for request in bench.requests(0)] == [SIZE * CONCURRENCY]
    bench.place(*(shared(n) for n in range(10, 10 + SIZE * CONCURRENCY)))
    assert cohort.tokens == {1}
    assert bench.outcomes() == []


async def test_its_runner_is_a_spare_again_when_the_cohort_has_ended():
    bench = await Bench().ready(shared=False)
    bench.place(suspect(1))
    cohort = bench.runner(1)
    cohort.says(AttemptsEnded([End(1, COMPLETED)]))
    assert len(solo_requests(bench)) == 1


async def test_suspects_that_find_no_idle_runner_are_handed_back_as_suspects():
    bench = await Bench(size=1).ready(own=True)
    bench.place(own(1))
    bench.runners[-1].gone = True
    bench.place(suspect(2, OWN))
    (end,) = bench.ends()
    assert (end.outcome, end.solo, end.incident, end.cohort) == ("released", 1, 1, 1)


async def test_a_member_whose_task_the_spare_does_not_know_is_handed_back():
    bench = await Bench().ready(shared=False)
    bench.place(suspect(1), suspect(2, "unheard of"))
    (end,) = bench.ends()
    assert (end.token, end.outcome) == (2, "released")


async def test_those_that_died_together_go_back_as_suspects_of_one_incident():
    bench = await Bench().ready(shared=False)
    bench.place(*(shared(n) for n in range(1, 1 + SIZE * CONCURRENCY)))
    runner = bench.runner(1)
    tokens = sorted(runner.tokens)
    runner.dies(exit_code=1)
    ends = {end.token: end for end in bench.ends()}
    assert sorted(ends) == tokens
    assert {(end.outcome, end.solo, end.incident) for end in ends.values()} == {
        ("bystander", 1, tokens[0])
    }
    assert [ends[token].cohort for token in tokens] == tokens


async def test_a_suspect_that_dies_alone_is_charged_and_clears_its_incident():
    bench = await Bench().ready(shared=False)
    bench.place(suspect(7, incident=3), shared(8))
    bench.runner(7).dies(signal="SIGSEGV")
    (end,) = bench.ends()
    assert (end.outcome, end.failures, end.clears, end.solo) == ("signalled", 1, 3, 1)
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == SIZE + 1


async def test_a_job_that_needs_the_worker_runs_in_an_ordinary_runner():
    bench = await Bench().ready(shared=False)
    assert bench.pool.starter.make_exclusive_request(2) == ClaimRequest([SHARED], 1, [], solo=2)
    bench.place(suspect(1, solo=ALONE_IN_WORKER))
    assert bench.runner(1).ready
    assert len(bench.runners) == SIZE + 1
