"""``outlast run``: any command as a job."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from outlast.app import App
from outlast.cli.connect import closing, exists, run_loop
from outlast.cli.errors import say
from outlast.cli.jobs import tell_enqueued
from outlast.cli.options import Json, Url, command, with_flag
from outlast.cli.wait import end_of
from outlast.errors import ConfigError, UsageError
from outlast.job import Job
from outlast.runner.shell.task import add_to as add_task

_OPTIONS = ("delay", "queue", "priority", "key", "tenant", "timeout", "retries")


def add_to(group: typer.Typer) -> None:
    """Add the command."""
    behind = {"allow_interspersed_args": False}  # what follows the command is the command's
    command(group, "run", context_settings=behind)(run)


def run(
    argv: Annotated[list[str], typer.Argument(metavar="CMD ARG…", help="The command.")],
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Default: default.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Not twice while a job with it is unfinished."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", help="Seconds of one attempt.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="Failures that are forgiven: 3.")
    ] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="S", help="Seconds until it is due.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="-100 to 100, larger first.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Whose job it is.")
    ] = None,
    cwd: Annotated[
        str | None,
        typer.Option("--cwd", metavar="DIR", help="Where it runs. Default: where the worker does."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="Add all that it writes to this file."),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Show its progress, end with its code.", show_default=False),
    ] = False,
    url: Url = None,
    json: Json = False,
) -> int | None:
    """Run a command as a job, in a worker that was started with --shell.

    It is run as it is given, without a shell; for a pipe or a $variable say sh -c '…'. Exit code 0
    is success; 75 asks to be run again later; any other is a failure, as a death by a signal is:
    tried again with growing pauses, then a dead letter. DIR and FILE are of the worker's machine.
    With --wait, Ctrl-C ends the waiting; the job goes on.

    Examples:
        outlast run -- tar czf /backup/home.tgz /home
        outlast run --key nightly --timeout 3600 --wait -- sh -c 'pg_dump shop | gzip > shop.gz'
    """
    if wait and json:
        raise UsageError("--wait shows progress to people; --json is for programs: choose one")
    app = App(url)
    made = not exists(app.url)
    limits = {"timeout": timeout, "retries": retries}
    placement = {"delay": delay, "queue": queue, "priority": priority, "key": key, "tenant": tenant}
    arguments = {"argv": argv, "cwd": _absolute(cwd), "output": _absolute(output)}
    stored = run_loop(lambda: _enqueue(app, limits, placement, arguments))
    with contextlib.redirect_stdout(sys.stderr if wait else sys.stdout):
        tell_enqueued(stored, app.url, key, made=made, json=json)
    return _wait(app, stored.id) if wait else None


async def _enqueue(
    app: App, limits: dict[str, Any], placement: dict[str, Any], arguments: dict[str, Any]
) -> Job[Any]:
    try:
        given = {name: value for name, value in limits.items() if value is not None}
        placed = add_task(app, **given).using(**placement)
    except ConfigError as error:
        raise with_flag(error, _OPTIONS) from error
    async with closing(app):
        return await placed.enqueue(
            **{name: value for name, value in arguments.items() if value is not None}
        )


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _wait(app: App, job_id: int) -> int:
    """Show the job until it has ended; print its last lines; return its command's exit code."""
    try:
        ended = run_loop(lambda: end_of(app, job_id))
    except KeyboardInterrupt:
        say(f"job {job_id} goes on; `outlast cancel {job_id}` ends it")
        raise
    for line in ended.output:
        print(line)
    if ended.why:
        say(f"job {job_id} {ended.why}")
    return ended.code
