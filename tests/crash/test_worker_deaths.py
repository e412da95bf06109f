"""A worker dies, is stopped, or is killed without its runners."""

from __future__ import annotations

import signal

import pytest

from harness.scene import BY_LEASE, Scene, boot
from outlast.model.job import State
from outlast.store.rows import JobFilter
from tests.crash.kit import goes_on

SHORT = ("--heartbeat", "1", "--lease", "3")


async def test_a_killed_worker_tree_s_job_starts_on_another_long_before_its_lease_ends(
    stage: Scene,
) -> None:
    holder = await stage.worker()
    job = await stage.enqueue("counts")
    await stage.started(1)
    await stage.worker()
    killed_at = boot()
    holder.kill_tree()
    second = await stage.started(2)
    assert second["at"] - killed_at < BY_LEASE
    assert second["still_alive"] == []
    (closed,) = await stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("lost_worker", "loss")
    assert closed.crash is not None
    assert closed.crash.progress is not None


@pytest.mark.short
async def test_the_second_attempt_goes_on_from_the_checkpoint(stage: Scene) -> None:
    holder = await stage.worker()
    job = await stage.enqueue("counts")
    await stage.started(1)
    await goes_on(stage, job, 2)
    await stage.worker()
    holder.kill_tree()
    await stage.started(2)
    await goes_on(stage, job)
    stage.enough()
    row = await stage.ended(job)
    assert row.state is State.COMPLETED
    assert row.result is not None
    assert '"from":0' not in row.result
    assert row.losses == 0, "a checkpoint that advanced forgives the loss"


@pytest.mark.parametrize("plainly", [True, False])
async def test_the_second_attempt_gets_the_values_of_the_steps(stage: Scene, plainly: bool) -> None:
    holder = await stage.worker()
    job = await stage.enqueue("draws_then_hangs", plainly=plainly)
    await stage.noted(1, "kept")
    await stage.worker()
    holder.kill_tree()
    row = await stage.ended(job)
    assert (row.state, row.result) == (State.COMPLETED, '"cover of attempt 1, back of attempt 1"')
    assert [entry["what"] for entry in await stage.noted(2, "drew")] == ["cover", "back"]
    assert row.losses == 1, "the steps were kept before the loss"


@pytest.mark.parametrize(
    ("each", "count"),
    [(100, 3), pytest.param(1_000, 10, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
async def test_a_parent_that_is_killed_after_each_spawn_has_each_child_once(
    stage: Scene, each: int, count: int
) -> None:
    await stage.worker()
    job = await stage.enqueue("spawns_and_is_killed", each=each, count=count)
    row = await stage.ended(job, deadline=800.0)
    total = each * count
    assert (row.state, row.result) == (State.COMPLETED, str(sum(range(total))))
    assert row.attempt_count > count, "each but the last was killed"
    children = await stage.store.inspector.children(job, 1, total + 1)
    assert len({child.id for child in children}) == len(children) == total
    assert len(await stage.store.inspector.jobs(JobFilter(limit=total + 9))) == total + 1


@pytest.mark.slow
@pytest.mark.short("silence")
async def test_without_lock_files_a_dead_worker_is_found_by_its_silence(
    stage: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    holder = await stage.worker(*SHORT, "--no-presence")
    job = await stage.enqueue("first_hangs")
    await stage.started(1)
    for lock in stage.lock_files():
        lock.unlink()  # as another host would see it: nothing
    await stage.worker(*SHORT)
    killed_at = boot()
    holder.kill_tree()
    second = await stage.started(2)
    assert second["at"] - killed_at >= 3 - 1 - 0.5, "not before its lease, less a beat, was over"
    (closed,) = await stage.attempts(job)
    assert closed.outcome == "lost_worker"


@pytest.mark.parametrize("task", ["first_hangs_in_python", "first_hangs_in_c"])
async def test_killing_only_the_worker_process_ends_its_runners(stage: Scene, task: str) -> None:
    holder = await stage.worker()
    job = await stage.enqueue(task)
    await stage.started(1)
    await stage.worker()
    killed_at = boot()
    holder.signal(signal.SIGKILL)
    holder.process.wait()
    second = await stage.started(2)
    assert second["still_alive"] == [], "runner and grandchild are gone before the second start"
    assert second["at"] - killed_at < BY_LEASE
    assert (await stage.ended(job)).state is State.COMPLETED


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [pytest.param("first_hangs_in_python", marks=pytest.mark.short), "first_hangs_in_c"]
)
async def test_stopping_only_the_worker_process_ends_its_runners_before_its_lease(
    stage: Scene, task: str
) -> None:
    holder = await stage.worker(*SHORT)
    job = await stage.enqueue(task)
    await stage.started(1)
    await stage.worker(*SHORT)
    await stage.stop(holder.signal)
    second = await stage.started(2)
    assert second["still_alive"] == []
    row = await stage.ended(job)
    assert row.state is State.COMPLETED
    assert row.result == '"attempt 2"'


@pytest.mark.short
async def test_a_stopped_and_resumed_worker_writes_nothing_stale_and_works_on(stage: Scene) -> None:
    holder = await stage.worker(*SHORT)
    job = await stage.enqueue("first_hangs")
    await stage.started(1)
    other = await stage.worker(*SHORT)
    await stage.stop(holder.signal_tree)
    await stage.started(2)
    row = await stage.ended(job)
    assert row.result == '"attempt 2"'
    other.signal(signal.SIGTERM)
    other.process.wait()
    holder.signal_tree(signal.SIGCONT)

    async def registered_again() -> bool:
        rows = await stage.store.inspector.workers()
        return sum(each.pid == holder.pid for each in rows) == 2

    await stage.until(registered_again, "a second registration of the first worker")
    again = await stage.job(job)
    assert (again.result, again.token, again.state) == (row.result, row.token, row.state)
    after = await stage.enqueue("noop", value=5)
    assert (await stage.ended(after)).result == "5"
    assert holder.process.poll() is None


async def test_sigterm_finishes_running_jobs_and_exits_cleanly(stage: Scene) -> None:
    worker = await stage.worker()
    job = await stage.enqueue("counts", upto=20)
    await stage.started(1)
    await worker.left(signal.SIGTERM)
    row = await stage.job(job)
    assert row.state is State.COMPLETED
    assert row.attempt_count == 1
    (registered,) = await stage.store.inspector.workers()
    assert registered.status == "stopped"
    assert stage.lock_files() == []


async def test_jobs_that_outlast_a_drain_are_released_uncharged(stage: Scene) -> None:
    worker = await stage.worker("--runners", "2", "--drain-timeout", "0.3")
    job = await stage.enqueue("waits")
    deaf = await stage.enqueue("waits_deaf")

    await stage.noted(2)
    await worker.left(signal.SIGTERM)
    for each in (job, deaf):
        row = await stage.job(each)
        assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
        outcomes = {one.outcome for one in await stage.attempts(each)}
        assert outcomes == {"released"}, "once more where it was claimed before a runner was idle"


async def test_the_worker_that_finds_a_death_counts_it_and_its_attempts(stage: Scene) -> None:
    holder = await stage.worker()
    job = await stage.enqueue("first_hangs")
    await stage.started(1)
    finder = await stage.worker()
    holder.kill_tree()
    await stage.ended(job)
    finder.signal(signal.SIGTERM)  # what it has counted is written as it leaves

    async def counts() -> list[tuple[str, str, int]]:
        totals = await stage.store.inspector.totals()
        shown = {"attempt": lambda one: one.outcome, "death": lambda one: "of any cause"}
        return sorted((each.kind, shown[each.kind](each), each.jobs) for each in totals)

    wanted = [
        ("attempt", "completed", 1),
        ("attempt", "lost_worker", 1),
        ("death", "of any cause", 1),
    ]

    async def told() -> bool:
        return await counts() == wanted

    await stage.until(told, "what was counted")
