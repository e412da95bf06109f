"""Describe what programs see of a thing by one list of fields.

The JSON documents of the command line and of the HTTP API, and the schemas in openapi.json, are
made from the same list, so a field is named once. The names are a contract: they may be added to,
never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from outlast.insight.row import moment, plain
from outlast.model.crash import Progress
from outlast.model.kinds import JSON, TIME, is_of

R = TypeVar("R")
SCHEMA = 1
Document = dict[str, Any]
Computed = tuple[Any, Callable[[R], Any]]
"""A field that is not an attribute of the row: its type, and the function that returns it."""


class Resource(Generic[R]):
    """The fields of one kind of thing, in the order of its document."""

    def __init__(self, name: str, row: type[R], fields: str, /, **others: Any) -> None:
        """``fields``: names, separated by spaces: attributes of the ``row``, and the ``others``.
        One of those is a type, if ``document`` is given its value, or ``Computed``."""
        self.name = name
        self._row, self._names, self._others = row, fields.split(), others

    @cached_property
    def _fields(self) -> dict[str, Computed[R]]:
        """Each field with its type, and the function that returns its value in a document."""
        fields: dict[str, Computed[R]] = {}
        for name in self._names:
            kind = self._others.get(name) or _kind_of(self._row, name)
            fields[name] = kind if isinstance(kind, tuple) else (kind, _reader(name, kind))
        return fields

    @property
    def types(self) -> dict[str, Any]:
        """The type of each field."""
        return {name: kind for name, (kind, _) in self._fields.items()}

    @cached_property
    def kind(self) -> type[msgspec.Struct]:
        """The type of a document, for a schema."""
        return document_type(self.name, self.types)

    def document(self, row: R, **given: Any) -> Document:
        """Return the document of a row; ``given``: values of fields, in place of the row's own."""
        return {
            name: given[name] if name in given else show(row)
            for name, (_, show) in self._fields.items()
        }


def _kind_of(row: type[Any], name: str) -> Any:
    """Return the declared type of a field or property."""
    found = getattr(row, name)
    if isinstance(found, property):
        return get_type_hints(found.fget, include_extras=True)["return"]
    return next(one.type for one in msgspec.structs.fields(row) if one.name == name)


def _reader(name: str, kind: Any) -> Callable[[Any], Any]:
    show = next((show for mark, show in _SHOWN.items() if is_of(kind, mark)), msgspec.to_builtins)
    return lambda row: show(getattr(row, name))


def iso(seconds: float | None) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC, to the microsecond."""
    at = moment(seconds)
    return None if at is None else at.isoformat(timespec="microseconds")


def show_progress(progress: Progress | None) -> Document | None:
    """Return what an attempt has reported, also what it left out."""
    return None if progress is None else msgspec.structs.asdict(progress)


_SHOWN: Mapping[Any, Callable[[Any], Any]] = {TIME: iso, JSON: plain, Progress: show_progress}


def document_type(name: str, types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return the type of a document with fields of these types, all of them required."""
    return msgspec.defstruct(name, [(field, in_json(kind)) for field, kind in types.items()])


_MOMENT: Any = Annotated[datetime, msgspec.Meta(tz=True)]


def in_json(kind: Any) -> Any:
    """Return the type that a value of this type has in a document; ``[JOB]`` is a list of jobs."""
    if isinstance(kind, list):
        return list[in_json(kind[0])]  # type: ignore[misc]
    if isinstance(kind, Resource):
        return kind.kind
    if is_of(kind, JSON):
        return Any
    if is_of(kind, TIME):
        return _MOMENT | None if type(None) in get_args(kind) else _MOMENT
    return kind
