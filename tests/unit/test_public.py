"""All types that a program receives or raises can be imported from ``outlast``."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

import outlast
import outlast.testing
from outlast.base.config import WorkerSettings
from outlast.store.rows import JobFields
from outlast.store.values import Given
from tests.cases import each_case

PUBLIC: dict[str, Any] = {name: getattr(outlast, name) for name in outlast.__all__}
TOP = {id(each) for each in PUBLIC.values()}
TOP |= {id(JobFields), id(Given)}  # JobRow shows their fields as its own
MADE_HERE = {
    outlast.Limit,
    outlast.Limits,  # a program gets these from a call, and constructs none
    outlast.AsyncTask,
    outlast.Attempt,
    outlast.BatchTask,
    outlast.BoundTask,
    outlast.Call,
    outlast.AnyEnd,
    outlast.Flow,
    outlast.FlowRun,
    outlast.Job,
    outlast.PlainTask,
    outlast.Schedules,
    outlast.Task,
    outlast.testing.AppUnderTest,
}
ROW_BY = ("row", "refresh", "refresh_sync")
CLASSES = [each for each in PUBLIC.values() if inspect.isclass(each)]


def is_ours(kind: Any) -> bool:
    return inspect.isclass(kind) and kind.__module__.partition(".")[0] == "outlast"


def types_in(hint: Any) -> Iterator[Any]:
    """Yield all classes in an annotation: ``dict[str, Task] | None`` has three."""
    if isinstance(hint, list | tuple):  # of Callable[[…], …]
        for each in hint:
            yield from types_in(each)
        return
    origin = typing.get_origin(hint)
    if origin is not None and origin is not hint:  # Generic is its own
        yield from types_in(origin)
    for each in typing.get_args(hint):
        yield from types_in(each)
    if inspect.isclass(hint) and not isinstance(hint, types.GenericAlias):
        yield hint


def functions_of(kind: type) -> Iterator[Callable[..., Any]]:
    """Yield the public functions of a class and of its bases that are ours."""
    called = {"__call__"} if kind in MADE_HERE else {"__call__", "__init__"}
    for base in filter(is_ours, kind.__mro__):
        for name, member in vars(base).items():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and (name in called or not name.startswith("_")):
                yield function


def reached_from(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield each type that a program meets by a public class or function, and where."""
    where = getattr(thing, "__qualname__", repr(thing))
    hints: list[Any] = []
    if inspect.isfunction(thing):
        for function in (thing, *typing.get_overloads(thing)):
            hints += typing.get_type_hints(function, localns=PUBLIC).values()
    elif inspect.isclass(thing):
        typed = typing.get_type_hints(thing, localns=PUBLIC)
        hints += [*thing.__mro__, *(typed[name] for name in typed if not name.startswith("_"))]
        for function in functions_of(thing):
            yield from reached_from(function)
    for hint in hints:
        yield from ((where, kind) for kind in types_in(hint))


def hidden(thing: Any, top: set[int] = TOP) -> set[str]:
    """Return where types of ours are reached from a thing that are not at the top, and which."""
    return {
        f"{where}: {kind.__name__}"
        for where, kind in reached_from(thing)
        if is_ours(kind) and id(kind) not in top
    }


def test_each_type_that_a_program_receives_is_exported() -> None:
    assert set[str]().union(*(hidden(each) for each in PUBLIC.values())) == set()


def test_so_is_each_type_that_a_test_receives() -> None:
    things = {name: getattr(outlast.testing, name) for name in outlast.testing.__all__}
    top = TOP | {id(each) for each in things.values()}
    assert set[str]().union(*(hidden(each, top) for each in things.values())) == set()
    assert [name for name, each in things.items() if not inspect.getdoc(each)] == []


@each_case(
    ("place", "missing", "where"),
    [
        (outlast.App, outlast.Requeued, {"App.requeue: Requeued", "App.requeue_sync: Requeued"}),
        (outlast.App, outlast.WorkerOptions, {"App.worker: WorkerOptions"}),
        (outlast.Crash, outlast.MemoryEvidence, {"Crash: MemoryEvidence"}),
        (outlast.Job, outlast.JobRow, {f"Job.{name}: JobRow" for name in ROW_BY}),
        (
            outlast.PlainTask,
            outlast.BoundTask,
            {"PlainTask: BoundTask", "BoundTask.using: BoundTask"},
        ),
        (outlast.current, outlast.Attempt, {"current: Attempt"}),
    ],
)
def test_a_type_that_is_not_exported_is_found(place: Any, missing: Any, where: set[str]) -> None:
    assert hidden(place, TOP - {id(missing)}) == where


def attributes_in_the_docstring(kind: type) -> set[str]:
    _, _, listed = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    first = re.findall(r"^    (\w+(?:, \w+)*):", listed, re.MULTILINE)
    return {name for names in first for name in names.split(", ")}


def test_each_attribute_in_a_docstring_has_a_type() -> None:
    """So that the walk, type checkers and the reference see it."""
    named = {(kind, name) for kind in CLASSES for name in attributes_in_the_docstring(kind)}
    assert len(named) > 20
    untyped = [
        f"{kind.__name__}.{name}"
        for kind, name in named
        if name not in typing.get_type_hints(kind, localns=PUBLIC) and not hasattr(kind, name)
    ]
    assert untyped == []


def test_no_internal_name_is_exported() -> None:
    """Frames are between worker and runner; no function of the API takes a clock."""
    assert not hasattr(outlast, "FrameError")
    assert not any(kind.__module__ == "outlast.base.clock" for kind in CLASSES)


def test_each_public_name_has_a_docstring() -> None:
    named = {name: each for name, each in PUBLIC.items() if name != "__version__"}
    assert [name for name, each in named.items() if not inspect.getdoc(each)] == []


def test_the_options_of_a_worker_are_its_settings() -> None:
    settings = {field.name: field.type for field in msgspec.structs.fields(WorkerSettings)}
    assert typing.get_type_hints(outlast.WorkerOptions) == settings
    assert outlast.WorkerOptions.__required_keys__ == frozenset()
