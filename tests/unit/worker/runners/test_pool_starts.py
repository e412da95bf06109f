"""The pool starts runners: its size and spare, late ones, failed starts and their back-off."""

from __future__ import annotations

import asyncio

import pytest

from outlast import events
from outlast.runner.protocol import ApplicationFailed
from outlast.store.values import ClaimRequest
from outlast.worker.runners.supervisor import (
    LOOK_SECONDS,
    SLOW_SECONDS,
    SPARE_AFTER_SECONDS,
    START_BACKOFF_FIRST,
    START_BACKOFF_MAX,
    START_SECONDS_MAX,
)
from tests.unit.worker.runners.pool_kit import OWN, SIZE, Bench, own
from tests.unit.worker.worker_kit import heard, heard_fields

# --------------------------------------------------------------------------- starts, spares


async def test_the_pool_keeps_its_size_and_one_warm_spare():
    bench = await Bench().ready()
    assert len(bench.runners) == SIZE + 1
    assert bench.tether.groups == [(runner.pid, True) for runner in bench.runners]
    bench.runners[0].dies(signal="SIGKILL")
    assert len(bench.runners) == SIZE
    assert await bench.pool.keeper.run_once() == LOOK_SECONDS
    assert len(bench.runners) == SIZE + 1


async def test_a_runner_that_is_not_ready_gets_no_work():
    bench = await Bench().starting()
    assert bench.requests(0) == []
    assert bench.pool.starter.tasks() == []
    bench.runners[1].greets(own=True)
    assert bench.pool.starter.tasks() == [OWN]
    assert bench.requests(0) == [ClaimRequest([OWN], 1, [])]
    assert bench.owner.changes == 1


async def test_the_spare_gets_no_work_until_it_replaces_a_dead_one():
    bench = await Bench().ready()
    bench.place(own(1), own(2), own(3))
    busy = [runner for runner in bench.runners if runner.tokens]
    assert len(busy) == SIZE
    assert bench.outcomes() == ["released"]
    assert bench.requests(0) == []
    busy[0].dies(signal="SIGSEGV")
    assert [request.limit for request in bench.requests(0)] == [1]


async def test_a_runner_that_is_late_does_not_make_the_spare_work_beside_it():
    """Two of three have taken work; the third, first in the list, becomes ready only now."""
    bench = await Bench().starting()
    bench.runners[1].greets(own=True, shared=False)
    await bench.when_spare_is_due()
    bench.runners[2].greets(own=True, shared=False)
    bench.place(own(1), own(2))
    bench.runners[0].greets(own=True, shared=False)
    assert bench.requests(0) == []


# ------------------------------------------------------------------ slow and failed starts


async def test_a_late_runner_is_reported_once_with_its_stacks():
    bench = Bench(size=1)
    assert await bench.pool.keeper.run_once() == LOOK_SECONDS
    ready = bench.runners[0]
    ready.greets()
    await bench.when_spare_is_due()
    late = bench.runners[1]
    late.started_at = bench.clock.boot()
    with heard() as names:
        bench.clock.advance(SLOW_SECONDS - 0.1)
        await bench.pool.keeper.run_once()
        assert names == []
        bench.clock.advance(0.1)
        for _ in range(3):
            assert await bench.pool.keeper.run_once() == LOOK_SECONDS
    assert names == ["runner_slow"]
    assert (late.asked, ready.asked) == (1, 0)
    assert late.kills == []
    late.greets()
    assert await bench.pool.keeper.run_once() is None


async def test_what_is_redacted_is_in_no_stack_of_a_slow_runner():
    """Neither while it starts nor after it has not left."""
    bench = Bench(size=1, redact=["x,"])
    await bench.pool.keeper.run_once()
    slow = bench.runners[0]
    with heard_fields() as told:
        bench.clock.advance(SLOW_SECONDS)
        await bench.pool.keeper.run_once()
        slow.quit_at, slow.kill_reason = 0.0, "stop"
        slow.dies(signal="SIGKILL", stacks=await slow.ask_for_stacks())
    stacks = [fields["stacks"] for name, fields in told if name == "runner_slow"]
    assert stacks == ["File [redacted] line 1"] * 2


async def test_a_very_late_runner_is_killed_and_the_next_one_waits_for_the_back_off():
    bench = await Bench(size=1).starting()
    ready = bench.runners[0]
    ready.greets()
    await bench.when_spare_is_due()
    late = bench.runners[1]
    bench.clock.advance(START_SECONDS_MAX)
    for _ in range(3):
        await bench.pool.keeper.run_once()
    assert (late.kills, ready.kills) == (["startup"], [])
    late.dies(signal="SIGKILL")
    assert await bench.pool.keeper.run_once() == START_BACKOFF_FIRST
    assert bench.owner.failures == []
    bench.clock.advance(START_BACKOFF_FIRST)
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == 2


async def test_runners_that_die_at_their_start_are_replaced_with_back_off():
    bench = await Bench(size=1).starting()
    bench.runners[0].greets()
    await bench.when_spare_is_due()
    waits: list[float] = []
    for _ in range(8):
        with heard() as names:
            bench.runners[-1].dies(exit_code=1, output=["no memory"])
        assert names == ["runner_died", "runner_restart_delayed"]
        wait = await bench.pool.keeper.run_once()
        assert wait is not None
        waits.append(wait)
        bench.clock.advance(wait)
        assert await bench.pool.keeper.run_once() == LOOK_SECONDS
    assert waits[:3] == [START_BACKOFF_FIRST, 1.0, 2.0]
    assert max(waits) == waits[-1] == START_BACKOFF_MAX
    assert bench.owner.failures == []


async def test_the_spare_starts_after_the_first_work():
    bench = await Bench().starting()
    bench.runners[0].greets()
    bench.clock.advance(SPARE_AFTER_SECONDS / 4)
    bench.runners[1].greets()
    assert await bench.pool.keeper.run_once() == pytest.approx(SPARE_AFTER_SECONDS * 3 / 4)
    assert len(bench.runners) == SIZE
    bench.clock.advance(SPARE_AFTER_SECONDS)
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == SIZE + 1


async def test_after_a_death_the_spare_does_not_wait():
    bench = await Bench().starting(own=True)
    bench.runners[0].dies(signal="SIGKILL")
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == SIZE + 1


async def test_a_runner_that_retires_early_is_replaced_at_once():
    bench = await Bench().starting(own=True)
    bench.runners[0].retiring = "max_rss"
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == SIZE + 1, "the old one and two that work"


async def test_a_successful_start_ends_the_back_off():
    bench = await Bench(size=1).starting()
    for _ in range(2):
        bench.runners[0].dies(exit_code=1)
        bench.clock.advance(START_BACKOFF_MAX)
        await bench.pool.keeper.run_once()
    bench.runners[0].greets(own=True)
    await bench.when_spare_is_due()
    bench.runners[1].dies(exit_code=1)
    assert await bench.pool.keeper.run_once() == START_BACKOFF_FIRST


async def test_an_application_that_cannot_be_imported_ends_the_worker_with_its_error():
    bench = await Bench().starting()
    for runner in list(bench.runners):
        runner.says(ApplicationFailed("no module named 'shop'", "Traceback ..."))
        runner.dies(exit_code=3)
    assert str(bench.owner.failures[0]) == "no module named 'shop'\nTraceback ..."


async def test_an_application_that_broke_after_a_good_start_is_tried_again():
    """A deploy in place may be half done; running attempts must survive it."""
    bench = await Bench().ready()
    bench.runners[2].dies(signal="SIGKILL")
    await bench.pool.keeper.run_once()
    newborn = bench.runners[-1]
    newborn.says(ApplicationFailed("no module named 'shop'", ""))
    with heard() as names:
        newborn.dies(exit_code=3)
    assert bench.owner.failures == []
    assert names == ["runner_died", "runner_restart_delayed"]


@pytest.mark.parametrize("gone", [False, True])
async def test_attempts_are_bystanders_of_a_lifespan_that_fails_under_them(gone):
    """Also if the worker is so busy that it hears of the exit before it reads the last frame."""
    bench = await Bench().ready()
    bench.place(own(1))
    runner = next(each for each in bench.runners if each.tokens)
    runner.gone = gone
    runner.says(ApplicationFailed("the application's lifespan has failed: LookupError", ""))
    with heard() as names:
        runner.dies(exit_code=3)
    assert bench.outcomes() == ["bystander"]
    assert names[:2] == ["runner_died", "runner_restart_delayed"]
    assert await bench.pool.keeper.run_once() == START_BACKOFF_FIRST


async def test_the_error_of_a_failed_start_is_not_reported_for_the_next():
    said: list[str] = []
    end = events.subscribe(lambda _, fields: said.append(fields.get("error", "")))
    bench = await Bench().ready()
    await bench.pool.keeper.run_once()
    for words in (ApplicationFailed("no module named 'shop'", ""), None):
        bench.runners[0].dies(signal="SIGKILL")
        bench.clock.advance(60)
        await bench.pool.keeper.run_once()
        newborn = bench.runners[-1]
        if words is not None:
            newborn.says(words)
        newborn.dies(exit_code=1)
        bench.clock.advance(60)
        await bench.pool.keeper.run_once()
    end()
    errors = [error for error in said if error]
    assert len(errors) == 2
    assert "shop" in errors[0]
    assert "died before it was ready (exit code 1)" in errors[1]


async def test_a_runner_that_is_stopped_while_it_starts_has_not_died():
    bench = await Bench().starting()
    starting = bench.runners[0]
    assert not starting.ready
    closing = asyncio.create_task(bench.pool.close())
    await bench.clock.run_for(0)
    assert starting.kill_reason == "stop"
    with heard() as names:
        for runner in list(bench.runners):
            runner.dies(signal="SIGKILL")
    assert "runner_died" not in names
    assert "runner_stopped" in names
    await bench.clock.run_for(60)
    await closing
