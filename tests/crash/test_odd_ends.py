"""Whatever a task has done to its runner, its end is told: else its job would run for ever."""

from __future__ import annotations

from pathlib import Path

from harness.scene import Scene
from outlast.model.job import State

ODD = {"OUTLAST_TEST_APP": "tests.crash.odd_ends:app"}


async def test_a_variable_whose_name_is_no_text_keeps_no_end_back(sqlite_stage: Scene) -> None:
    stage = sqlite_stage
    worker = await stage.worker("--runners", "1", "--log-format", "json", env=ODD)
    row = await stage.ended(await stage.enqueue("sets_a_variable_that_is_no_text"))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    told = await stage.told(worker, "runner_restored")
    assert told["changes"] == ["variable NO_TEXT_\ufffd"]


async def test_output_that_cannot_be_written_keeps_no_end_back(
    sqlite_stage: Scene, tmp_path: Path
) -> None:
    """Beside another one: alone, nothing but the descriptor would be set back first."""
    stage, flag = sqlite_stage, tmp_path / "flag"
    await stage.worker("--runners", "1", env=ODD)
    other = await stage.enqueue("waits_beside", flag=str(flag))
    row = await stage.ended(await stage.enqueue("prints_into_a_pipe_without_a_reader"))
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    flag.touch()
    row = await stage.ended(other)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
