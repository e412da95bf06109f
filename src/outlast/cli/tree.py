"""The tree of commands. A call loads only the commands that it needs."""

from __future__ import annotations

import gc
import importlib
import os
import re
from collections.abc import Iterable
from typing import Annotated, Any

import typer
import typer.main

from outlast.cli.errors import DONE
from outlast.cli.usage import COMPLETING, CommandGroup, lay_out, show_help

COMMANDS = {
    "worker": ("worker", "Run jobs until told to stop."),
    "enqueue": ("jobs", "Enqueue one call of a task."),
    "job": ("job", "Show everything about one job, its attempts and their crash reports."),
    "cancel": ("jobs", "Cancel jobs, by number or by --task, --queue, --tenant and --label."),
    "requeue": ("jobs", "Revive dead or cancelled jobs."),
    "logs": ("job", "Show what the attempts of a job have printed, while they run and afterwards."),
    "jobs": ("listing", "List jobs, newest first."),
    "run-task": ("run_task", "Run one call of a task here and now, without a queue."),
    "crash-test": (
        "crash_test",
        "Find out what a crash does to a task: run a call, then again with a crash at each point.",
    ),
    "run": ("run", "Run a command as a job, in a worker that was started with --shell."),
    "checkpoint": (
        "in_job",
        "Save a text from which the next attempt of this command can continue.",
    ),
    "report": ("in_job", "Report this command's progress, for people to see."),
    "why": ("job", "Say why a job is in its state, and what would move it on."),
    "stack": (
        "job",
        (
            "Show the line that a running job is executing, and all stacks of its process, its own"
            " first."
        ),
    ),
    "dead": ("dead", "List dead jobs, revive them, or delete them."),
    "workers": ("workers", "List workers and their last heartbeats, or ask workers to drain."),
    "schedules": (
        "schedules",
        "List schedules, or pause, resume, trigger, backfill or delete some.",
    ),
    "pause": (
        "pauses",
        "Start no more jobs of a queue, a task, a tenant, or any at all, until it is resumed.",
    ),
    "resume": ("pauses", "End a pause: workers claim its jobs again, within about a second."),
    "pauses": ("pauses", "List all pauses: since when, by whom and why."),
    "limits": ("limits", "List limits over the whole fleet, or show, set, hold or reset one."),
    "flows": ("flow", "List recent flows, unfinished ones first."),
    "flow": (
        "flow",
        "Show a flow, cancel it, retry its failed jobs, or continue without one of them.",
    ),
    "event": ("event", "Send an event, such as an approval, to the jobs that wait for it."),
    "actions": ("actions", "List what people did: who, when, to what, why, and with what result."),
    "migrate": ("migrate", "Bring the store's schema up to date."),
    "stats": (
        "stats",
        "Show the numbers of jobs, the jobs that no worker can take, and the rates.",
    ),
    "exporter": (
        "exporter",
        "Serve metrics of the store to Prometheus, at http://ADDRESS:PORT/metrics.",
    ),
    "doctor": (
        "doctor",
        "Check the store, the workers and this machine, and say how to fix what is wrong.",
    ),
    "rehearse": (
        "rehearse",
        "Read the queue with a new release, and say what it would do differently.",
    ),
    "verify": ("verify", "Check the kept history against the guarantees."),
    "web": (
        "web",
        "Serve the page: what needs attention, the jobs, why each is in its state, and what to do.",
    ),
    "completion": (
        "completion",
        "Print the script with which a shell completes commands and options.",
    ),
    "dev": ("dev", "Run jobs while you write tasks: a worker that reloads, its log, and the page."),
    "demo": ("demo", "Kill a worker halfway through a job, and watch the job finish."),
}
"""Command -> the module that defines it, as a function of this name or else as ``GROUP``, and the
first line of its help, so that ``--help`` loads none of them."""
_COMMAND = r"(?m)(`|^ +)outlast ([a-z-]+)(?: shop\.jobs:app)?"

STORE_HELP = """The store is given by --url, else $OUTLAST_URL, else sqlite:///outlast.db in this
directory; a PostgreSQL one is postgresql://user@host/database."""
PROJECT_HELP = "The store is the database that the settings of the project name."
HELP = f"""Background jobs that outlast the workers running them.

{STORE_HELP} Commands that only read or change jobs never
create a database. A TIME is a number of seconds, or has a unit, as in 90s, 15m, 2h and 7d.

Exit codes:
    0  done
    1  the answer is no, or it could not be done: no such job, a job that is not dead
    2  wrong usage: an option, a URL, JSON, an unknown task, an application
       that cannot be imported
    3  the store cannot be used: unreachable, missing, damaged, another schema

Examples:
    outlast worker shop.jobs:app
    outlast enqueue shop.jobs:app mail '"ada@example.org"'
    outlast jobs --state running
    outlast job 17
"""


def invoke(given: list[str], app: str | None, program: str) -> int:
    """Run a command line; return the exit code."""
    if os.environ.get(COMPLETING):
        from outlast.cli import completion

        return completion.answer(typer.main.get_command(build()))
    wanted = next((each for each in given if each[:1] != "-"), "")
    tree: Any = typer.main.get_command(build([wanted]) if wanted in COMMANDS else outline())
    if app is not None:
        if not given or {"-h", "--help"} & {*given}:
            _help_on_project(tree, program)
        given = _with_application(tree, given, app)
    if not gc.isenabled():
        gc.freeze()  # loaded modules stay to the end
        gc.set_threshold(10_000)  # as many more come before the answer, and no garbage
        gc.enable()
    try:  # tree.main() would treat an error of the output as the end of the program
        with tree.make_context(program, given) as context:
            answer = tree.invoke(context)
    except typer.Exit as end:
        answer = end.exit_code
    return answer if isinstance(answer, int) else DONE


def build(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the tree of these commands."""
    from outlast.cli.options import add_command

    root = _root()
    for name in names:
        module = importlib.import_module(f"outlast.cli.{COMMANDS[name][0]}")
        function = getattr(module, name.replace("-", "_"), None)
        if function is None:
            root.add_typer(module.GROUP, name=name)
        else:
            behind = {"allow_interspersed_args": name != "run"}  # the others belong to its command
            add_command(root, function, context_settings=behind)
    return root


def outline() -> typer.Typer:
    """Return a tree that only lists the commands: to load them all takes a second."""
    root = _root()
    for name, (_, summary) in COMMANDS.items():
        root.command(name, help=summary)(outline)
    return root


def _root() -> typer.Typer:
    root = typer.Typer(
        cls=CommandGroup,
        name="outlast",
        help=lay_out(HELP),
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,  # rich would be loaded for each help
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    root.callback()(options)
    return root


def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Handle the options of the program itself."""
    show_help(context)


def _with_application(tree: Any, given: list[str], app: str) -> list[str]:
    """Return the command line with the application behind its command, if that takes one."""
    at = next((at for at, each in enumerate(given) if each[:1] != "-"), None)
    command = None if at is None else tree.commands.get(given[at])
    if at is None or not any(each.metavar == "MODULE:APP" for each in _arguments(command)):
        return given
    return [*given[: at + 1], app, *given[at + 1 :]]


def _help_on_project(group: Any, program: str) -> None:
    """Adapt the help to a project's own commands, which know the application and the store."""
    for command in (group, *getattr(group, "commands", {}).values()):
        text = (command.help or "").replace(lay_out(STORE_HELP), PROJECT_HELP)
        text = text.replace("MODULE:APP", "the project")
        command.help = re.sub(_COMMAND, rf"\1{program} \2", text)
        command.params = [
            each for each in command.params if getattr(each, "metavar", None) != "MODULE:APP"
        ]
        for each in command.params:
            if "--url" in each.opts:
                each.help = "The store. Default: the database of the project."
        if command is not group and hasattr(command, "commands"):
            _help_on_project(command, program)


def _arguments(command: Any) -> list[Any]:
    parameters = getattr(command, "params", [])
    return [each for each in parameters if each.param_type_name == "argument"]
