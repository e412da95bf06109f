"""Run the commands, in one tree, so that each error becomes plain lines and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TypeGuard

import typer

import outlast
from outlast.cli import completion
from outlast.cli.errors import DONE, FAULT, INTERRUPTED, UNWRITTEN, flush_errors, say, tell
from outlast.cli.options import add_command, lay_out, show_help

COMMANDS = {
    "worker": "worker",
    "enqueue": "jobs",
    "job": "job",
    "cancel": "jobs",
    "requeue": "jobs",
    "logs": "job",
    "jobs": "listing",
    "run-task": "run_task",
    "crash-test": "crash_test",
    "run": "run",
    "checkpoint": "in_job",
    "report": "in_job",
    "why": "job",
    "stack": "job",
    "dead": "dead",
    "workers": "workers",
    "schedules": "schedules",
    "pause": "pauses",
    "resume": "pauses",
    "pauses": "pauses",
    "limits": "limits",
    "flows": "flow",
    "flow": "flow",
    "event": "event",
    "actions": "actions",
    "migrate": "migrate",
    "stats": "stats",
    "exporter": "exporter",
    "doctor": "doctor",
    "rehearse": "rehearse",
    "verify": "verify",
    "web": "web",
    "completion": "completion",
    "dev": "dev",
    "demo": "demo",
}
"""Command -> the module that defines it: a function of this name, or else ``GROUP``."""
_COMMAND = re.compile(r"(`|^ +)outlast ([a-z-]+)(?: shop\.jobs:app)?", re.MULTILINE)
BROKEN_PIPE = 141  # as a shell says it: 128 + SIGPIPE
OUTPUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))

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


def build(argv: Sequence[str]) -> typer.Typer:
    """Return the tree of commands for this command line.

    The command that is named is loaded alone, for --version none: the others take a third of the
    time of most, and memory for as long as a worker runs.
    """
    root = typer.Typer(
        name="outlast",
        help=lay_out(HELP),
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(options)
    wanted = next((each for each in argv if each[:1] != "-"), "")
    rest = () if argv[:1] == ["--version"] else COMMANDS
    for name in (wanted,) if wanted in COMMANDS else rest:
        module = importlib.import_module(f"outlast.cli.{COMMANDS[name]}")
        function = getattr(module, name.replace("-", "_"), None)
        if function is None:
            root.add_typer(module.GROUP, name=name)
        else:
            behind = {"allow_interspersed_args": name != "run"}  # the others belong to its command
            add_command(root, function, context_settings=behind)
    return root


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"outlast {outlast.__version__}")
        raise typer.Exit


def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
            show_default=False,
        ),
    ] = False,
) -> None:
    """Handle the options of the program itself."""
    show_help(context)


def run(argv: Sequence[str] | None = None, app: str | None = None, program: str = "outlast") -> int:
    """Run one command; return the exit code. Nothing is raised, no traceback is printed. ``app``:
    the application of commands that take one; ``program``: the words typed before a command."""
    _open_closed_streams()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv), app, program)
    finally:
        flush_errors()


def _run(given: list[str], app: str | None, program: str) -> int:
    if os.environ.get("COLUMNS") == "0":  # from a terminal that does not report its size
        del os.environ["COLUMNS"]
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        code = _invoke(given, app, program)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:  # rich ends a program like this when its output has no reader
        return _unwritten(BrokenPipeError())
    except Exception as error:
        return _unwritten(error) if _is_of_output(error) else _report_error(error)
    return code


def _invoke(given: list[str], app: str | None, program: str) -> int:
    tree: Any = typer.main.get_command(build(given))
    if completion.is_asked():
        return completion.answer(tree)
    if app is not None:
        if not given or {"-h", "--help"} & {*given}:
            _help_on_project(tree, program)
        given = _with_application(tree, given, app)
    try:  # tree.main() would treat an error of the output as the end of the program
        with tree.make_context(program, given) as context:
            answer = tree.invoke(context)
    except typer.Exit as end:
        answer = end.exit_code
    return answer if isinstance(answer, int) else DONE


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
        command.help = _COMMAND.sub(rf"\1{program} \2", text)
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


def _report_error(error: Exception) -> int:
    """Report an error: typer's own (recognised by their methods, not by their class), or ours."""
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    told = getattr(error, "format_message", None)
    if told is None:
        return tell(error)
    text = plainly(str(told()).replace("Value error, ", ""), error)
    path = getattr(getattr(error, "ctx", None), "command_path", "outlast")
    say(f"{text}\nrun `{path} --help` to see how it is used")
    return int(getattr(error, "exit_code", FAULT))


def plainly(text: str, error: Exception) -> str:
    """Return typer's message in plain words: with numbers instead of types, and with where to put a
    negative number, which typer takes for an unknown option."""
    if re.fullmatch(r"-\.?\d+", str(getattr(error, "option_name", ""))):
        return f"{text}\nwrite -- before an argument that begins with a dash, after all options"
    text = re.sub(r"is not a valid float( range)?\b", "is not a number", text)
    return re.sub(r"is not a valid int(eger)?( range)?\b", "is not a whole number", text)


def _open_closed_streams() -> None:
    """Open closed standard streams on /dev/null: otherwise the next opened file, such as the
    store's, gets the descriptor of one of them."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _is_of_output(error: Exception) -> TypeGuard[OSError]:
    """Whether the error means that stdout cannot be written; a store raises our own errors."""
    return isinstance(error, OSError) and error.errno in OUTPUT_ERRORS


def _unwritten(error: OSError) -> int:
    """Report that the answer is lost; the flush at the end of the process must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # its reader has gone away on purpose
        return BROKEN_PIPE
    say(f"the answer cannot be written: {error.strerror}\nwhat the command has changed is kept")
    return UNWRITTEN
