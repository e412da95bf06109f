"""At a limit the pool asks for stacks first, and the report shows where the attempt stood."""

from __future__ import annotations

from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy
from outlast.runner.protocol import AttemptsEnded, End, Ping, Pong, Restored, StackAtLimit, Stop
from tests.cases import each_case
from tests.unit.worker.runners.pool_kit import Bench, FakeRunner, own, shared
from tests.unit.worker.worker_kit import crash, heard_fields


def reports(bench: Bench) -> list[Crash]:
    crashes = [end.crash for end in bench.ends()]
    assert None not in crashes
    return [each for each in crashes if each is not None]


def dump_of(token: int) -> str:
    return (
        "Thread 0x1 (most recent call first):\n"
        f'  File "user.py", line 5 in hangs\n  File "marks.py", line 1 in outlast_attempt_{token}\n'
    )


async def test_at_a_limit_the_stacks_are_asked_for_and_otherwise_at_the_kill():
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    bench.pool.control.stop(1, "timeout")
    bench.pool.control.stop(2, "cancel")
    first, second = (bench.runner(token) for token in (1, 2))
    assert (first.dumps, second.dumps) == (1, 0)
    bench.pool.control.kill(1)
    assert first.kills == [None]  # at once: what it could show is here


async def test_only_an_attempt_that_stops_at_a_limit_has_the_stacks_in_its_report():
    bench = await Bench().ready()
    bench.place(own(1), own(2))
    for token, reason in ((1, "timeout"), (2, "cancel")):
        runner = bench.runner(token)
        runner.dump = dump_of(token)
        bench.pool.control.stop(token, reason)
        kind = CrashKind.TIMEOUT if token == 1 else CrashKind.ERROR
        runner.says(AttemptsEnded([End(token, crash(kind))]))
    timeout, error = reports(bench)
    assert (timeout.stacks or "").splitlines()[1:] == dump_of(1).splitlines()[1:]
    assert timeout.message == 'boom; it was at File "user.py", line 5 in hangs'
    assert (error.stacks, error.message) == (None, "boom")


async def test_what_a_cancel_had_to_kill_is_reported_as_cancelled_with_its_stack():
    bench = await Bench().ready()
    bench.place(own(1))
    runner = bench.runner(1)
    bench.pool.control.stop(1, "cancel")
    runner.kill_reason = "cancel"
    with heard_fields() as told:
        runner.dies(signal="SIGKILL", stacks=f"Thread 0x2:\n\n{dump_of(1)}")
    (end,) = bench.ends()
    assert (end.outcome, end.state, end.charge) == ("cancelled", "cancelled", "none")
    assert end.message == 'it did not stop when asked; it was at File "user.py", line 5 in hangs'
    assert end.crash is not None
    assert (end.crash.stacks or "").startswith(dump_of(1).strip())  # the attempt's own first
    assert "attempt_failed" not in [name for name, _ in told]


async def test_process_changes_left_by_a_task_are_reported_with_its_name():
    bench = await Bench().ready()
    bench.place(own(1))
    runner = bench.runner(1)
    with heard_fields() as told:
        runner.says(Restored(2, 0, ["of no attempt"]))
        runner.says(Restored(1, 3, ["umask"]))
    assert told == [
        (
            "runner_restored",
            {
                "job_id": 1,
                "token": 1,
                "task": "own",
                "others": 3,
                "pid": runner.pid,
                "changes": ["umask"],
            },
        )
    ]


async def test_the_stack_of_the_coroutine_comes_first_also_after_a_kill():
    bench = await Bench().ready()
    bench.place(shared(1))
    runner = bench.runner(1)
    runner.says(StackAtLimit(2, "of no attempt"))
    runner.says(StackAtLimit(1, dump_of(1).replace("hangs", "awaits")))
    bench.pool.control.stop(1, "timeout")
    runner.kill_reason = "timeout"
    runner.dies(signal="SIGKILL", stacks="Thread 0x2 (most recent call first):\n")
    (report,) = reports(bench)
    assert (report.stacks or "").splitlines()[1].endswith(" in awaits")
    assert "0x2" in (report.stacks or "")
    assert report.message.endswith('it was at File "user.py", line 5 in awaits')


async def look(bench: Bench, seconds: float) -> None:
    """Let the watchdog look after this time; the loops of all runners turn."""
    bench.clock.advance(seconds)
    await bench.pool.watchdog.run_once()
    for runner in bench.runners:
        for frame in [each for each in runner.sent if isinstance(each, Ping)]:
            runner.says(Pong(frame.seq))
    await bench.pool.watchdog.run_once()


def stops(runner: FakeRunner) -> list[tuple[int, str]]:
    return [(each.token, each.reason) for each in runner.sent if isinstance(each, Stop)]


async def test_an_attempt_that_is_deaf_to_a_pause_is_killed_after_its_grace_and_charged_nothing():
    """Also where its limit passes meanwhile; nor is its neighbour charged."""
    bench = await Bench(size=1).ready()
    bench.place(
        shared(1, policy=Policy(timeout=10.0, stall_timeout=9.0, cancel_grace=5.0)), shared(2)
    )
    runner = bench.runner(1)
    await look(bench, 8.0)
    bench.pool.control.stop(1, "pause")
    await look(bench, 4.0)
    assert (stops(runner), runner.kill_reason) == ([(1, "pause")], None)
    await look(bench, 1.0)
    assert (stops(runner), runner.kill_reason) == ([(1, "pause")], "pause")
    runner.dies(signal="SIGKILL")
    ends = bench.ends()
    assert [(end.token, end.outcome, end.charge, end.losses, end.solo) for end in ends] == [
        (1, "released", "none", 0, 0),
        (2, "released", "none", 0, 0),
    ]


@each_case("first", ["limit", "drain"])
async def test_a_limit_that_passes_while_the_worker_drains_is_charged_unless_the_drain_was_first(
    first: str,
):
    bench = await Bench(size=1).ready()
    bench.place(shared(1, policy=Policy(timeout=10.0, retries=0)), shared(2))
    runner = bench.runner(1)
    bench.owner.draining = True
    if first == "drain":
        bench.pool.control.stop(1, "drain")
    await look(bench, 10.0)
    bench.pool.control.stop(1, "drain")
    assert stops(runner) == [(1, "timeout" if first == "limit" else "drain")]
    bench.pool.control.end_all("drain")
    runner.dies(signal="SIGKILL")
    outcomes = {end.token: (end.outcome, end.charge, end.state) for end in bench.ends()}
    charged = ("timeout", "failure", "dead")
    released = ("released", "none", "queued")
    assert outcomes == {1: charged if first == "limit" else released, 2: released}
