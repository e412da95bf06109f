"""Batches in a pool of runners: who gathers where, what is requested, and whom a death affects."""

from __future__ import annotations

from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.runner.protocol import AttemptsEnded, End, Hello, Ping, Pong, Recall, Stop, TaskInfo
from outlast.store.values import Claimed, ClaimRequest
from tests.unit.worker.runners.pool_kit import OWN, Bench, own
from tests.unit.worker.worker_kit import COMPLETED, claimed

BATCH, MOST = "batch", 4
TASKS = [TaskInfo(BATCH, own_runner=True, batch=MOST), TaskInfo(OWN, own_runner=True)]


def item(token: int, **fields: object) -> Claimed:
    return claimed(token, BATCH, **fields)


async def ready(size: int = 2) -> Bench:
    """A pool with a spare whose runners wait for more items."""
    bench = Bench(size=size, concurrency=1)
    for _ in range(2):
        bench.pool._supervisor._spare_at = bench.clock.boot()
        await bench.pool.keeper.run_once()
        for runner in bench.runners:
            runner.waits = True
            if not runner.ready:
                runner.says(Hello(TASKS, None, "3"))
    return bench


async def test_the_first_item_comes_like_any_plain_function_and_the_others_by_a_request() -> None:
    bench = await ready()
    assert bench.requests(0) == [ClaimRequest([BATCH, OWN], 2)]
    bench.place(item(1))
    assert bench.requests(0) == [ClaimRequest([BATCH, OWN], 1), ClaimRequest([BATCH], MOST - 1)]
    bench.place(own(2), item(3), item(4), item(5))
    assert bench.runner(1).tokens == {1, 3, 4, 5}
    assert bench.runner(2).tokens == {2}
    assert bench.requests(0) == []
    assert bench.outcomes() == []


async def test_items_above_a_full_batch_open_another() -> None:
    bench = await ready()
    bench.place(*(item(n) for n in range(1, MOST + 3)))
    assert bench.runner(1).tokens == {1, 2, 3, 4}
    assert bench.runner(5).tokens == {5, 6}


async def test_a_call_that_has_begun_takes_no_more() -> None:
    bench = await ready(size=1)
    bench.place(item(1), item(2))
    runner = bench.runner(1)
    runner.begins(1, 2)
    assert bench.requests(0) == []
    bench.place(item(3))
    assert bench.outcomes() == ["released"]
    runner.says(AttemptsEnded([End(1, COMPLETED), End(2, COMPLETED)]))
    bench.place(item(4))
    assert runner.tokens == {4}


async def test_items_that_come_after_their_call_has_begun_leave_the_idle_runner_to_others() -> None:
    bench = await ready()
    bench.place(item(1))
    assert bench.requests(0) == [ClaimRequest([BATCH, OWN], 1), ClaimRequest([BATCH], MOST - 1)]
    bench.runner(1).begins(1)
    bench.place(item(2), item(3), own(4))
    assert bench.runner(4).tokens == {4}
    assert bench.outcomes() == ["released"] * 2


async def test_an_item_that_was_on_its_way_when_the_call_began_is_recalled() -> None:
    bench = await ready()
    bench.place(item(1), item(2))
    runner = bench.runner(1)
    runner.begins(1)
    assert Recall([2]) in runner.sent


async def test_gathering_items_wait_as_long_as_their_batch_does() -> None:
    bench = await ready()
    bench.place(item(1), item(2))
    bench.clock.advance(30.0)
    bench.pool.starter.give_back_late()
    assert not any(isinstance(frame, Recall) for frame in bench.runner(1).sent)


async def test_a_timeout_counts_from_the_begin_of_the_call() -> None:
    bench = await ready()
    timed = Policy(timeout=3.0)
    bench.place(item(1, policy=timed), item(2, policy=timed))
    runner = bench.runner(1)
    bench.clock.advance(2.9)
    runner.begins(1, 2)
    for seconds, stops in ((2.9, False), (0.2, True)):
        bench.clock.advance(seconds)
        await bench.pool.watchdog.run_once()
        runner.says(Pong(max(frame.seq for frame in runner.sent if isinstance(frame, Ping))))
        await bench.pool.watchdog.run_once()
        assert any(isinstance(frame, Stop) for frame in runner.sent) is stops
    assert {frame.token for frame in runner.sent if isinstance(frame, Stop)} == {1, 2}


async def test_a_death_makes_suspects_of_the_call_and_affects_none_that_gathers() -> None:
    bench = await ready()
    bench.place(*(item(n) for n in range(1, 4)))
    runner = bench.runner(1)
    runner.begins(1, 2)
    runner.dies(exit_code=1)
    ends = {end.token: end for end in bench.ends()}
    assert (ends[3].outcome, ends[3].charge, ends[3].solo) == ("released", "none", 0)
    assert [ends[n].outcome for n in (1, 2)] == ["bystander"] * 2
    assert [ends[n].solo for n in (1, 2)] == [1, 1]


async def test_a_suspect_is_a_call_by_itself() -> None:
    bench = await ready()
    requests = bench.pool.starter.make_requests(0)
    assert [request.limit for request in requests if request.solo] == [1]
    bench.place(item(1, solo=1, incident=1), item(2, solo=1, incident=1))
    assert [bench.runner(n).tokens for n in (1, 2)] == [{1}, {2}]


async def test_one_cancelled_job_kills_no_call_and_all_of_them_do() -> None:
    bench = await ready()
    bench.place(item(1), item(2))
    runner = bench.runner(1)
    runner.begins(1, 2)
    for _ in range(2):  # each reply of the store says it again
        bench.pool.control.stop(1, "cancel")
    assert runner.sent.count(Stop(1, "cancel")) == 1
    bench.clock.advance(5.0)
    await bench.pool.watchdog.run_once()
    assert runner.kill_reason is None
    bench.pool.control.stop(2, "cancel")
    bench.clock.advance(5.0)
    await bench.pool.watchdog.run_once()
    assert runner.kill_reason == "cancel"
    runner.dies(signal="SIGKILL")
    assert bench.outcomes() == ["cancelled"] * 2


async def test_a_cancelled_job_of_a_call_still_ends_with_it() -> None:
    bench = await ready()
    bench.place(item(1), item(2))
    runner = bench.runner(1)
    runner.begins(1, 2)
    bench.pool.control.stop(1, "cancel")
    for token in (1, 2):
        bench.pool.control.stop(token, "timeout")
    bench.clock.advance(5.0)
    await bench.pool.watchdog.run_once()
    runner.dies(signal="SIGKILL")
    assert bench.outcomes() == ["cancelled", CrashKind.TIMEOUT]


async def test_a_limit_of_a_cancelled_job_still_ends_its_call() -> None:
    bench = await ready()
    bench.place(item(1), item(2))
    runner = bench.runner(1)
    runner.begins(1, 2)
    bench.pool.control.stop(1, "cancel")
    bench.pool.control.stop(1, "timeout")
    bench.clock.advance(5.0)
    await bench.pool.watchdog.run_once()
    assert runner.kill_reason == "cancel"
    runner.dies(signal="SIGKILL")
    assert bench.outcomes() == ["cancelled", "released"]


async def test_the_ends_of_a_batch_are_no_rate_of_plain_functions() -> None:
    bench = await ready(size=1)
    for start in range(0, 400, MOST):
        bench.place(*(item(n) for n in range(start + 1, start + 1 + MOST)))
        runner = bench.runner(start + 1)
        runner.begins(*runner.tokens)
        runner.says(AttemptsEnded([End(token, COMPLETED) for token in runner.tokens]))
    bench.clock.advance(0.2)
    assert bench.requests(0) == [ClaimRequest([BATCH, OWN], 1)]
