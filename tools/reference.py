"""Makes the reference, the public API, from the docstrings of the code: a page of the site."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

import outlast
import outlast.contrib.django
import outlast.contrib.django.testing
import outlast.contrib.otel
import outlast.contrib.sentry
import outlast.events
import outlast.fences
import outlast.testing
import outlast.testing.crashes
import outlast.web
from outlast.store.postgres import privileges
from outlast.store.rows import JobFields
from outlast.store.values import Purpose

PAGE = Path("docs/reference.md")  # on the site: no file of the repository
WIDTH = 96  # characters of a signature on one line

INTRO = """\
# Reference

The whole public API: a name that is not on this page may change without notice. The commands are on
a [page of their own](commands.md); [Events](events.md) says where events go.

`make docs` makes this page from the docstrings of the code.

Import names from `outlast`, those for [tests](#tests) from `outlast.testing`, and a name with dots
from the module that it names.
`NAME_sync` is `NAME` for plain code: it blocks until it is done, and raises
[`SyncInLoop`](#syncinloop) where an event loop is running. Times are in seconds unless said
otherwise; `Seconds` is a number of them or a `timedelta`. `Context` is what `with` or `async with`
enters. `P` and `R` are the parameters and the result of the task's function. `Judge` is a function
of a request (`starlette.requests.Request`) that returns an `Access` or None; it may be a coroutine
function.
"""

GROUPS = {
    "The application": ["App", "TaskDecorator", "BatchDecorator", "Paused"],
    "Tasks": [
        "TaskOptions",
        "BatchOptions",
        "Task",
        "AsyncTask",
        "PlainTask",
        "BatchTask",
        "BoundTask",
        "Call",
    ],
    "Jobs": ["Job", "JobRow", "State", "Policy", "Progress", "Cancelled", "Requeued"],
    "Flows": [
        "chain",
        "group",
        "FlowPart",
        "Flow",
        "FlowRun",
        "RESULT",
        "RESULTS",
        "ended",
        "AnyEnd",
    ],
    "Schedules": ["ScheduleOptions", "Schedules", "Schedule"],
    "Limits": [
        "LimitOptions",
        "Limit",
        "Limits",
        "LimitSpec",
        "Per",
        "LimitRow",
        "PermitRow",
    ],
    "Attempts": ["current", "current_batch", "Attempt", "StopReason", "add_job_fields"],
    "What a task raises": [
        "Verdict",
        "Snooze",
        "Throttled",
        "ItemErrors",
        "Retry",
        "Cancel",
        "Dead",
        "Stopped",
    ],
    "Crash reports": ["Crash", "CrashKind", "MemoryEvidence"],
    "Workers": ["WorkerSettings", "WorkerOptions"],
    "Payloads": ["Compression", "Encryption", "PayloadCodec"],
    "Errors": [
        "OutlastError",
        "ConfigError",
        "ApplicationError",
        "UsageError",
        "BadArguments",
        "UnknownTask",
        "NotEncrypted",
        "NotInAttempt",
        "SyncInLoop",
        "ConnectionMismatch",
        "StoreError",
        "StoreUnavailable",
        "StoreCorrupt",
        "SchemaMismatch",
        "NotPermitted",
        "BadData",
        "KeyInUse",
        "QueueFull",
        "JobNotFound",
        "ScheduleNotFound",
        "LimitNotFound",
        "JobFailed",
        "JobCancelled",
        "LostLease",
    ],
}
TESTING = {"Tests": ["isolate", "AppUnderTest", "inline", "inline_sync"]}
OTHERS = {
    "The page": (outlast.web, ["dashboard", "Access", "Right"]),
    "Events": (outlast.events, ["subscribe", "log_to_structlog"]),
    "Django": (outlast.contrib.django, ["Backend", "app", "call"]),
    "Fences": (
        outlast.fences,
        ["make_key", "make_headers", "guard_put", "guard_sql", "check_row"],
    ),
    "Crash tests": (outlast.testing.crashes, ["crash_test", "CrashReport"]),
    "Tests of Django": (outlast.contrib.django.testing, ["isolate"]),
    "OpenTelemetry": (outlast.contrib.otel, ["instrument", "watch_deaths"]),
    "Sentry": (outlast.contrib.sentry, ["instrument", "watch_deaths"]),
}
"""Headings -> the module, and what is public in it."""
MADE_BY_CALLS = {  # a program constructs none of these
    outlast.AsyncTask,
    outlast.Attempt,
    outlast.BoundTask,
    outlast.Call,
    outlast.Job,
    outlast.PlainTask,
    outlast.Schedules,
    outlast.Task,
    outlast.testing.AppUnderTest,
    outlast.testing.crashes.CrashReport,
    outlast.contrib.django.Backend,
}
_NOT_SHOWN = {object, typing.Generic, typing.Protocol, msgspec.Struct, JobFields}
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):$")
_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \w+)*): (.*)$")


def page() -> str:
    """Return the whole page."""
    parts = [INTRO, _contents()]
    for module, groups in ((outlast, GROUPS), (outlast.testing, TESTING)):
        for heading, names in groups.items():
            parts += [f"## {heading}\n", *(entry(name, getattr(module, name)) for name in names)]
    for heading, (module, names) in OTHERS.items():
        shown = (entry(name, getattr(module, name), f"{module.__name__}.") for name in names)
        parts += [f"## {heading}\n", *shown]
        if module is outlast.events:
            parts.append(_catalogue())
    return "\n".join([*parts, _roles()])


def _catalogue() -> str:
    """Return the table of all events."""
    rows = [
        f"| `{name}` | {event.level} | {event.sentence} |"
        f" {', '.join(f'`{field}`' for field in event.fields)} |\n"
        for name, event in outlast.events.CATALOGUE.items()
    ]
    head = "| event | level | what has happened | fields |\n|---|---|---|---|\n"
    return "### All events\n\n" + head + "".join(rows)


def _roles() -> str:
    """Return the table of the privileges that roles of PostgreSQL need."""
    worker, enqueue = (privileges._NEEDED[each] for each in (Purpose.WORKER, Purpose.ENQUEUE))  # noqa: SLF001
    if unknown := set(enqueue) - set(worker):
        raise ValueError(f"a worker lacks {unknown}")
    rows = [
        f"| `{name}` | {_cell(said)} | {_cell(enqueue.get(name, ''))} |\n"
        for name, said in worker.items()
    ]
    return (
        "## Privileges\n\nWhat `outlast migrate --grant` grants"
        " ([roles](roles.md)):\n\n"
        "| object | a worker, and the command line |"
        " `--only enqueue`: enqueue, read jobs and results |\n"
        "|---|---|---|\n| the schema | USAGE | USAGE |\n"
        + "".join(rows).replace("|  |", "| |")
        + "| functions `outlast_…` | EXECUTE | EXECUTE |\n"
    )


def _cell(said: str) -> str:
    return ", ".join(
        each.replace("(", " of ").removesuffix(")").replace(",", ", ") for each in said.split()
    )


def _contents() -> str:
    return "".join(
        f"- [{heading}](#{anchor(heading)}): "
        + ", ".join(f"[`{name}`](#{anchor(home + name)})" for name in names)
        + "\n"
        for heading, home, names in _groups()
    )


def _groups() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each group: its heading, the prefix of its names, the names."""
    for heading, names in (GROUPS | TESTING).items():
        yield heading, "", names
    for heading, (module, names) in OTHERS.items():
        yield heading, f"{module.__name__}.", names


def anchor(heading: str) -> str:
    """Return the anchor that a heading gets."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def entry(name: str, thing: Any, home: str = "") -> str:
    """Return the section of one public name. ``home``: its prefix in the heading."""
    heading = f"### `{home}{name}`"
    if not callable(thing):
        return _block(heading, [f"{name}: {type(thing).__name__}"], thing.__doc__)
    if not inspect.isclass(thing):
        return _block(heading, signatures(thing, name), thing.__doc__)
    own = _constructor(thing)
    parts = [_block(heading, [*_declared(name, thing, own)], thing.__doc__)]
    if own is not None and own.__doc__:
        parts.append(f"{markdown(own.__doc__)}\n")
    for title, members in _members(thing):
        shown = [line for each in members for line in signatures(each, each.__name__)]
        parts.append(_block(f"#### `{home}{name}.{title}`", shown, members[0].__doc__))
    parts += [
        _block(f"#### `{home}{name}.{title}`", [f"{title}: {_returned(got)}"], got.__doc__)
        for title, got in _properties(thing)
    ]
    return "\n".join(parts)


def _block(heading: str, code: list[str], doc: str | None) -> str:
    shown = "\n".join(code)
    return f"{heading}\n\n```python\n{shown}\n```\n\n{markdown(doc)}\n"


# ------------------------------------------------------------------------ classes


def _declared(name: str, kind: type, constructor: Callable[..., Any] | None) -> Iterator[str]:
    """Yield a class as code: its bases, how it is constructed, and its fields or members."""
    bases = [base.__name__ for base in kind.__bases__ if base not in _NOT_SHOWN]
    if typing.is_typeddict(kind):
        bases = ["TypedDict"]
    yield f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    if constructor is not None:
        yield ""
        yield from signatures(constructor, name)
    fields = [*_fields(kind)]
    if fields:
        yield from ("", *fields)


def _fields(kind: type) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield from (f"{each.name} = {each.value!r}" for each in kind)
        return
    defaults = {}
    if issubclass(kind, msgspec.Struct):
        defaults = {field.name: _default(field) for field in msgspec.structs.fields(kind)}
    hints = {**_hints_of_job(kind), **inspect.get_annotations(kind)}
    for name, hint in hints.items():
        if not name.startswith("_"):
            text = getattr(hint, "__forward_arg__", hint)  # as a TypedDict has it
            yield f"{name}: {text}{defaults.get(name, '')}"


def _hints_of_job(kind: type) -> dict[str, str]:
    """Return the fields that ``JobRow`` shares with the job of a store, with its own types."""
    if not issubclass(kind, JobFields):
        return {}
    (fields,) = vars(kind)["__orig_bases__"]
    named = dict(zip("TPS", (each.__name__ for each in typing.get_args(fields)), strict=True))
    hints = inspect.get_annotations(JobFields)
    return {
        name: re.sub(r"\b[TPS]\b", lambda found: named[found[0]], hint)
        for name, hint in hints.items()
    }


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory in {list, dict}:
        return f" = {field.default_factory()!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        return " = ..."
    return "" if field.required else f" = {field.default!r}"


def _constructor(kind: type) -> Callable[..., Any] | None:
    init = vars(kind).get("__init__")
    wanted = inspect.isfunction(init) and kind not in MADE_BY_CALLS
    return init if wanted and not getattr(kind, "_is_protocol", False) else None


def _members(kind: type) -> Iterator[tuple[str, list[Callable[..., Any]]]]:
    """Yield the public methods in their order, each with its ``NAME_sync``."""
    for name, member in vars(kind).items():
        public = not name.startswith("_") or name == "__call__"
        if inspect.isfunction(member) and public and not name.endswith("_sync"):
            sync = vars(kind).get(f"{name}_sync")
            yield name, [member] if sync is None else [member, sync]


def _properties(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(kind).items():
        if isinstance(member, property) and member.fget and not name.startswith("_"):
            yield name, member.fget


# ------------------------------------------------------------------------ signatures


def signatures(function: Callable[..., Any], name: str) -> list[str]:
    """Return a function as code: one signature, or one for each of its overloads."""
    variants = typing.get_overloads(function) or [function]
    start = "async def " if inspect.iscoroutinefunction(inspect.unwrap(function)) else "def "
    if name.endswith("_sync") or function.__name__ == "__init__":
        start = "def " if name.endswith("_sync") else ""
    return [start + _signature(each, name) for each in variants]


def _signature(function: Callable[..., Any], name: str) -> str:
    parameters = [*inspect.signature(function).parameters.values()]
    if parameters and parameters[0].name == "self":
        del parameters[0]
    shown = _separated(parameters)
    returns = "" if function.__name__ == "__init__" else f" -> {_returned(function)}"
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){returns}"])


def _separated(parameters: list[inspect.Parameter]) -> list[str]:
    """Return parameters as code, with ``/`` and ``*`` where they belong."""
    shown: list[str] = []
    before: Any = None
    for each in parameters:
        if before is each.POSITIONAL_ONLY and each.kind is not before:
            shown.append("/")
        if each.kind is each.KEYWORD_ONLY and before not in {
            each.KEYWORD_ONLY,
            each.VAR_POSITIONAL,
        }:
            shown.append("*")
        shown.append(_parameter(each))
        before = each.kind
    return [*shown, "/"] if before is inspect.Parameter.POSITIONAL_ONLY else shown


def _parameter(each: inspect.Parameter) -> str:
    stars = _STARS.get(each.kind, "")
    default = "" if each.default is each.empty else f" = {each.default!r}"
    return f"{stars}{each.name}: {each.annotation}{default}"


def _returned(function: Callable[..., Any]) -> str:
    return str(inspect.signature(function).return_annotation)


# ------------------------------------------------------------------------ docstrings


def markdown(doc: str | None) -> str:
    """Return a docstring as Markdown: its sections become lists, its code `code`."""
    lines: list[str] = []
    inside = False
    for line in inspect.cleandoc(doc or "").replace("``", "`").splitlines():
        if found := _SECTION.match(line):
            inside = True
            lines += [f"**{found[1]}**", ""]
        elif inside and line and not line.startswith(" "):
            inside = False
            lines.append(line)
        else:
            lines.append(_item(line.removeprefix("    ")) if inside else line)
    return "\n".join(lines).rstrip()


def _item(line: str) -> str:
    """Return a line of a section: the first of an entry, or one that continues it."""
    if found := _ENTRY.match(line):
        names = ", ".join(f"`{name}`" for name in found[1].split(", "))
        return f"- {names}: {found[2]}"
    return f"  {line.strip()}" if line else line
