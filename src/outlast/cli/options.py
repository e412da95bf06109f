"""Define the options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

import msgspec
import typer

from outlast.base.config import parse_seconds
from outlast.cli.errors import as_typed
from outlast.cli.usage import CheckedCommand, CommandGroup, lay_out, show_help
from outlast.errors import ConfigError, UsageError, text_of
from outlast.insight.filters import AskedJobs, filters_of_jobs
from outlast.model.kinds import Filter, is_of

LIMIT_MAX = 10_000  # rows of a table
ID_MAX = 2**63 - 1


def _check(given: Any) -> Any:
    """Return a job's number, or several. Raises UsageError for one that no job can have."""
    for one in given if isinstance(given, list | tuple) else [given]:
        if one is not None and not 1 <= one <= ID_MAX:
            raise UsageError(f"{one} is not a job's number: write one that `outlast jobs` lists")
    return given


def _read_seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ConfigError as error:
        raise typer.BadParameter(text_of(error)) from error


def option(name: str, metavar: str, text: str, **more: Any) -> Any:
    """Return an option with a value."""
    return typer.Option(name, metavar=metavar, help=text, **more)


def flag(name: str, text: str, *short: str) -> Any:
    """Return an option without a value, which is off by default."""
    return typer.Option(name, *short, help=text, show_default=False)


def span(name: str, text: str) -> Any:
    """Return an option that is a span of time, in seconds or with a unit; its type is float."""
    return option(name, "TIME", text, parser=_read_seconds)


def _inherit(context: typer.Context, url: str | None) -> str | None:
    """Return the option, by default that of the group: ``outlast schedules --url URL show``."""
    return url if url is not None or context.parent is None else context.parent.params.get("url")


Application = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Your application, as in shop.jobs:app.")
]
Url = Annotated[
    str | None,
    option(
        "--url",
        "URL",
        "The store. Default: $OUTLAST_URL, else sqlite:///outlast.db.",
        callback=_inherit,
    ),
]
AppUrl = Annotated[str | None, option("--url", "URL", "The store. Default: the application's own.")]
Json = Annotated[bool, flag("--json", "Print one JSON document, for programs.")]
JobId = Annotated[int, typer.Argument(metavar="ID", callback=_check, help="The job's number.")]
JobIds = Annotated[
    list[int], typer.Argument(metavar="ID…", callback=_check, help="The jobs' numbers.")
]
SomeIds = Annotated[
    list[int] | None, typer.Argument(metavar="ID…", callback=_check, help="The jobs' numbers.")
]
Owner = Annotated[
    str | None, option("--tenant", "NAME", "The customer or project whose job it is.")
]
LimitKeys = Annotated[
    list[str] | None,
    option("--limit-key", "LIMIT=KEY", "Its key for a limit per key; may be repeated."),
]
Limit = Annotated[int, option("--limit", "N", "Show at most N.", min=1, max=LIMIT_MAX)]
Before = Annotated[
    int | None, option("--before", "ID", "Only ids below this one.", callback=_check)
]
ALL_BUT_STATE = [name for name in AskedJobs.__struct_fields__ if name != "state"]
FromScratch = Annotated[
    bool, flag("--from-scratch", "Forget checkpoint, steps and children: start over.")
]


class Options:
    """Options that several commands have: a parameter of such a type stands for its fields, as one
    of the type ``AskedJobs`` stands for the filters of jobs, or, marked with their names, some."""


class Placing(msgspec.Struct, Options, kw_only=True):
    """Where a job goes, and when it may run."""

    delay: Annotated[
        float | None, span("--delay", "Due after this time, as in 90 (seconds) or 15m.")
    ] = None
    expires: Annotated[
        float | None,
        span("--expires", "Cancel the job if its first attempt has not begun after this time."),
    ] = None
    priority: Annotated[int | None, option("--priority", "N", "-100 to 100, larger first.")] = None
    key: Annotated[
        str | None,
        option("--key", "KEY", "Enqueue nothing while a job with this key is unfinished."),
    ] = None
    once_per: Annotated[
        float | None,
        span("--once-per", "With --key: one in each window of this length, such as 1h."),
    ] = None
    tenant: Owner = None
    keep: Annotated[
        float | None, span("--keep", "Delete its row this long after its end; 0: at its end.")
    ] = None
    limit_key: LimitKeys = None
    cost: Annotated[
        list[str] | None,
        option("--cost", "LIMIT=N", "Its cost under a rate. Default: 1. May be repeated."),
    ] = None
    after: Annotated[
        list[str] | None,
        option("--after", "ID[,ID]", "Run it once these jobs have completed; may be repeated."),
    ] = None
    after_ended: Annotated[
        list[str] | None,
        option("--after-ended", "ID[,ID]", "Run it once these jobs have ended in any way."),
    ] = None

    def read(self) -> dict[str, Any]:
        """Return these as options of ``using``."""
        given = msgspec.structs.asdict(self)
        keys, costs = given.pop("limit_key"), given.pop("cost")
        from outlast.client.flow_parts import AnyEnd

        completed = _read_ids("--after", given.pop("after"))
        ended = _read_ids("--after-ended", given.pop("after_ended"))
        if completed or ended:
            given["after"] = [*completed, *([AnyEnd(ended)] if ended else [])]
        return {**given, **read_limit_flags(keys, costs)}


def _read_ids(flag: str, given: list[str] | None) -> list[int]:
    texts = [text.strip() for each in given or [] for text in each.split(",")]
    wrong = [text for text in texts if not (text.isascii() and text.isdigit() and len(text) < 19)]  # noqa: PLR2004
    if wrong:
        raise UsageError(f"{flag} takes job numbers, as in {flag} 17,18, not {wrong[0]!r}")
    ids = [int(text) for text in texts]
    _check(ids)
    return ids


def read_limit_flags(keys: list[str] | None, costs: list[str] | None) -> dict[str, Any]:
    """Return what ``--limit-key`` and ``--cost`` say, as options of ``using``."""
    taken = {name: _number("--cost", each) for name, each in _by_limit("--cost", costs).items()}
    return {"limit_keys": _by_limit("--limit-key", keys) or None, "cost": taken or None}


def _by_limit(flag: str, given: list[str] | None) -> dict[str, str]:
    """Return options given as LIMIT=VALUE, by limit."""
    found: dict[str, str] = {}
    for each in given or []:
        name, is_there, value = each.partition("=")
        if not (name and is_there and value) or name in found:
            raise UsageError(f"{flag} takes LIMIT=VALUE, once for each limit, not {each!r}")
        found[name] = value
    return found


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} takes numbers, as in openai=3, not {text!r}") from None


def add_command(to: typer.Typer, function: Callable[..., Any], **settings: Any) -> None:
    """Add a function as the command of its name, with its docstring laid out as the help."""
    name = function.__name__.strip("_").replace("_", "-")
    help_text = lay_out(function.__doc__ or "")
    to.command(name, cls=CheckedCommand, help=help_text, **settings)(_spread(function))


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the fields of ``Options`` and of filters as parameters of its own."""
    own = inspect.signature(function, eval_str=True)
    parts = {
        name: _parts_of(each.annotation)
        for name, each in own.parameters.items()
        if is_of(each.annotation, AskedJobs)
        or (isinstance(each.annotation, type) and issubclass(each.annotation, Options))
    }
    shown = (parts.get(each.name, {each.name: each}) for each in own.parameters.values())

    @wraps(function)
    def run(**given: Any) -> Any:
        for name, fields in parts.items():
            make = own.parameters[name].annotation
            given[name] = make(**{field: given.pop(field) for field in fields})
            if isinstance(given[name], AskedJobs):
                with naming_flags(fields):
                    given[name].check()
        return function(**given)

    signature = own.replace(parameters=[each for part in shown for each in part.values()])
    vars(run)["__signature__"] = signature
    return run


def _parts_of(kind: Any) -> Mapping[str, inspect.Parameter]:
    """Return the options for which a parameter of this type stands."""
    if not is_of(kind, AskedJobs):
        return inspect.signature(kind, eval_str=True).parameters
    filters = filters_of_jobs()
    (names,) = getattr(kind, "__metadata__", (filters,))
    return {name: _option_of(name, filters[name]) for name in names}


def _option_of(name: str, filter_: Filter) -> inspect.Parameter:
    flag, text = f"--{name}", f"{filter_.about[0].upper()}{filter_.about[1:]}."
    kind: Any = Annotated[str | None, option(flag, filter_.value, text)]
    if filter_.value == "TIME":
        kind = Annotated[float | None, span(flag, text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def make_group(
    text: str, *functions: Callable[..., Any], default: Callable[..., Any] | None = None
) -> typer.Typer:
    """Return a group of commands. ``text``: its help; ``default``: runs if none is named."""
    made = typer.Typer(
        cls=CommandGroup,
        help=lay_out(text),
        invoke_without_command=True,
        callback=show_help if default is None else _run_alone(default),
    )
    for function in functions:
        add_command(made, function)
    return made


def _run_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that does nothing if one of its group follows. UsageError if its options,
    except --url, are before that."""

    @wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        following = context.invoked_subcommand
        if following is None:
            function(**given)
        elif {"COMMANDLINE"} & {_source_of(context, name) for name in given.keys() - {"url"}}:
            raise UsageError(
                f"the options before {following} belong to the list: leave them out, or {following}"
            )

    first = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    own = inspect.signature(function, eval_str=True)
    vars(run)["__signature__"] = own.replace(parameters=[first, *own.parameters.values()])
    return run


def _source_of(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else source.name


def advise(context: typer.Context, text: str) -> str:
    """Return advice with commands as they are typed in this command line."""
    return as_typed(text, context.find_root().info_name or "outlast")


@contextmanager
def naming_flags(names: Iterable[str]) -> Iterator[None]:
    """Turn an error about one of these settings into a UsageError that names its flag."""
    try:
        yield
    except (ConfigError, UsageError) as error:
        text = text_of(error)
        for name in names:
            if text.startswith((f"{name} ", f"{name}: ")):
                text = f"--{name.replace('_', '-')}{text.removeprefix(name)}"
                break
        raise UsageError(text) from error
