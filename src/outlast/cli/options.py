"""Define the options that several commands share, and lay out help texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from outlast.base.config import parse_seconds
from outlast.errors import ConfigError, UsageError, text_of

F = TypeVar("F", bound=Callable[..., Any])

LIMIT_MAX = 10_000  # rows of a table
ID_MAX = 2**63 - 1


def _check(given: Any) -> Any:
    """Return a job's number, or several. Raises UsageError for one that no job can have."""
    for one in given if isinstance(given, list | tuple) else [given]:
        if one is not None and not 1 <= one <= ID_MAX:
            raise UsageError(
                f"{one} is not the number of a job: write one as `outlast jobs` shows it"
            )
    return given


def _read_seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ConfigError as error:
        raise typer.BadParameter(text_of(error)) from error


def span(flag: str, text: str) -> Any:
    """Return an option that is a span of time, in seconds or with a unit; its type is float."""
    return typer.Option(flag, metavar="TIME", parser=_read_seconds, help=text)


Application = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Your application, as in shop.jobs:app.")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The store. Default: $OUTLAST_URL, else sqlite:///outlast.db.",
        show_default=False,
    ),
]
AppUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The store. Default: the application's own.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, for programs.", show_default=False)
]
JobId = Annotated[int, typer.Argument(metavar="ID", callback=_check, help="The job's number.")]
JobIds = Annotated[
    list[int], typer.Argument(metavar="ID", callback=_check, help="The jobs' numbers.")
]
SomeIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", callback=_check, help="The jobs' numbers."),
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")
]
TaskName = Annotated[
    str | None, typer.Option("--task", metavar="NAME", help="Only jobs of this task.")
]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
]
Label = Annotated[
    str | None, typer.Option("--label", metavar="NAME", help="Only jobs with this label.")
]
Delay = Annotated[float | None, span("--delay", "Due after this time, as in 90 (seconds) or 15m.")]
Expires = Annotated[
    float | None,
    span("--expires", "Cancel the job if its first attempt has not begun after this time."),
]
Keep = Annotated[
    float | None, span("--keep", "Delete its row after this time from its end; 0: at its end.")
]
Error = Annotated[
    str | None,
    typer.Option(
        "--error", metavar="TEXT", help="Only jobs with this text (no pattern) in what went wrong."
    ),
]
Since = Annotated[
    float | None, span("--since", "Only jobs with which something happened in this time, as 2h.")
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="Show at most N.")
]
Before = Annotated[
    int | None,
    typer.Option(
        "--before",
        metavar="ID",
        callback=_check,
        help="Only jobs with smaller numbers.",
        show_default=False,
    ),
]
FromScratch = Annotated[
    bool,
    typer.Option("--from-scratch", help="Forget the checkpoint: start over.", show_default=False),
]


def command(group: typer.Typer, name: str, **settings: Any) -> Callable[[F], F]:
    """Add a function to a group, its docstring laid out as the help."""

    def add(function: F) -> F:
        text = lay_out(function.__doc__ or "")
        group.command(name, help=text, **settings)(function)
        return function

    return add


def advise(context: typer.Context, text: str) -> str:
    """Return advice with commands as they are typed here: a project's own program, which knows the
    application, runs them under its own name."""
    program = context.find_root().info_name
    if program == "outlast":
        return text
    return text.replace("`outlast ", f"`{program} ").replace(" MODULE:APP`", "`")


def lay_out(docstring: str) -> str:
    """Return a docstring as typer's help: each paragraph on one line, examples unchanged."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(_paragraph(each) for each in paragraphs).replace("[", r"\[")


def _paragraph(text: str) -> str:
    title, _, rest = text.partition("\n")
    if rest.startswith("    "):
        return f"{title}\n\n{rest}"
    return text if text.startswith("    ") else " ".join(text.split())


def with_flag(error: ConfigError | UsageError, names: tuple[str, ...]) -> UsageError:
    """Return the error with the option's flag in front instead of the setting's name."""
    text = text_of(error)
    for name in names:
        if text.startswith(f"{name} "):
            flag = "--" + name.replace("_", "-")
            return UsageError(flag + text.removeprefix(name))
    return UsageError(text)
