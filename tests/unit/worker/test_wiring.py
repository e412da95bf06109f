"""What an object of the worker holds is set by that object alone."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted((ROOT / "src" / "outlast" / "worker").rglob("*.py"))
# The record of an attempt, which InFlight and the pool write; that of a runner, which the parts
# of its pool write; and Popen, told of its child's end.
RECORDS = ("running", "self._in_flight.running[frame.token]", "runner", "self._process")


def foreign_assignments(tree: ast.Module) -> list[str]:
    """Return the assignments to attributes of objects other than ``self``."""
    stored = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    )
    return [ast.unparse(each) for each in stored if ast.unparse(each.value) != "self"]


def test_no_attribute_of_another_object_is_set() -> None:
    assert MODULES
    found = [
        (path.name, each)
        for path in MODULES
        for each in foreign_assignments(ast.parse(path.read_text()))
    ]
    assert [each for each in found if each[1].rpartition(".")[0] not in RECORDS] == []


@each_case("code", ["a.b = 1", "self.a.b = 1", "a.b += 1", "c, a.b = 1, 2"])
def test_an_assignment_to_another_object_is_seen(code: str) -> None:
    assert len(foreign_assignments(ast.parse(code))) == 1
