"""The tree of errors: what its page shows is what there is, and all of it can be imported."""

from __future__ import annotations

import inspect
import re

import outlast
from outlast import errors


def test_the_tree_on_the_page_names_every_error_and_where_it_stands() -> None:
    drawn = re.findall(r"(│?)\s*(?:├──|└──) (\w+)", errors.__doc__ or "")
    shown = {name for _, name in drawn} | {"OutlastError", "Verdict", "Stopped"}
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    assert shown == set(kinds)
    below = {name for inside, name in drawn if inside}
    roots = {errors.OutlastError, errors.Verdict, errors.Stopped}
    assert below == {
        name for name, kind in kinds.items() if kind not in roots and kind.__base__ not in roots
    }


def test_every_error_can_be_imported_from_the_top() -> None:
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and kind.__module__ == errors.__name__:
            assert getattr(outlast, name) is kind
            assert name in outlast.__all__
