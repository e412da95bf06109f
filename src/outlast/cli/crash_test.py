"""``outlast crash-test``: one call of a task under a crash at each of its points."""

from __future__ import annotations

from typing import Annotated, Any

from outlast.base.text import count_of
from outlast.cli.errors import Failed, say
from outlast.cli.jobs import CalledTask, value_of
from outlast.cli.options import Json, LimitKeys, Owner, flag, option, read_limit_flags
from outlast.cli.show import print_json
from outlast.client.task import Call
from outlast.errors import UsageError


def crash_test(
    called: CalledTask,
    *,
    tenant: Owner = None,
    limit_key: LimitKeys = None,
    event: Annotated[
        list[str] | None, option("--event", "NAME=JSON", "An event that was sent before.")
    ] = None,
    copy: Annotated[
        list[str] | None, option("--copy", "PATH", "A file or folder that the task finds.")
    ] = None,
    allow_connect: Annotated[
        list[int] | None,
        option("--allow-connect", "PORT", "It may connect to this port of any host.", min=1),
    ] = None,
    allow_command: Annotated[
        list[str] | None, option("--allow-command", "NAME", "The task may start this program.")
    ] = None,
    reset: Annotated[str | None, option("--reset", "COMMAND", "Runs before each run.")] = None,
    compare: Annotated[
        str | None,
        option("--compare", "COMMAND", "Runs after each run; prints the state to compare."),
    ] = None,
    test_store: Annotated[
        bool, flag("--test-store", "The application's own store is one for tests.")
    ] = False,
    no_sandbox: Annotated[
        bool, flag("--no-sandbox", "Confine nothing: all that the task does is real.")
    ] = False,
    point: Annotated[
        int | None, option("--point", "N", "Only crashes at this point; 0: at the end.", min=0)
    ] = None,
    points_max: Annotated[int, option("--points-max", "N", "Try at most N points.", min=1)] = 100,
    seed: Annotated[
        int, option("--seed", "N", "Seeds random in each run, and the choice of points.", min=0)
    ] = 0,
    json: Json = False,
) -> None:
    """Find out what a crash does to a task: run a call, then again with a crash at each point.

    A point is where the task is about to do something that lasts: save, report, begin or keep a
    step, commit, open or close a file that it writes, send a request, enqueue. Just before each
    point its worker is killed, or loses its lease, or asks it to stop; and the call is delivered
    twice. Each run continues until the job ends. The rows, files, requests and jobs that it leaves
    behind are compared with the run without a crash. The table names each difference, how often it
    happened, at which points, your line, and the remedy.

    Each run has a process of its own, and a kill is SIGKILL.

    The kernel (Linux on x86-64) confines the task's process and its child processes: they write
    only in a temporary folder, their working directory, where --copy puts files, and connect only
    to the ports of --allow-connect: use test services with ports of their own, since the kernel
    checks ports, not hosts. --reset returns these services to their first state before each run,
    --compare prints their state; both are shell commands, and confined as well. The exit code is 0
    if no crash makes a difference, and 1 if one does.

    Examples:
        outlast crash-test shop.jobs:app import_orders '"orders.csv"' --copy orders.csv
        outlast crash-test shop.jobs:app mail '"ada@example.org"' --allow-connect 1025
        outlast crash-test shop.jobs:app pay 17 --event 'approve:17={"by": "ada"}' --point 4 --json
    """
    from outlast.testing.crashes import crash_test as run

    read_limit_flags(limit_key, None)
    arguments = {
        "app": called.app,
        "task": called.task,
        "texts": called.arguments or [],
        "tenant": tenant,
        "limit_key": limit_key,
        "events": dict(map(_read_event, event or [])),
    }
    if no_sandbox:
        say("WARNING: NO SANDBOX: all that the task writes, sends and removes is real")
    report = run(
        called.app,
        f"{__name__}:{make_call.__name__}",
        arguments=arguments,
        copy=copy or [],
        allow_connect=allow_connect or [],
        allow_command=allow_command or [],
        reset=reset,
        compare=compare,
        test_store=test_store,
        sandbox=not no_sandbox,
        point=point,
        points_max=points_max,
        seed=seed,
    )
    if json:
        print_json(report.document())
    else:
        print(report)
    if not report.is_clean:
        raise Failed(f"a crash changes {count_of(len(report.findings), 'effect')}")


def _read_event(text: str) -> tuple[str, Any]:
    name, is_there, value = text.partition("=")
    if not (name and is_there):
        raise UsageError(f"--event takes NAME=JSON, not {text!r}")
    return name, value_of(value)


def make_call(
    app: str,
    task: str,
    texts: list[str],
    tenant: str | None,
    limit_key: list[str] | None,
    events: dict[str, Any],
) -> Call[Any]:
    """Send the events, and return the call that the command line names: in the process of the
    runs."""
    application, found, positional, named = CalledTask(app=app, task=task, arguments=texts).find()
    for name, value in events.items():
        application.send_event_sync(name, value)
    keys = read_limit_flags(limit_key, None)
    return found.using(tenant=tenant, **keys).call(*positional, **named)
