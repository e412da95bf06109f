"""Rows of random content: what any program may write into the tables."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from outlast.model.crash import Crash, Progress
from outlast.model.job import Policy
from tests.conformance.hostile_kit import VALUES

INT64 = 2**63
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=20)
)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


def _alike(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """JSON with the names of a struct of ours, and anything behind them."""
    fields: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(kind.__struct_fields__, _json)
    return st.fixed_dictionaries({}, optional=fields)


texts = st.one_of(
    st.text(max_size=50),
    st.builds(json.dumps, st.one_of(_json, _alike(Policy), _alike(Progress), _alike(Crash))),
    st.builds(lambda depth, open_: open_ * depth, st.integers(1, 20_000), st.sampled_from("[{")),
)
values = st.one_of(
    st.none(), st.integers(-INT64, INT64 - 1), st.floats(), st.binary(max_size=20), texts
)


def literals(dialect: str) -> st.SearchStrategy[str]:
    """Values as SQL has them."""
    write = _sqlite if dialect == "sqlite" else _postgres
    return st.sampled_from(VALUES[dialect]) | values.map(write)


def _sqlite(value: Any) -> str:
    if isinstance(value, bytes):
        return f"CAST(x'{value.hex()}' AS TEXT)" if len(value) % 2 else f"x'{value.hex()}'"
    if isinstance(value, float):
        return "NULL" if value != value else repr(value).replace("inf", "9e999")  # noqa: PLR0124
    return str(value) if isinstance(value, int) else _quoted(value)


def _postgres(value: Any) -> str:
    return _quoted(None if value is None else str(value))


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    clean = text.encode("utf-8", "replace").decode().replace("\0", "").replace("'", "''")
    return f"'{clean}'"
