"""The end of an attempt is reported also where its task has damaged the runner."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.scene import DEADLINE, Scene
from outlast.model.job import ALONE_IN_RUNNER, State
from tests.crash import odd_ends
from tests.crash.kit import IMPATIENT

ODD = {"OUTLAST_TEST_APP": "tests.crash.odd_ends:app"}


async def test_an_environment_name_that_is_not_utf8_does_not_block_the_end(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    worker = await stage.worker(env=ODD)
    row = await stage.ended(await stage.enqueue("sets_a_variable_that_is_no_text"))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    told = await stage.told(worker, "runner_restored")
    assert told["changes"] == ["variable NO_TEXT_\ufffd"]


async def test_output_that_cannot_be_written_does_not_block_the_end(
    sqlite_stage: Scene, tmp_path: Path
) -> None:
    """Beside another attempt: for a single one, the descriptor would be restored first."""
    stage, flag = sqlite_stage, tmp_path / "flag"
    await stage.worker(env=ODD)
    other = await stage.enqueue("waits_beside", flag=str(flag))
    row = await stage.ended(await stage.enqueue("prints_into_a_pipe_without_a_reader"))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    flag.touch()
    row = await stage.ended(other)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)


async def test_a_child_that_a_task_has_forked_ends_at_a_save_and_by_sigterm(
    sqlite_stage: Scene,
) -> None:
    """It had waited without end for an answer that the runner's own thread had read; and with the
    handler of its runner it ignored the signal by which a pool ends its processes."""
    stage = sqlite_stage
    worker = await stage.worker(env=ODD)
    terminated = await stage.enqueue("terminates_a_child", patience=DEADLINE / 2)
    saves = await stage.enqueue("saves_in_a_child")
    assert (await stage.ended(terminated)).result == str(-signal.SIGTERM)
    assert (await stage.ended(saves)).result == "1"
    assert "a child process of the task cannot save or report" in worker.log.read_text()


@pytest.mark.parametrize("hooks", ["", "_under_hooks"])
@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("leaves_a_transaction_open", []),
        ("leaves_a_transaction_open_in_the_loop", []),
        ("leaves_a_transaction_open_in_a_batch", [1]),
        ("completes_with_a_transaction_open", []),
    ],
)
async def test_no_ended_task_leaves_a_transaction_open_on_the_queues_file(
    sqlite_stage: Scene, name: str, items: list[int], hooks: str
) -> None:
    """Its sqlite3 connection refers to itself, and kept the file locked for all until a chance
    garbage collection in an idle runner."""
    stage = sqlite_stage
    await stage.worker(env={"OUTLAST_TEST_APP": f"tests.crash.odd_ends{hooks}:app"})
    (job,) = await stage.store.enqueue([getattr(odd_ends, name).call(*items).job])
    ends = State.COMPLETED if name.startswith("completes") else State.DEAD
    assert (await stage.ended(job.job_id)).state is ends


@pytest.mark.parametrize("beside", [False, True], ids=["empty", "with another attempt"])
async def test_a_runner_that_keeps_a_transaction_open_on_the_queues_file_is_replaced(
    sqlite_stage: Scene, tmp_path: Path, beside: bool
) -> None:
    """A connection of the task's module is never garbage: no end was written, no job claimed. The
    other attempt may hold the transaction itself, and so goes on alone."""
    stage, flag = sqlite_stage, tmp_path / "flag"
    worker = await stage.worker("--heartbeat", "1", "--lease", "9", env=ODD | IMPATIENT)
    other = await stage.enqueue("waits_beside", flag=str(flag)) if beside else 0
    if beside:
        await stage.in_state(other, State.RUNNING)
    job_id = await stage.enqueue("keeps_a_transaction_open")
    row = await stage.ended(job_id)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    told = await stage.told(worker, "transaction_left_open")
    assert told["job_id"] == job_id
    if beside:
        (closed,) = await stage.tried(other)
        assert (closed.outcome, closed.charge) == ("bystander", "loss")
        assert (await stage.job(other)).solo == ALONE_IN_RUNNER
        flag.touch()
        assert (await stage.ended(other)).state is State.COMPLETED


async def test_an_attempt_that_saves_in_its_own_transaction_on_the_queues_file_is_ended(
    sqlite_stage: Scene,
) -> None:
    """Its save waited for its own lock, and with it all writers of the file, without end."""
    stage = sqlite_stage
    await stage.worker("--heartbeat", "1", "--lease", "9", env=ODD | IMPATIENT)
    row = await stage.ended(await stage.enqueue("saves_in_its_own_transaction"))
    (closed,) = await stage.attempts(row.id)
    assert (row.state, closed.charge) == (State.DEAD, "failure")
    assert closed.message.endswith("a transaction in it kept the file of the store locked")
