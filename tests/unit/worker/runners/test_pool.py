"""The pool: what runners say is taken, deaths are handled, and it comes to an end."""

from __future__ import annotations

import asyncio

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.protocol import (
    AttemptsEnded,
    End,
    Hello,
    Reported,
    Saved,
    SaveRequest,
    StepRequest,
    Stop,
    TaskInfo,
)
from outlast.worker.foreign_ends import ForeignEnd, listen
from tests.cases import each_case
from tests.unit.worker.runners.pool_kit import OWN, Bench, own, shared
from tests.unit.worker.worker_kit import COMPLETED, heard

SECONDS = 60.0


# ------------------------------------------------------------------------ what runners say


async def test_an_end_is_taken_from_the_runner_that_runs_the_attempt_only():
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    first = bench.runner(1)
    second = bench.runner(2)
    second.says(AttemptsEnded([End(1, COMPLETED), End(99, COMPLETED)]))
    assert bench.ends() == []
    assert first.tokens == {1}
    first.says(AttemptsEnded([End(1, COMPLETED)]))
    first.says(AttemptsEnded([End(1, COMPLETED)]))
    assert bench.outcomes() == ["completed"]
    assert not first.exclusive


async def test_saves_and_reports_are_taken_from_the_runner_that_runs_the_attempt_only():
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    runner = bench.runner(2)
    for token in (1, 2, 99):
        runner.says(SaveRequest(1, token, 1, "1"))
        runner.says(Reported(token, Progress(0.5)))
    assert bench.checkpoints.saves == [2]
    assert bench.checkpoints.reports == [2]
    answers = [frame for frame in runner.sent if isinstance(frame, Saved)]
    refused = Saved(1, "refused")  # a thread that outlived its attempt must not wait
    assert answers == [refused, Saved(1, "accepted"), refused]


async def test_a_step_is_taken_from_the_runner_that_runs_the_attempt_only():
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    runner = bench.runner(2)
    for token in (1, 2, 99):
        runner.says(StepRequest(1, token, "cover", "1"))
    assert [step.token for step in bench.checkpoints.steps] == [2]
    answers = [frame for frame in runner.sent if isinstance(frame, Saved)]
    assert answers == [Saved(1, "refused"), Saved(1, "accepted"), Saved(1, "refused")]


async def test_the_first_reason_to_stop_stays():
    bench = await Bench().ready()
    bench.place(own(1))
    bench.pool.control.stop(1, "timeout")
    bench.pool.control.stop(1, "cancel")
    bench.pool.control.stop(99, "cancel")
    runner = bench.runner(1)
    assert [f for f in runner.sent if isinstance(f, Stop)] == [Stop(1, "timeout")]
    assert bench.in_flight.running[1].stop_reason == "timeout"


async def test_a_kill_is_for_the_reason_of_the_attempt_and_is_done_once():
    bench = await Bench().ready()
    bench.place(own(1))
    runner = bench.runner(1)
    bench.pool.control.stop(1, "timeout")
    bench.pool.control.kill(1)
    bench.pool.control.kill(1)
    bench.pool.control.kill(99)
    await bench.clock.run_for(1)
    assert runner.kill_reason == "timeout"
    assert len(runner.kills) == 1


async def test_a_runner_that_is_being_killed_gets_no_more_work_and_the_spare_steps_in():
    bench = await Bench(size=1).ready()
    bench.place(shared(1))
    runner = bench.runner(1)
    bench.pool.control.kill(1)
    bench.place(shared(2))
    assert bench.runner(2) not in {None, runner}


async def test_only_runners_with_work_are_killed_when_all_attempts_are_to_end():
    bench = await Bench().ready()
    bench.place(own(1))
    bench.pool.control.end_all("lease_lost")
    assert sorted(runner.kills for runner in bench.runners) == [[], [], ["lease_lost"]]


async def test_a_killed_runner_that_goes_on_is_reported_once_and_replaced():
    bench = await Bench(size=1).ready()
    bench.place(own(1))
    stuck = bench.runner(1)
    with heard() as names:
        bench.pool.control.give_up({1})
        await bench.pool.keeper.run_once()
        assert (names, len(bench.runners)) == ([], 2), "it was not killed"
        bench.pool.control.end_all("lease_lost")
        bench.pool.control.give_up({2})
        assert names == []
        for _ in range(2):
            bench.pool.control.give_up({1})
        await bench.pool.keeper.run_once()
    assert names == ["runner_unkillable", "runner_started"]
    stuck.dies(signal="SIGKILL")
    assert [end.token for end in bench.ends()] == [1]


# ------------------------------------------------------------------------------- the dead


async def test_the_attempts_of_a_dead_runner_end_and_those_of_the_others_go_on():
    bench = await Bench(concurrency=2).ready(shared=False)
    bench.place(shared(1), shared(2), shared(3))
    victim = next(runner for runner in bench.runners if len(runner.tokens) == 2)
    lost = sorted(victim.tokens)
    victim.dies(signal="SIGSEGV")
    ends = bench.ends()
    assert sorted(end.token for end in ends) == lost
    assert [end.outcome for end in ends] == ["bystander"] * 2
    assert [end.crash.neighbours for end in ends if end.crash] == [[lost[1]], [lost[0]]]
    assert len(bench.in_flight.running) == 1
    assert (victim.pid, False) in bench.tether.groups


async def test_an_attempt_alone_in_its_runner_is_charged():
    bench = await Bench().ready()
    bench.place(own(1))
    bench.runner(1).dies(exit_code=3)
    assert bench.outcomes() == ["exited"]


async def test_listeners_hear_of_the_attempts_of_a_dead_runner_and_of_no_others():
    heard: list[ForeignEnd] = []
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    killed, other = (bench.runner(token) for token in (1, 2))
    stop = listen(heard.append)
    killed.dies(signal="SIGKILL")
    other.says(AttemptsEnded([End(2, COMPLETED)]))
    stop()
    (end,) = heard
    assert (end.token, end.outcome, end.resumed) == (1, "signalled", False)
    assert end.crash is not None
    assert (end.crash.signal, end.crash.worker) == ("SIGKILL", "w1")
    assert end.seconds is not None


async def test_an_end_reported_before_the_death_counts():
    bench = await Bench().ready()
    bench.place(own(1))
    runner = bench.runner(1)
    runner.says(AttemptsEnded([End(1, COMPLETED)]))
    runner.dies(exit_code=3)
    assert bench.outcomes() == ["completed"]


async def test_under_a_lost_lease_a_death_is_a_lost_lease():
    bench = await Bench().ready()
    bench.place(own(1))
    bench.owner.trusted = False
    bench.runner(1).dies(signal="SIGKILL")
    assert bench.outcomes() == ["lost_lease"]


async def test_during_a_drain_a_signal_from_outside_is_an_interruption():
    bench = await Bench().ready()
    bench.place(own(1))
    bench.owner.draining = True
    bench.runner(1).dies(signal="SIGKILL")
    assert bench.outcomes() == ["released"]


async def test_the_report_has_the_versions_of_the_runner():
    """After a deploy in place, runners may be of another release than their worker."""
    bench = await Bench(size=1).ready()
    for runner in bench.runners:
        runner.says(Hello([TaskInfo(OWN, own_runner=True)], "2026.12", "3.99"))
    bench.place(own(1))
    bench.runner(1).dies(exit_code=3)
    (end,) = bench.ends()
    assert end.crash is not None
    assert (end.crash.release, end.crash.python) == ("2026.12", "3.99")


# -------------------------------------------------------------------------------- the end


async def test_at_the_end_idle_runners_leave_and_the_others_are_killed():
    bench = await Bench().ready()
    await bench.pool.keeper.run_once()
    bench.place(own(1))
    runners = list(bench.runners)
    busy = bench.runner(1)

    async def all_die(seconds: float) -> None:
        for runner in runners:
            runner.dies(exit_code=0)

    bench.clock.sleep = all_die  # type: ignore[method-assign]
    await bench.pool.close()
    assert [runner.quits for runner in runners if runner.pid != busy.pid] == [1, 1]
    assert busy.kills == ["stop"]
    assert bench.outcomes() == ["released"]
    await bench.pool.keeper.run_once()
    assert bench.runners == []


async def test_runners_that_do_not_leave_are_killed():
    bench = await Bench().ready()

    async def goes_on(seconds: float) -> None:
        bench.clock.advance(0.5)
        await asyncio.sleep(0)  # they are asked for their stacks, in tasks
        for runner in list(bench.runners):
            if runner.kills:
                runner.dies(signal="SIGKILL")

    bench.clock.sleep = goes_on  # type: ignore[method-assign]
    await bench.pool.close()
    assert bench.runners == []


async def test_a_runner_that_cannot_be_killed_does_not_hold_up_the_end():
    bench = await Bench(size=1).ready()
    (left, gone) = bench.runners

    async def dies_not(seconds: float) -> None:
        await asyncio.sleep(0)
        bench.clock.advance(0.5)
        if gone.kills and gone in bench.runners:
            gone.dies(signal="SIGKILL")

    bench.clock.sleep = dies_not  # type: ignore[method-assign]
    with heard() as names:
        async with asyncio.timeout(SECONDS):
            await bench.pool.close()
    assert bench.runners == [left]
    assert (left.pid, False) in bench.tether.groups, "no other code waits for it either"
    assert names == ["runner_died", "runner_slow", "runner_unkillable"]


async def test_one_process_is_killed_by_its_pid_and_its_attempts_are_released():
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    runner = bench.runner(1)
    bench.pool.control.kill_process(99_999, "transaction_left_open")
    bench.pool.control.kill_process(runner.pid, "transaction_left_open")
    assert [each.kills for each in bench.runners if each.kills] == [["transaction_left_open"]]
    runner.dies(signal="SIGKILL")
    assert bench.outcomes() == ["released"]


@each_case(
    "running, waits, outcome, charge, solo",
    [
        ([1, 2], 9, "bystander", "loss", 1),  # 9 has ended, or one of these holds the lock
        ([1], 9, "bystander", "loss", 1),
        ([1, 2], 1, "bystander", "loss", 1),
        ([1], 1, "signalled", "failure", 0),  # it saves in its own transaction
    ],
)
async def test_a_runner_that_locks_the_file_ends_with_its_suspects(
    running, waits, outcome, charge, solo
):
    bench = await Bench().ready()
    bench.place(*map(shared, running))
    runner = bench.runner(1)
    bench.pool.control.kill_locking(runner.pid, None)
    assert runner.kills == [], "it is not empty"
    bench.pool.control.kill_locking(runner.pid, waits)
    runner.dies(signal="SIGKILL")
    ends = [(end.outcome, end.charge, end.solo) for end in bench.ends()]
    assert ends == [(outcome, charge, solo)] * len(running)


@each_case("draining", [None, "before", "a moment later"])
async def test_a_failure_after_a_signal_from_outside_is_a_loss_and_nothing_at_a_drain(draining):
    """Who signals a whole group does so one by one: the worker may hear of it last."""
    bench = await Bench(size=1).ready()
    bench.place(shared(1), shared(2))
    bench.owner.draining = draining == "before"
    crash = Crash(kind=CrashKind.BYSTANDER, message="its runner was signalled")
    failed = Outcome(kind=OutcomeKind.CRASHED, crash=crash)
    bench.runners[0].says(AttemptsEnded([End(1, failed)]))
    bench.owner.draining = draining is not None
    async with asyncio.timeout(30):
        while not (ends := bench.ends()):
            await asyncio.sleep(0.01)
    (end,) = ends
    assert end.failures == 0
    if draining:
        assert (end.outcome, end.losses) == ("released", 0)
        return
    assert (end.outcome, end.losses) == ("bystander", 1)
    assert end.crash is not None
    assert end.crash.neighbours == [2], "who may have sent it"
