"""Lists what an enqueue stores of a job: the columns of ``outlast_jobs``.

From these lists are made: the statements in ``enqueue.sql`` of both stores and their values,
whether jobs may be stored as one (``store.batches``), and what a role that may only enqueue is
granted. A list stands in a statement as ``{shared}``: the names; ``{n.shared}``: the names, each
after ``n.``; ``{:shared}``: the parameters; ``{:shared[]}``: the parameters as arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from outlast.model.kinds import is_of
from outlast.store.values import Given, NewJob


class Column(msgspec.Struct, frozen=True):
    """The name of a column, its type on PostgreSQL, and the attribute of a job that has its value
    (default: of the same name)."""

    name: str
    type: str
    path: str = ""

    @property
    def take(self) -> Callable[[NewJob], Any]:
        """Return the function that reads its value of a job."""
        return attrgetter(self.path or self.name)


OWN = (
    Column("args", "text"),
    Column("tenant", "text"),
    Column("key", "text"),
    Column("stream", "bigint"),
    Column("needs", "text"),
)
"""The columns in which jobs that are stored as one, with many arguments, may differ. Each statement
says how."""
_OWN = {column.name for column in OWN}
_TYPES = {str: "text", int: "integer", float: "float8", bool: "boolean"}
SHARED = (
    Column("task", "text"),
    *(
        Column(field.name, next(_TYPES[kind] for kind in _TYPES if is_of(field.type, kind)))
        for field in msgspec.structs.fields(Given)
        if field.name not in _OWN
    ),
    Column("policy", "text", "policy_text"),
    Column("timeout", "float8", "policy.timeout"),
    Column("keep", "float8", "policy.keep"),
)
"""The columns that such jobs share: the fields of ``Given``, and some made from the policy."""
TIMED = (
    Column("delay", "float8", "due_in"),
    Column("run_at", "float8"),
    Column("expires", "float8"),
    Column("expires_at", "float8"),
    Column("aged_by", "float8"),
    Column("waits", "boolean", "has_to_wait"),
)
"""No columns, but inputs of the columns that a store computes with its own clock."""
PATHS: Mapping[str, str] = {
    column.name: column.path or column.name for column in (*SHARED, *OWN, *TIMED)
}
"""Column -> the attribute of a job that has its value."""
COMPUTED = ("run_at", "enqueued_at", "position", "expires_at", "aged", "state", "awaited")
STORED = (*(column.name for column in (*SHARED, *OWN)), *COMPUTED)
"""The names of all columns that an enqueue sets."""

_LISTS = {"shared": SHARED, "own": OWN, "timed": TIMED}
_PLACE = re.compile(r"\{([:\w.]*?)(shared|own|timed)(\[\])?\}")


def fill(text: str) -> str:
    """Return a statement with the lists that it names, in the dialect of PostgreSQL."""
    return _PLACE.sub(lambda found: ", ".join(_written(*found.groups(""))), text)


def _written(before: str, name: str, array: str) -> Iterable[str]:
    for column in _LISTS[name]:
        kind = f"text::{column.type}" if array and column.type != "text" else column.type
        yield before + column.name + (f"::{kind}{array}" if before == ":" else "")


def values_of(job: NewJob, columns: Iterable[Column]) -> dict[str, Any]:
    """Return the values of these columns by their names."""
    return {column.name: column.take(job) for column in columns}


_APART = _OWN | {"policy", "aliases", "after", "on_key"}
rest_of = attrgetter(*[name for name in NewJob.__struct_fields__ if name not in _APART])
"""Returns all in which jobs that are stored as one must be equal, but their policies, which compare
by identity: that is quick, and a task has one."""
