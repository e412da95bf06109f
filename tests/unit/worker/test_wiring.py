"""What an object of the worker holds is set by that object alone."""

from __future__ import annotations

import ast

import pytest

from tests.cases import each_case
from tests.unit.tidy_kit import CODE, ROOT, faults, nodes, parsed

pytestmark = pytest.mark.xdist_group("tidy")
MODULES = [path for path in CODE if path.is_relative_to(ROOT / "src" / "outlast" / "worker")]
# The record of an attempt, which InFlight and the pool write; that of a runner, which the parts
# of its pool write; and Popen, told of its child's end.
RECORDS = ("running", "self._in_flight.running[frame.token]", "runner", "self._process")


def foreign_assignments(tree: ast.Module) -> list[str]:
    """Return the assignments to attributes of objects other than ``self``."""
    stored = [
        node
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return [
        ast.unparse(each) for each in stored if ast.unparse(each.value) not in {"self", *RECORDS}
    ]


def test_no_attribute_of_another_object_is_set() -> None:
    assert MODULES
    assert faults(MODULES, lambda path: foreign_assignments(parsed(path))) == {}


@each_case("code", ["a.b = 1", "self.a.b = 1", "a.b += 1", "c, a.b = 1, 2"])
def test_an_assignment_to_another_object_is_seen(code: str) -> None:
    assert len(foreign_assignments(ast.parse(code))) == 1
