"""The task that runs commands: their environment, and how it judges their exit codes."""

from __future__ import annotations

import os

import pytest

from outlast.client.awaiting import running
from outlast.errors import Snooze
from outlast.runner import channel, interruptions
from outlast.runner.shell import task
from outlast.runner.shell.command import CommandFailed
from tests.cases import each_case
from tests.unit.client.test_attempt import FakeLink, attempt_of


@pytest.fixture(autouse=True)
def _stdout_of_the_runner(capfd):
    """What commands write goes to descriptor 1."""


async def run(script: str, **options):
    running.set(attempt_of(FakeLink(), **options))  # each test has a context of its own
    return await task.command(["sh", "-c", script])


def test_a_commands_environment_is_of_its_own_attempt_not_an_outer_one(monkeypatch):
    monkeypatch.setenv("OUTLAST_CHECKPOINT", "of an outer job")
    monkeypatch.setenv("OUTLAST_TOKEN", "1")
    told = task.environment(attempt_of(FakeLink()), "@door")
    assert "OUTLAST_CHECKPOINT" not in told
    assert (told["OUTLAST_JOB_ID"], told["OUTLAST_TOKEN"]) == ("1", "70")
    assert (told["OUTLAST_SOCKET"], told["OUTLAST_TENANT"]) == ("@door", "acme")
    assert told["PATH"] == os.environ["PATH"]


@each_case(
    ("checkpoint", "text"),
    [('"page 4"', "page 4"), ('{"page":4}', '{"page": 4}'), ("7", "7"), ('""', "")],
)
def test_a_checkpoint_is_passed_as_text(checkpoint, text):
    told = task.environment(attempt_of(FakeLink(), checkpoint), "@door")
    assert told["OUTLAST_CHECKPOINT"] == text


async def test_an_exit_code_decides_the_end():
    assert await run("echo a; echo b") == {"exit_code": 0, "output": ["a", "b"]}
    with pytest.raises(CommandFailed, match="exited with 3") as failed:
        await run("echo a; exit 3")
    assert (failed.value.exit_code, failed.value.output) == (3, ["a"])
    with pytest.raises(CommandFailed, match="died of SIGSEGV") as failed:
        await run("kill -SEGV $$")
    assert (failed.value.exit_code, failed.value.signal) == (None, "SIGSEGV")


async def test_exit_code_75_waits_longer_each_time():
    with pytest.raises(Snooze, match="exited with 75") as again:
        await run("exit 75")  # at its third attempt
    assert again.value.seconds == 8.0


async def test_a_result_is_never_too_large_for_the_application():
    """Control characters take six bytes of JSON each."""
    result = await run(r"yes $(printf '\001\001\001') | head -n 1000", max_payload=1024)
    assert 5 < len(result["output"]) < 50
    assert result["output"][-1] == "\x01" * 3


def test_a_runner_without_a_worker_kills_itself_last(monkeypatch):
    kills: list[int] = []
    monkeypatch.setattr(channel, "kill_group", kills.append)
    monkeypatch.setattr(channel, "groups_of", lambda sids: {os.getpgrp(), 7})
    channel.end_with_worker()
    assert kills == [7, os.getpgrp()]


@pytest.mark.parametrize("script", ["exit 0", "exit 75", "exit 3"])
async def test_a_command_whose_runner_was_signalled_has_failed_by_any_exit_code(
    script, monkeypatch
):
    """No exit code tells one that has finished from one that has obeyed."""
    counts = iter([4, 5])
    monkeypatch.setattr(interruptions, "count_interruptions", lambda: next(counts))
    with pytest.raises(CommandFailed, match="exited with"):
        await run(script)
