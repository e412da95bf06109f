"""Suspects in a pool of runners: each gets one to itself, and they delay no other attempt."""

from __future__ import annotations

from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.runner.protocol import AttemptsEnded, End
from outlast.store.values import Claimed, ClaimRequest
from tests.unit.worker.runners.pool_kit import CONCURRENCY, OWN, SHARED, SIZE, Bench, own, shared
from tests.unit.worker.worker_kit import COMPLETED, claimed


def suspect(token: int, task: str = SHARED, **fields) -> Claimed:
    values = {"solo": 1, "incident": 1, **fields}
    return claimed(token, task, **values)


def solo_requests(bench: Bench) -> list[ClaimRequest]:
    return [request for request in bench.pool.starter.make_requests(0) if request.solo]


async def test_the_spare_takes_a_suspect_while_other_runners_are_busy():
    bench = await Bench().ready()
    request = ClaimRequest([OWN, SHARED], 1, [], solo=1)
    assert solo_requests(bench) == [request]
    bench.place(own(1), own(2))
    assert bench.pool.starter.make_requests(0) == [request]


async def test_without_a_ready_spare_suspects_wait_while_others_work():
    bench = await Bench().starting(shared=False)

    def asked_for() -> list[int]:
        alone = bench.pool.starter.make_alone_requests()
        return [request.solo for request in [*alone, *solo_requests(bench)]]

    assert asked_for() == [ALONE_IN_WORKER, ALONE_IN_RUNNER]
    bench.place(shared(1))
    assert asked_for() == [ALONE_IN_WORKER]
    await bench.when_spare_is_due()
    bench.runners[SIZE].greets(shared=False)
    assert asked_for() == [ALONE_IN_WORKER, ALONE_IN_RUNNER]
    bench.place(suspect(2), suspect(3))
    assert len(bench.runner(2).tokens) == 1, "each has a runner to itself"


async def test_while_a_suspect_runs_others_get_as_many_runners_as_the_pool_has():
    """Busy for hours with other attempts, it still runs as many."""
    bench = await Bench().ready(shared=False)
    bench.place(*(shared(n) for n in range(10, 10 + SIZE * CONCURRENCY)))
    for count in range(1, 1 + SIZE):
        assert [request.limit for request in solo_requests(bench)] == [1]
        before = bench.owner.changes
        bench.place(suspect(count))
        assert bench.owner.changes > before, "the pool is told to look"
        await bench.pool.keeper.run_once()
        assert len(bench.runners) == SIZE + 2, "no more processes than with one"
        if count == 1:
            bench.runners[-1].greets(shared=False)
    assert [bench.runner(n).tokens for n in range(1, 1 + SIZE)] == [{1}, {2}]
    assert solo_requests(bench) == []


async def test_idle_runners_take_suspects_while_one_runs_and_one_is_left_to_others():
    bench = await Bench(size=3).ready(shared=False)
    bench.place(suspect(1))
    (request,) = solo_requests(bench)
    assert request.limit == 2
    assert [one.limit for one in bench.requests(0)] == [CONCURRENCY]
    bench.place(suspect(2), suspect(3), *(shared(n) for n in range(10, 10 + CONCURRENCY)))
    assert [bench.runner(n).tokens for n in (1, 2, 3)] == [{1}, {2}, {3}]
    assert len(bench.runner(10).tokens) == CONCURRENCY
    assert bench.outcomes() == []


async def test_a_runner_with_a_suspect_takes_no_other_attempts():
    bench = await Bench().ready(shared=False)
    bench.place(suspect(1))
    await bench.pool.keeper.run_once()
    bench.runners[-1].greets(shared=False)
    bench.place(*(shared(n) for n in range(10, 10 + SIZE * CONCURRENCY)))
    assert bench.runner(1).tokens == {1}
    assert bench.outcomes() == []


async def test_its_runner_is_a_spare_again_when_the_suspect_has_ended():
    bench = await Bench().ready(shared=False)
    bench.place(suspect(1))
    bench.runner(1).says(AttemptsEnded([End(1, COMPLETED)]))
    assert len(solo_requests(bench)) == 1


async def test_suspects_that_find_no_idle_runner_are_handed_back_as_suspects():
    bench = await Bench(size=1).ready(own=True)
    bench.place(own(1))
    bench.runners[-1].gone = True
    bench.place(suspect(2, OWN))
    (end,) = bench.ends()
    assert (end.outcome, end.solo, end.incident) == ("released", 1, 1)


async def test_a_suspect_whose_task_the_spare_does_not_know_is_handed_back():
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
    assert bench.pool.starter.make_alone_requests() == [ClaimRequest([SHARED], 1, [], solo=2)]
    bench.place(suspect(1, solo=ALONE_IN_WORKER))
    assert bench.runner(1).ready
    assert len(bench.runners) == SIZE + 1
