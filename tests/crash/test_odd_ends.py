"""The end of an attempt is reported also where its task has damaged the runner."""

from __future__ import annotations

from pathlib import Path

from harness.scene import Scene
from outlast.model.job import State

ODD = {"OUTLAST_TEST_APP": "tests.crash.odd_ends:app"}


async def test_an_environment_name_that_is_not_utf8_does_not_block_the_end(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    worker = await stage.worker("--runners", "1", "--log-format", "json", env=ODD)
    row = await stage.ended(await stage.enqueue("sets_a_variable_that_is_no_text"))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    told = await stage.told(worker, "runner_restored")
    assert told["changes"] == ["variable NO_TEXT_\ufffd"]


async def test_output_that_cannot_be_written_does_not_block_the_end(
    sqlite_stage: Scene, tmp_path: Path
) -> None:
    """Beside another attempt: for a single one, the descriptor would be restored first."""
    stage, flag = sqlite_stage, tmp_path / "flag"
    await stage.worker("--runners", "1", env=ODD)
    other = await stage.enqueue("waits_beside", flag=str(flag))
    row = await stage.ended(await stage.enqueue("prints_into_a_pipe_without_a_reader"))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    flag.touch()
    row = await stage.ended(other)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
