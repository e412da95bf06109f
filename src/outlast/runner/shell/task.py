"""Defines the task that runs commands, known only to runners of a worker with ``--shell``.

It is an ordinary task with a runner to itself: retries, limits, cancels, leases and dead letters
work as for every job. A command is asked to end with SIGTERM, and killed after ``cancel_grace``.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Unpack

from outlast.base.config import URL_VARIABLE, WAKEUP_VARIABLE
from outlast.base.credentials import without_secrets
from outlast.base.text import signal_name
from outlast.client.app import App
from outlast.client.attempt import Attempt, current
from outlast.client.task import Task
from outlast.client.task_options import TaskOptions
from outlast.errors import Snooze
from outlast.model.job import SHELL_TASK
from outlast.runner import interruptions
from outlast.runner.shell.command import Command, CommandFailed, start_command
from outlast.runner.shell.control_socket import ControlSocket

TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h: "the user is invited to retry"
PAUSE_FIRST, PAUSE_MAX = 2.0, 600.0  # seconds before the retry that a command requests
_DOUBLINGS_MAX = 60
_URLS = frozenset({URL_VARIABLE, WAKEUP_VARIABLE})
CANCEL_GRACE = 5.0  # seconds between SIGTERM and the kill
_OF_AN_ATTEMPT = frozenset({"OUTLAST_CHECKPOINT", "OUTLAST_TENANT"})  # unset if it has none
TAIL_PART = 8  # share of the largest result: JSON may write a byte as six

app = App()
"""An application without tasks, for a worker that runs nothing but commands."""


def add_to(app: App, **options: Unpack[TaskOptions]) -> Task[..., Any]:
    """Add the task that runs commands to ``app``; return it. Options as for ``@app.task``."""
    ours: TaskOptions = {"name": SHELL_TASK, "own_runner": True, "cancel_grace": CANCEL_GRACE}
    return app._register(command, {**ours, **options})  # noqa: SLF001


async def command(
    argv: list[str], cwd: str | None = None, output: str | None = None
) -> dict[str, Any]:
    """Run a command; return its exit code, which is 0, and the last lines of its output.

    ``cwd`` is the directory in which it runs, by default the worker's own; ``output`` is a file to
    which all its output is appended.
    """
    attempt = current()
    heard = interruptions.count_interruptions()
    async with ControlSocket(attempt) as control:
        env = environment(attempt, control.address)
        running = await start_command(argv, cwd=cwd, env=env, output=output)
        code, stopped, lines = await _end_of(running)
    was_signalled = interruptions.count_interruptions() != heard  # it may obey with exit code 0
    if stopped:
        raise CommandFailed("it was stopped", **_how(code), output=lines)
    if code == TEMPORARY and not was_signalled:
        raise _NotNow(_pause(attempt.number))
    if code != 0 or was_signalled:
        raise CommandFailed(f"the command {_said(code)}", **_how(code), output=lines)
    result = {"exit_code": 0, "output": _fitting(lines, attempt.max_payload // TAIL_PART)}
    return attempt.finish(result)  # it ended before it was asked to stop


async def _end_of(running: Command) -> tuple[int, bool, list[str]]:
    stopped = False
    try:
        code = await running.wait()
    except asyncio.CancelledError:
        stopped = not running.has_ended  # an end before the stop counts as an end
        if stopped:
            running.ask_to_end()
        code = await running.wait()
    finally:
        lines = await running.clear()
    return code, stopped, lines


def environment(attempt: Attempt, address: str) -> dict[str, str]:
    """Return the worker's own environment, with unusable URLs of the store and the messenger, and
    with the facts about its attempt that the command may know."""
    known = {
        "OUTLAST_JOB_ID": str(attempt.job_id),
        "OUTLAST_TOKEN": str(attempt.token),
        "OUTLAST_SOCKET": address,
    }
    if attempt.tenant is not None:
        known["OUTLAST_TENANT"] = attempt.tenant
    saved = attempt.checkpoint
    if saved is not None:
        known["OUTLAST_CHECKPOINT"] = saved if isinstance(saved, str) else json.dumps(saved)
    outer = {key: value for key, value in os.environ.items() if key not in _OF_AN_ATTEMPT}
    urls = {key: without_secrets(outer[key]) for key in _URLS & outer.keys()}
    return {**outer, **urls, **known}


class _NotNow(Snooze):
    """The command asked to be run again later."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.args = (f"the command exited with {TEMPORARY}: again in {seconds:g} s",)


def _pause(number: int) -> float:
    """Return the seconds before the next attempt; ``number`` may be ten thousand."""
    return min(PAUSE_MAX, PAUSE_FIRST * 2.0 ** min(number - 1, _DOUBLINGS_MAX))


def _said(code: int) -> str:
    return f"died of {signal_name(-code)}" if code < 0 else f"exited with {code}"


def _how(code: int) -> dict[str, Any]:
    return {"signal": signal_name(-code)} if code < 0 else {"exit_code": code}


def _fitting(lines: list[str], most: int) -> list[str]:
    """Return as many of the last lines as fit into that many bytes."""
    kept: list[str] = []
    for line in reversed(lines):
        most -= len(line.encode()) + 1
        if most < 0:
            break
        kept.append(line)
    return kept[::-1]
