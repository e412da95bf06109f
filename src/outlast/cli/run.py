"""``outlast run``: run any command as a job."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from outlast.cli.connect import exists
from outlast.cli.errors import say
from outlast.cli.jobs import store_call, tell_enqueued
from outlast.cli.loop import run_loop
from outlast.cli.options import (
    Delay,
    Expires,
    Json,
    Keep,
    Key,
    Owner,
    Priority,
    Url,
    flag,
    naming_flags,
    option,
    span,
)
from outlast.cli.wait import end_of
from outlast.client.app import App
from outlast.errors import JobNotFound, OutlastError, UsageError
from outlast.runner.shell.task import add_to as add_task


def run(
    argv: Annotated[list[str], typer.Argument(metavar="CMD ARG…", help="The command.")],
    queue: Annotated[str | None, option("--queue", "NAME", "The queue. Default: default.")] = None,
    key: Key = None,
    timeout: Annotated[
        float | None, span("--timeout", "End an attempt after this time, as in 1h. Default: never.")
    ] = None,
    retries: Annotated[
        int | None, option("--retries", "N", "Failures that are retried. Default: 3.")
    ] = None,
    delay: Delay = None,
    expires: Expires = None,
    priority: Priority = None,
    tenant: Owner = None,
    keep: Keep = None,
    cwd: Annotated[
        str | None, option("--cwd", "DIR", "The working directory. Default: the worker's.")
    ] = None,
    output: Annotated[
        str | None, option("--output", "FILE", "Append its output to this file.")
    ] = None,
    wait: Annotated[
        bool, flag("--wait", "Wait, show its progress, and return its exit code.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> int | None:
    """Run a command as a job, in a worker that was started with --shell.

    The command runs as given, without a shell; for a pipe or a $variable write sh -c '…'. Exit code
    0 is success, and 75 asks to be run again later. Any other code, and a death by a signal, is a
    failure: it is tried again with growing pauses, and is dead after the last retry. DIR and FILE
    are on the worker's machine. With --wait, Ctrl-C ends only the waiting; the job continues.

    Examples:
        outlast run -- tar czf /backup/home.tgz /home
        outlast run --key nightly --timeout 1h --wait -- sh -c 'pg_dump shop | gzip > shop.gz'
    """
    if wait and json:
        raise UsageError("--wait shows progress to people; --json is for programs: choose one")
    app = App(url)
    made = not exists(app.url)
    limits: dict[str, Any] = {"timeout": timeout, "retries": retries}
    with naming_flags(limits):
        task = add_task(app, **{name: value for name, value in limits.items() if value is not None})
    placement = {
        "delay": delay,
        "expires": expires,
        "queue": queue,
        "priority": priority,
        "key": key,
        "tenant": tenant,
        "keep": keep,
    }
    arguments = {"argv": argv, "cwd": _absolute(cwd), "output": _absolute(output)}
    given = {name: value for name, value in arguments.items() if value is not None}
    stored = run_loop(lambda: store_call(app, task, placement, **given))
    with contextlib.redirect_stdout(sys.stderr if wait else sys.stdout):
        tell_enqueued(stored, app.url, key, made=made, json=json)
    return _wait(app, stored.id) if wait else None


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _wait(app: App, job_id: int) -> int:
    """Show the job until it has ended; print its last lines; return its command's exit code."""
    try:
        ended = run_loop(lambda: end_of(app, job_id))
    except KeyboardInterrupt:
        say(f"job {job_id} continues; `outlast cancel {job_id}` ends it")
        raise
    except JobNotFound:
        raise
    except OutlastError:  # the store cannot be read: that ends no job
        say(f"job {job_id} continues; `outlast job {job_id}` shows it")
        raise
    for line in ended.output:
        print(line)
    if ended.why:
        say(f"job {job_id} {ended.why}")
    return ended.code
