"""Recycled runners: replaced without a gap, and killed when far above their memory limit."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from outlast import events
from outlast.model.crash import Progress
from outlast.runner.protocol import (
    AttemptsEnded,
    End,
    Recall,
    Recalled,
    Reported,
    SaveRequest,
    StepRequest,
    Stop,
)
from outlast.worker.runners import recycling
from outlast.worker.runners.process import QUIT_SECONDS
from outlast.worker.runners.recycling import FAR_ABOVE, LOOK_SECONDS, RETIRING_PER_RUNNER
from tests.cases import each_case
from tests.unit.worker.runners.pool_kit import OWN, SIZE, Bench, FakeRunner, own, shared
from tests.unit.worker.worker_kit import COMPLETED, RELEASED, heard

LIMIT = 1000  # bytes; no real memory is measured here


class Scales:
    """The memory of each process group, as set by the test."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}

    def __call__(self) -> dict[int, int]:
        return self.sizes


class Worn(Bench):
    """A pool with limits."""

    def __init__(self, size: int = SIZE, *, max_rss: int | None = None, **limits: Any) -> None:
        self.scales = Scales()
        super().__init__(size, read=self.scales, max_rss=max_rss, **limits)

    def ends_well(self, token: int) -> None:
        self.runner(token).says(AttemptsEnded([End(token, COMPLETED)]))

    async def weighs(self, runner: FakeRunner, size: float) -> None:
        self.scales.sizes[runner.pid] = int(size)
        self.clock.advance(LOOK_SECONDS)
        await self.pool.keeper.run_once()

    def first(self) -> FakeRunner:
        found = self.pool._assignment.active()[0]
        assert isinstance(found, FakeRunner)
        return found

    def at_work(self) -> set[int]:
        return {runner.pid for runner in self.pool._assignment.active()}


# --------------------------------------------------------------------------- after a number of jobs


async def test_after_its_attempts_a_runner_is_replaced_by_the_spare_at_once():
    bench = await Worn(size=1, max_jobs=2).ready()
    first = bench.first()
    bench.place(shared(1), shared(2))
    assert first.retiring == "max_jobs_per_runner"
    spare = next(runner for runner in bench.runners if runner is not first)
    assert bench.at_work() == {spare.pid}
    assert sum(request.limit for request in bench.pool.starter.make_requests(0)) > 0
    assert await bench.pool.keeper.run_once() is not None
    assert len(bench.runners) == 3, "the old one, the one at work and a new spare"


async def test_a_worn_runner_goes_on_until_a_spare_is_ready():
    bench = Worn(size=1, max_jobs=2)
    await bench.pool.keeper.run_once()
    bench.runners[0].greets(own=True, shared=False)
    await bench.when_spare_is_due()
    first, late = bench.runners
    bench.place(shared(1), shared(2))
    assert first.retiring is None
    assert bench.at_work() == {first.pid}
    late.greets(own=True, shared=False)
    assert first.retiring == "max_jobs_per_runner"
    assert bench.at_work() == {late.pid}


async def test_a_retiring_runner_leaves_when_its_last_attempt_has_ended():
    bench = await Worn(size=1, max_jobs=2).ready()
    bench.place(shared(1), shared(2))
    old = bench.runner(1)
    bench.ends_well(1)
    assert old.quits == 0
    bench.ends_well(2)
    assert old.quits == 1
    with heard() as names:
        old.dies(exit_code=0)
    assert names == ["runner_stopped"]
    assert bench.outcomes() == ["completed", "completed"]


async def test_a_retiring_runner_serves_its_attempts_as_before():
    """Only new ones go to others: saves, reports, stops, recalls and deaths stay its own."""
    bench = await Worn(size=1, max_jobs=2).ready()
    first = bench.first()
    first.waits = True
    bench.place(shared(1), shared(2), shared(3))
    assert first.retiring is not None
    first.begins(1, 2)
    first.says(SaveRequest(1, 1, 1, "1"))
    first.says(StepRequest(1, 2, "cover", "1"))
    first.says(Reported(1, Progress(fraction=0.5)))
    assert (bench.checkpoints.saves, bench.checkpoints.reports) == ([1], [1])
    assert [each.name for each in bench.checkpoints.steps] == ["cover"]
    assert not bench.pool.control.recall("paused")
    assert first.sent[-1] == Recall([1, 2, 3])
    first.says(Recalled([3]))
    first.says(AttemptsEnded([End(3, RELEASED)]))
    bench.pool.control.stop(1, "cancel")
    assert first.sent[-1] == Stop(1, "cancel")
    assert first.quits == 0
    bench.place(shared(4))
    assert first.tokens == {1, 2}
    first.dies(exit_code=1)
    assert {end.token: (end.outcome, end.state) for end in bench.ends()} == {
        3: ("released", "queued"),
        1: ("bystander", "cancelled"),
        2: ("bystander", "queued"),
    }


async def test_a_retiring_runner_that_does_not_end_is_killed():
    bench = await Worn(size=1, max_jobs=2).ready()
    bench.place(shared(1), shared(2))
    old = bench.runner(1)
    bench.ends_well(1)
    bench.ends_well(2)
    asked_at = bench.clock.boot()
    while bench.clock.boot() < asked_at + QUIT_SECONDS:
        assert old.kills == []
        bench.clock.advance(LOOK_SECONDS)
        await bench.pool.keeper.run_once()
    await asyncio.sleep(0)  # it is asked for its stacks, in a task
    assert (len(old.kills), old.kill_reason) == (1, "recycled")
    assert old.quits == 1


@each_case("limits", [{"max_rss": LIMIT}, {"max_jobs": 2}])
async def test_a_worn_runner_keeps_its_place_while_it_runs_a_plain_function(limits):
    """As many plain functions run as the pool has runners, and no more where memory is short."""
    bench = await Worn(size=1, **limits).ready()
    bench.place(own(1))
    bench.ends_well(1)
    bench.place(own(2))
    old = bench.runner(2)
    await bench.weighs(old, LIMIT + 1)
    bench.place(own(3))
    assert [runner.tokens for runner in bench.runners] == [{2}, set()], "the third one waits"
    bench.ends_well(2)
    assert (old.retiring, old.quits) == (next(iter(limits)).replace("jobs", "jobs_per_runner"), 1)
    assert bench.runner(3) is not old


async def test_long_jobs_delay_no_replacement_and_retiring_runners_are_bounded():
    bench = await Worn(size=1, max_jobs=2).ready()
    for token in range(1, 6):
        for runner in bench.runners:
            runner.taken = runner.taken or 1
        bench.place(shared(token))
        await bench.pool.keeper.run_once()
        for runner in bench.runners:
            if not runner.ready:
                runner.greets(own=True, shared=False)
    retiring = [runner for runner in bench.runners if runner.retiring]
    assert len(retiring) == RETIRING_PER_RUNNER
    assert all(runner.tokens for runner in retiring)
    assert len(bench.runners) == RETIRING_PER_RUNNER + 2
    assert bench.at_work() == {bench.runner(5).pid}, "the bound is reached: it goes on"
    assert bench.outcomes() == []


async def test_recycling_is_reported():
    said: list[dict[str, object]] = []
    end = events.subscribe(lambda name, f: said.append(f) if name == "runner_recycled" else None)
    bench = await Worn(size=1, max_jobs=2).ready()
    bench.place(shared(1), shared(2))
    end()
    (fields,) = said
    assert fields["reason"] == "max_jobs_per_runner"
    assert fields["attempts"] == 2
    assert fields["pid"] == bench.runner(1).pid


async def test_a_dying_spare_does_not_count_as_ready():
    bench = await Worn(size=1, max_jobs=2).ready()
    first = bench.first()
    spare = next(runner for runner in bench.runners if runner is not first)
    spare.gone = True
    bench.place(shared(1), shared(2))
    assert first.retiring is None


async def test_a_runner_for_one_job_is_replaced_after_it_and_not_before():
    """Also where no spare is ready: another attempt waits."""
    bench = await Worn(size=1, concurrency=1, max_jobs=1).ready()
    first, spare = bench.runners
    spare.gone = True
    bench.place(shared(1))
    assert first.retiring is None, "nor does the spare begin another job meanwhile"
    bench.place(shared(2))
    bench.ends_well(1)
    assert (first.quits, first.tokens) == (1, set())


# ------------------------------------------------------------------------------ above so much


async def test_a_runner_above_its_limit_gets_no_more_attempts():
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    bench.place(shared(1))
    old = bench.runner(1)
    await bench.weighs(old, LIMIT)
    assert old.retiring is None
    await bench.weighs(old, LIMIT + 1)
    assert old.retiring == "max_rss"
    assert old.kill_reason is None
    bench.place(shared(2))
    assert bench.runner(2) is not old
    bench.ends_well(1)
    assert old.quits == 1


async def test_an_unused_runner_is_not_recycled_at_any_size():
    """A limit below what the application needs must not replace runners forever."""
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    await bench.weighs(bench.first(), LIMIT * 9)
    assert [(runner.retiring, runner.kill_reason) for runner in bench.runners] == [(None, None)] * 2


async def test_a_runner_far_above_its_limit_is_killed():
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    bench.place(own(1))
    runner = bench.runner(1)
    await bench.weighs(runner, LIMIT * FAR_ABOVE + 1)
    await bench.clock.run_for(1)
    assert runner.kill_reason == "max_rss"
    runner.dies(signal="SIGKILL")
    (end,) = bench.ends()
    assert (end.outcome, end.failures) == ("out_of_memory", 1)
    assert end.crash is not None
    assert end.crash.memory is not None
    assert (end.crash.memory.rss_bytes, end.crash.memory.limit_bytes) == (1501, LIMIT)
    assert "with 1.5 KiB, above 1.5 times its max_rss of 1000 B" in end.message


async def test_memory_taken_beside_other_attempts_is_blamed_on_none():
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    bench.place(shared(1), shared(2))
    runner = bench.runner(1)
    await bench.weighs(runner, LIMIT * FAR_ABOVE + 1)
    runner.dies(signal="SIGKILL")
    ends = bench.ends()
    assert [end.outcome for end in ends] == ["bystander"] * 2
    assert [end.failures for end in ends] == [0, 0]


async def test_what_an_attempt_has_left_behind_is_seen_before_the_next_one_begins(monkeypatch):
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    bench.place(own(1))
    old = bench.runner(1)
    left = {old.pid: LIMIT + 1}
    monkeypatch.setattr(recycling, "read_resident_of", lambda pid: left.get(pid, 0))
    bench.ends_well(1)
    assert (old.retiring, old.quits) == ("max_rss", 1), "between two looks"
    bench.place(own(2))
    assert bench.runner(2) is not old


@each_case("is_seen_light", [False, True])
async def test_an_attempt_is_charged_for_no_memory_that_another_has_left(is_seen_light):
    """As in a process of its own, which only the look weighs."""
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    bench.place(shared(1), shared(2))
    runner = bench.runner(1)
    await bench.weighs(runner, LIMIT)
    bench.ends_well(1)
    if is_seen_light:
        await bench.weighs(runner, LIMIT)
    await bench.weighs(runner, LIMIT * FAR_ABOVE + 1)
    await bench.clock.run_for(1)
    runner.dies(signal="SIGKILL")
    end = bench.ends()[-1]
    assert end.crash is not None
    if is_seen_light:
        assert (end.outcome, end.failures) == ("out_of_memory", 1)
        return
    assert (end.outcome, end.failures, end.crash.neighbours) == ("bystander", 0, [1])
    assert end.solo == 1, "it runs alone, and is charged if it was its own"


async def test_an_empty_runner_above_its_limit_leaves_however_many_others_do(monkeypatch):
    bench = await Worn(size=1, max_rss=LIMIT).ready()
    monkeypatch.setattr(recycling, "read_resident_of", lambda pid: LIMIT + 1)
    for token in range(1, RETIRING_PER_RUNNER + 1):
        bench.place(shared(token))
        await bench.weighs(bench.runner(token), LIMIT + 1)
        bench.runners[-1].greets(own=True, shared=False)
    bench.place(shared(9))
    last = bench.runner(9)
    assert last.retiring is None
    bench.ends_well(9)
    assert last.retiring == "max_rss"


async def test_a_limit_below_the_applications_own_size_ends_the_worker_with_an_error():
    bench = Worn(size=1, max_rss=LIMIT)
    await bench.pool.keeper.run_once()
    bench.runners[0].pid = os.getpid()
    bench.runners[0].greets(**{OWN: True})
    assert "set --max-rss well above that" in str(bench.owner.failures[0])


@each_case("limits", [{}, {"max_rss": LIMIT}, {"max_jobs": 1}])
async def test_memory_is_measured_only_with_a_limit(limits):
    bench = await Worn(**limits).ready()
    assert await bench.pool.keeper.run_once() == (LOOK_SECONDS if limits else None)


# --------------------------------------------------------------------- what the kernel has done


class Counter:
    """A memory cgroup, of which only the count of kills moves."""

    folder = "/sys/fs/cgroup/box"

    def __init__(self) -> None:
        self.count = 0

    def kills(self) -> int:
        return self.count

    def limit(self) -> int:
        return LIMIT

    def peak(self) -> int:
        return LIMIT


async def test_a_kill_by_the_kernel_is_distinguished_from_one_by_hand():
    counter = Counter()
    bench = await Worn(cgroup=counter).ready()
    bench.place(own(1), own(2))
    counter.count = 1
    bench.runner(1).dies(signal="SIGKILL")
    bench.runner(2).dies(signal="SIGKILL")
    assert bench.outcomes() == ["out_of_memory", "signalled"]


async def test_a_kill_by_the_worker_does_not_count_as_the_kernels():
    counter = Counter()
    bench = await Worn(cgroup=counter).ready()
    bench.place(own(1), own(2))
    bench.pool.control.stop(1, "timeout")
    bench.pool.control.kill(1)
    counter.count = 1
    bench.runner(1).dies(signal="SIGKILL")
    bench.runner(2).dies(signal="SIGKILL")
    first, second = bench.ends()
    assert first.crash is not None
    assert (first.outcome, first.crash.memory) == ("timeout", None)
    assert second.outcome == "out_of_memory", "the count explains the other death"
