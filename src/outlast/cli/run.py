"""``outlast run``: run any command as a job."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from outlast.base.clock import SYSTEM
from outlast.base.config import absolute, check_name
from outlast.base.text import safe, shell_word
from outlast.cli.connect import closing, exists
from outlast.cli.errors import DONE, NOT_SO, Failed, say
from outlast.cli.jobs import tell_enqueued
from outlast.cli.loop import run_loop
from outlast.cli.options import Json, Placing, Url, flag, naming_flags, option, span
from outlast.cli.show import bar, word
from outlast.client.app import App
from outlast.client.job import Job
from outlast.client.limits import Limit, check_limits, make_limit_spec
from outlast.errors import ConfigError, JobNotFound, LimitNotFound, OutlastError, UsageError
from outlast.insight.facts import format_progress
from outlast.insight.limits import spec_text
from outlast.insight.queries import no_limit, read_one_limit, read_phase
from outlast.insight.row import plain
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import ENDED, State
from outlast.model.limits import RUNNING_MAX, LimitSpec
from outlast.runner.shell.task import add_to as add_task
from outlast.store.limits import NewLimit
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, StoredJob


def run(
    argv: Annotated[list[str], typer.Argument(metavar="CMD ARG…", help="The command.")],
    queue: Annotated[str | None, option("--queue", "NAME", "The queue. Default: default.")] = None,
    *,
    timeout: Annotated[
        float | None, span("--timeout", "End an attempt after this time, as in 1h. Default: never.")
    ] = None,
    retries: Annotated[
        int | None, option("--retries", "N", "Failures that are retried. Default: 3.")
    ] = None,
    placing: Placing,
    limit: Annotated[
        list[str] | None,
        option(
            "--limit",
            "NAME[=N]",
            "A limit that it is under; with N, at most N such jobs run at once. May be repeated.",
        ),
    ] = None,
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
    failure: the command is tried again with growing pauses, and the job is dead after the last
    retry. DIR and FILE are on the worker's machine. With --wait, Ctrl-C ends only the waiting; the
    job continues.

    --limit NAME=N declares a limit over all workers, as app.limit(NAME, running=N) does in code.
    --limit NAME uses an existing limit, declared here or by an application, which may also
    have a rate, or a count for each tenant or key.

    --after 17 makes it wait until job 17 completes; if that job dies or is cancelled, this one is
    cancelled. --after-ended 17 runs it in either case.

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
    placement = {"queue": queue, **placing.read()}
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
        tell_enqueued(stored, app.url, placement, made=made, json=json)
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
            f"the limit {name!r} is already declared: {spec_text(known)}. Use it with"
            f" `--limit {shell_word(name)}`, or change it for all:"
            f" `outlast limits set {shell_word(name)} --running N`"
        )
    if spec is not None and not await store.declare_limits([NewLimit(name, spec)]):
        raise Failed(f"the limit {name!r} is being changed by another program: try again")
    return Limit(name, known, app.stores)


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(absolute(path))


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


LOOK_SECONDS = 0.25
TIMED_OUT = 124  # the exit code of timeout(1)
SIGNALLED = 128  # plus the number of the signal, as a shell reports it
MESSAGE_MAX = 60


class JobEnd(msgspec.Struct, frozen=True):
    """How a job ended: an exit code, its last lines, and a message if it has failed."""

    code: int
    output: list[str]
    why: str | None = None


async def end_of(app: App, job_id: int) -> JobEnd:
    """Show on stderr how the job is doing until it has ended; return its end."""
    console = Console(stderr=True, highlight=False, markup=False)
    async with closing(app):
        with Live(console=console, auto_refresh=False, transient=True) as live:
            return await app.stores.ask(lambda store: _watch(store, job_id, live))


async def _watch(store: Store, job_id: int, live: Live) -> JobEnd:
    while True:
        row = await store.inspector.job(job_id)
        if row is None:
            raise JobNotFound(f"job {job_id} was deleted")
        if row.state in ENDED:
            return _end(row, await store.inspector.attempts(job_id))
        if live.console.is_terminal:
            live.update(_standing(row, await read_phase(store, row)), refresh=True)
        await SYSTEM.sleep(LOOK_SECONDS)


def _standing(row: StoredJob, phase: str) -> Text:
    parts = [Text(f"job {row.id}"), Text(phase, word(phase).style), bar(row.progress)]
    if phase == "unservable":
        parts.append(Text("no worker with --shell serves its queue", style="dim"))
    elif row.attempt_count > 1:
        parts.append(Text(f"attempt {row.attempt_count}", style="dim"))
    parts.append(Text(format_progress(row.progress, MESSAGE_MAX), style="dim"))
    return Text("  ").join(part for part in parts if part)


def _end(row: StoredJob, attempts: Sequence[AttemptRow]) -> JobEnd:
    if row.state is State.COMPLETED:
        result = plain(row.result)
        output = result.get("output") if isinstance(result, dict) else None
        lines = output if isinstance(output, list) else []
        return JobEnd(DONE, [safe(line) for line in lines if isinstance(line, str)])
    if row.state is State.CANCELLED:
        return JobEnd(NOT_SO, [], "was cancelled")
    last = attempts[-1] if attempts else None
    crash = last.crash if last is not None else None
    if last is None or crash is None:
        return JobEnd(NOT_SO, [], "is dead")
    output = [safe(line) for line in crash.output]
    how = "" if last.outcome == row.state else f", {last.outcome}"
    return JobEnd(_code(crash), output, f"is dead{how}: {last.message}")


def _code(crash: Crash) -> int:
    """Return the exit code that a shell would give; a command may exit with the same code."""
    if crash.kind is CrashKind.TIMEOUT:
        return TIMED_OUT
    if crash.signal is not None:
        return SIGNALLED + _number_of(crash.signal)
    return crash.exit_code or NOT_SO


def _number_of(name: str) -> int:
    """Return a signal's number; a signal without its own name is written ``signal 40``."""
    if unnamed := re.fullmatch(r"signal (\d{1,2})", name, re.ASCII):
        return int(unnamed[1])
    return signal.Signals.__members__.get(name, 0)
