"""``outlast enqueue``, ``cancel`` and ``requeue``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from outlast.cli.bulk import DryRun, act_on_all, tell_each
from outlast.cli.connect import closing, exists, me, on_store
from outlast.cli.loop import run_loop
from outlast.cli.options import (
    ALL_BUT_STATE,
    Application,
    AppUrl,
    FromScratch,
    JobIds,
    Json,
    Options,
    Placing,
    SomeIds,
    Url,
    naming_flags,
    option,
)
from outlast.cli.show import print_json
from outlast.errors import BadArguments, ConfigError, UsageError, text_of
from outlast.insight.acting import ACTS, Verb, act_on_jobs
from outlast.insight.filters import AskedJobs
from outlast.insight.resource import SCHEMA
from outlast.store.backend import describe_place
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from outlast.client.app import App
    from outlast.client.job import Job
    from outlast.client.task import Task

UNFINISHED = [name for name in ALL_BUT_STATE if name != "group"]  # filters of jobs to cancel
QUOTED_MAX = 60  # characters of an argument that is shown again as JSON
_NAMED = re.compile(r"([^\W\d]\w*)=(.*)", re.DOTALL)


class CalledTask(msgspec.Struct, Options, kw_only=True):
    """A call of a task."""

    app: Application
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")]
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="JSON…", help="Its arguments: JSON, or NAME=JSON.")
    ] = None

    def find(self, url: str | None = None) -> tuple[App, Task[..., Any], list[Any], dict[str, Any]]:
        """Import the application, to be used with the store at ``url``; return it, the task, and
        the arguments by position and by name."""
        from outlast.cli.application import load

        application = load(self.app)
        if url is not None:
            application.url = url
        found = application.find(self.task)
        return application, found, *arguments_for(found, self.arguments or [])


def enqueue(
    called: CalledTask,
    *,
    url: AppUrl = None,
    queue: Annotated[
        str | None, option("--queue", "NAME", "The queue. Default: the task's own.")
    ] = None,
    label: Annotated[
        list[str] | None, option("--label", "NAME", "A name to find it by; may be repeated.")
    ] = None,
    placing: Placing,
    json: Json = False,
) -> None:
    """Enqueue one call of a task.

    Each argument is JSON, given by position or as NAME=JSON; a text needs JSON quotes inside your
    shell's quotes. A single JSON array or object holds all arguments, unless the task takes it as
    its one argument. The call is checked against the task's signature before it is stored. Put an
    argument that begins with a dash after --.

    Examples:
        outlast enqueue shop.jobs:app mail '"ada@example.org"'
        outlast enqueue shop.jobs:app render '"Emma"' pages=30 --delay 15m
        outlast enqueue shop.jobs:app render '{"book": "Emma", "pages": 30}'
        outlast enqueue shop.jobs:app crawl '"https://example.org/"' --limit-key host=example.org
        outlast enqueue shop.jobs:app print_book '"Emma"' --after 17,18
        outlast enqueue shop.jobs:app adjust -- -5
    """
    application, found, positional, named = called.find(url)
    placement = {"queue": queue, "labels": label or None, **placing.read()}
    made = not exists(application.url)
    stored = run_loop(lambda: store_call(application, found, placement, *positional, **named))
    tell_enqueued(stored, application.url, placement, made=made, json=json)


async def store_call(
    app: App, task: Task[..., Any], placement: dict[str, Any], *args: Any, **kwargs: Any
) -> Job[Any]:
    """Enqueue a call of a task, and close the application."""
    with naming_flags(placement):
        placed = task.using(**placement)
    async with closing(app):
        return await placed.enqueue(*args, **kwargs)


def tell_enqueued(
    stored: Job[Any], url: str, placement: Mapping[str, Any], *, made: bool, json: bool
) -> None:
    """Print the enqueued job, or that none was enqueued because the key is taken. ``placement``:
    the options of the call."""
    if json:
        found = {"id": stored.id, "task": stored.task, "created": stored.created}
        found["same_args"] = stored.same_args
        print_json({"schema": SCHEMA, **found})
        return
    where = f" in the new file {describe_place(url)}" if made else ""
    if stored.created:
        print(f"job {stored.id} enqueued{where}")
    else:
        other = "" if stored.same_args else ", with other arguments,"
        or_new = "" if placement["once_per"] is None else ", or was enqueued in this window"
        has = f"has the key {placement['key']!r}{other} and is unfinished{or_new}"
        print(f"job {stored.id} {has}: nothing was enqueued")


def arguments_for(task: Task[..., Any], texts: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments, given one by one or all in one array or object, which
    counts as all arguments unless the task can take it as its one argument. UsageError if a text is
    not JSON."""
    positional, named = arguments_of(texts)
    if named or len(positional) != 1 or _fits(task, positional, {}):
        return positional, named
    (all_of_them,) = positional
    if isinstance(all_of_them, list) and _fits(task, all_of_them, {}):
        return all_of_them, {}
    if isinstance(all_of_them, dict) and _fits(task, [], all_of_them):
        return [], all_of_them
    return positional, named  # the call reports what does not fit


def _fits(task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> bool:
    try:
        task.call(*args, **kwargs)
    except BadArguments:
        return False
    except ConfigError:  # they fit; only the real call has the tenant or the key that a limit needs
        return True
    return True


def arguments_of(texts: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments. Raises UsageError if one is not JSON."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        if match is None:
            if named:
                raise UsageError(f"{text!r} comes after NAME=JSON: put it first, or name it")
            positional.append(value_of(text))
        elif match[1] in named:
            raise UsageError(f"the argument {match[1]!r} is given twice")
        else:
            named[match[1]] = value_of(match[2])
    return positional, named


def value_of(text: str) -> Any:
    """Return the value of a JSON text; UsageError, with what to write instead, for other texts."""
    try:
        return msgspec.json.decode(text.encode("utf-8"))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        is_text = not text.lstrip().startswith(("{", "["))
        hint = f"\na text needs JSON quotes as well: {_quoted(text)}" if is_text else ""
        raise UsageError(f"{text!r} is not JSON ({text_of(error)}){hint}") from error


def check_json(text: str) -> str:
    """Return JSON as it is stored; UsageError for other texts."""
    return msgspec.json.encode(value_of(text)).decode()


def _quoted(text: str) -> str:
    """Return a JSON text quoted for a shell: this one if it is short and plain, else an example."""
    plain = len(text) <= QUOTED_MAX and text.isprintable()
    return shlex.quote(msgspec.json.encode(text if plain else "a text").decode())


def cancel(
    job_ids: SomeIds = None,
    *,
    asked: Annotated[AskedJobs, UNFINISHED],
    state: Annotated[
        str | None,
        option(
            "--state", "STATE", "With a filter: queued jobs (the default), blocked or running ones."
        ),
    ] = None,
    dry_run: DryRun = False,
    url: Url = None,
) -> None:
    """Cancel jobs, by number or by --task, --queue, --tenant and --label.

    A queued job is cancelled at once. A running one is asked to stop, and is cancelled once it has
    stopped; if it completes first, it stays completed. The exit code is 1 if one of them is unknown
    or has ended; the others are cancelled.

    With a filter, all matching queued jobs are cancelled, in steps of 500; with --state blocked,
    jobs that wait for others, such as their children; with --state running, the running ones.
    --dry-run counts them and shows the newest. If the command is interrupted, `outlast actions
    resume` continues its work.

    Examples:
        outlast cancel 17 18
        outlast cancel --label sweep-1 --dry-run
        outlast cancel --queue mail --state running
    """
    if bool(job_ids) == (asked != AskedJobs()):
        raise UsageError("name the jobs: by ID…, or by --task, --queue, --tenant and --label")
    if job_ids is None:
        if state not in (None, *ACTS[Verb.CANCEL].states):
            raise UsageError(f"--state {state!r}: choose queued, blocked or running")
        asked = msgspec.structs.replace(asked, state=state)
        act_on_all(url, Verb.CANCEL, asked, dry_run=dry_run)
        return
    if state is not None or dry_run:
        raise UsageError("--state and --dry-run need a filter: leave out the job ids")
    act_on_named(url, Verb.CANCEL, job_ids)


def requeue(job_ids: JobIds, from_scratch: FromScratch = False, url: Url = None) -> None:
    """Revive dead or cancelled jobs.

    They get fresh budgets and continue from their last checkpoint. The exit code is 1 if one of
    them is unknown, or neither dead nor cancelled; the others are requeued.

    Examples:
        outlast requeue 17
        outlast requeue 17 18 --from-scratch
    """
    act_on_named(url, Verb.REQUEUE, job_ids, from_scratch=from_scratch)


def act_on_named(
    url: str | None, verb: Verb, job_ids: list[int], *, from_scratch: bool = False
) -> None:
    """Act on named jobs, and print the effect on each."""
    ids = list(dict.fromkeys(job_ids))

    async def work(store: Store) -> None:
        await tell_each(store, act_on_jobs(store, verb, ids, me(), from_scratch=from_scratch))

    on_store(url, work)
