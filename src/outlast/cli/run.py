"""``outlast run``: run any command as a job."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from outlast.base.config import check_name
from outlast.cli.connect import closing, exists
from outlast.cli.errors import NotSoError, say
from outlast.cli.jobs import tell_enqueued
from outlast.cli.loop import run_loop
from outlast.cli.options import (
    After,
    AfterEnded,
    Costs,
    Delay,
    Expires,
    Json,
    Keep,
    Key,
    LimitKeys,
    Owner,
    Priority,
    Url,
    flag,
    naming_flags,
    option,
    read_after_flags,
    read_limit_flags,
    span,
)
from outlast.cli.wait import end_of
from outlast.client.app import App
from outlast.client.job import Job
from outlast.client.limits import Limit, check_limits, make_limit_spec
from outlast.errors import ConfigError, JobNotFound, LimitNotFound, OutlastError, UsageError
from outlast.insight.limits import spec_text
from outlast.insight.queries import no_limit, read_one_limit
from outlast.model.limits import RUNNING_MAX, LimitSpec
from outlast.runner.shell.task import add_to as add_task
from outlast.store.limits import NewLimit


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
    limit: Annotated[
        list[str] | None,
        option(
            "--limit",
            "NAME[=N]",
            "A limit that it is under; with N, at most N such jobs run at once. May be repeated.",
        ),
    ] = None,
    limit_key: LimitKeys = None,
    cost: Costs = None,
    after: After = None,
    after_ended: AfterEnded = None,
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

    --limit NAME=N declares a limit over all workers, as app.limit(NAME, running=N) does in code.
    --limit NAME uses one that exists, declared here or by an application; such a limit may also
    have a rate, or a count for each tenant or key.

    --after 17 lets it wait for job 17 to complete; if that dies or is cancelled, so is it.
    --after-ended 17 runs it in any case.

    Examples:
        outlast run -- tar czf /backup/home.tgz /home
        outlast run --key nightly --timeout 1h --wait -- sh -c 'pg_dump shop | gzip > shop.gz'
        outlast run --limit encode=2 -- ffmpeg -i in.mov out.mp4
        outlast run --after 17 -- rsync out.mp4 media:
    """
    if wait and json:
        raise UsageError("--wait shows progress to people; --json is for programs: choose one")
    app = App(url)
    made = not exists(app.url)
    budgets: dict[str, Any] = {"timeout": timeout, "retries": retries}
    with naming_flags(budgets):
        task = add_task(app, **{name: each for name, each in budgets.items() if each is not None})
    limits = [_read_limit(each) for each in limit or []]
    placement = {
        "delay": delay,
        "expires": expires,
        "queue": queue,
        "priority": priority,
        "key": key,
        "tenant": tenant,
        "keep": keep,
        **read_limit_flags(limit_key, cost),
        **read_after_flags(after, after_ended),
    }
    arguments = {"argv": argv, "cwd": _absolute(cwd), "output": _absolute(output)}
    given = {name: value for name, value in arguments.items() if value is not None}
    with naming_flags(placement):
        placed = task.using(**placement)

    async def enqueue() -> Job[Any]:
        async with closing(app):
            task.limits = check_limits([await _find_limit(app, *each) for each in limits])
            return await placed.enqueue(**given)

    stored = run_loop(enqueue)
    with contextlib.redirect_stdout(sys.stderr if wait else sys.stdout):
        tell_enqueued(stored, app.url, key, made=made, json=json)
    return _wait(app, stored.id) if wait else None


def _read_limit(text: str) -> tuple[str, LimitSpec | None]:
    """Return a limit's name, and what it allows if that is declared here."""
    name, is_declared, count = text.partition("=")
    if not is_declared:
        return name, None
    try:
        return check_name("a limit's name", name), make_limit_spec({"running": int(count)})
    except (ConfigError, ValueError) as error:
        raise UsageError(
            f"--limit takes NAME, or NAME=N with a whole number up to {RUNNING_MAX:,}, not {text!r}"
        ) from error


async def _find_limit(app: App, name: str, spec: LimitSpec | None) -> Limit:
    """Return a limit of the store, which is declared first if it is declared here."""
    if spec is None and not exists(app.url):
        raise no_limit(name)
    store = await app.stores.store()
    try:
        known = (await read_one_limit(store, name))[0].declared
    except LimitNotFound:
        known = spec
    if known is None:
        raise no_limit(name)
    if spec not in (None, known):
        raise UsageError(
            f"the limit {name!r} is declared already: {spec_text(known)}. Use that by --limit"
            f" {name}, or change it for all: `outlast limits set {name} --running N`"
        )
    if spec is not None and not await store.declare_limits([NewLimit(name, spec)]):
        raise NotSoError(f"the limit {name!r} is being changed by another program: try again")
    return Limit(name, known, app.stores)


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
