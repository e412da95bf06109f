"""Lists what an enqueue stores of a job: the columns of ``outlast_jobs``.

From these lists are made: the statements in ``enqueue.sql`` of both stores and their values,
whether jobs may be stored as one (``store.batches``), and what a role that may only enqueue is
granted. A list stands in a statement as ``{shared}``: the names; ``{n.shared}``: the names, each
after ``n.``; ``{:shared}``: the parameters; ``{:shared[]}``: the parameters as arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from outlast.errors import BadData, text_of
from outlast.model.job import Policy
from outlast.model.kinds import is_of
from outlast.store.values import Given, NewJob


class Column(NamedTuple):
    """The name of a column, its type on PostgreSQL, and how its value is taken from a job."""

    name: str
    type: str
    take: Callable[[NewJob], Any]


@lru_cache(maxsize=1_000)
def policy_text(policy: Policy) -> str:
    """Return a policy as it is stored. Raises BadData for a lone surrogate."""
    try:
        return msgspec.json.encode(policy).decode()
    except UnicodeEncodeError as error:
        raise BadData(f"not a text that can be stored: {text_of(error)}") from error


def _given(name: str, kind: str) -> Column:
    return Column(name, kind, attrgetter(name))


OWN = (
    _given("args", "text"),
    _given("tenant", "text"),
    _given("key", "text"),
    _given("stream", "bigint"),
    _given("needs", "text"),
)
"""The columns in which jobs that are stored as one, with many arguments, may differ. Each statement
says how."""
_OWN = {column.name for column in OWN}
_TYPES = {str: "text", int: "integer", float: "float8", bool: "boolean"}
SHARED = (
    _given("task", "text"),
    *(
        _given(field.name, next(_TYPES[kind] for kind in _TYPES if is_of(field.type, kind)))
        for field in msgspec.structs.fields(Given)
        if field.name not in _OWN
    ),
    Column("policy", "text", lambda job: policy_text(job.policy)),
    Column("timeout", "float8", attrgetter("policy.timeout")),
    Column("keep", "float8", attrgetter("policy.keep")),
)
"""The columns that such jobs share: the fields of ``Given``, and some made from the policy."""
TIMED = (
    Column("delay", "float8", lambda job: max(0.0, job.delay)),
    _given("run_at", "float8"),
    _given("expires", "float8"),
    _given("expires_at", "float8"),
    _given("aged_by", "float8"),
    Column("waits", "boolean", lambda job: bool(job.after)),
)
"""No columns, but inputs of the columns that a store computes with its own clock."""
TAKE: Mapping[str, Callable[[Any], Any]] = {
    column.name: column.take for column in (*SHARED, *OWN, *TIMED)
}
"""Column -> how its value is taken from a job."""
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
        yield before + column.name + (f"::{column.type}{array}" if before == ":" else "")


def values_of(job: NewJob, columns: Iterable[Column]) -> dict[str, Any]:
    """Return the values of these columns by their names."""
    return {column.name: column.take(job) for column in columns}


_APART = _OWN | {"policy", "aliases", "after", "on_key"}
rest_of = attrgetter(*[name for name in NewJob.__struct_fields__ if name not in _APART])
"""Returns all in which jobs that are stored as one must be equal, but their policies, which compare
by identity: that is quick, and a task has one."""
