"""Only the entry of a store knows which store it is: no other code asks."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from outlast.store import backend
from tests.cases import each_case
from tests.unit.tidy_kit import CODE, ROOT, faults, nodes, parsed

pytestmark = pytest.mark.xdist_group("tidy")
LIBRARY = ROOT / "src" / "outlast"
OF_ONE_STORE = [path.parent for path in (LIBRARY / "store").glob("*/backend.py")]
FOLDERS = "|".join(sorted(path.name for path in OF_ONE_STORE))
SCHEMES = "|".join(scheme for each in backend._backends for scheme in each.schemes)
REGISTRY = LIBRARY / "store" / "__init__.py"
NAMES_A_STORE = re.compile(rf"({FOLDERS}|{SCHEMES})(:.*)?$", re.IGNORECASE)
SHARED_CODE = [
    path
    for path in CODE
    if path.is_relative_to(LIBRARY) and not any(path.is_relative_to(own) for own in OF_ONE_STORE)
]


@cache
def classes_of_stores() -> frozenset[str]:
    """Return the names of all classes that are defined in the folder of one store."""
    return frozenset(
        node.name
        for path in CODE
        if any(path.is_relative_to(own) for own in OF_ONE_STORE)
        for node in nodes(parsed(path))
        if isinstance(node, ast.ClassDef)
    )


def store_switches(tree: ast.Module) -> list[int]:
    """Return the lines that ask which of the stores they have: by a name or by a class."""
    return [node.lineno for node in nodes(tree) if isinstance(node, ast.AST) and _asks(node)]  # type: ignore[attr-defined]


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_names_a_store(each) for each in (node.left, *node.comparators))
    if isinstance(node, ast.MatchValue):
        return _names_a_store(node.value)
    if isinstance(node, ast.MatchClass):
        return _has_a_class_of_a_store(node.cls)
    if not isinstance(node, ast.Call):
        return False
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called in {"isinstance", "issubclass"}:
        return _has_a_class_of_a_store(node.args[1])
    if called in {"startswith", "removeprefix", "match", "fullmatch"}:
        return any(_names_a_store(each) for each in node.args)
    return False


def _names_a_store(node: ast.expr) -> bool:
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return any(isinstance(text, str) and NAMES_A_STORE.match(text) for text in texts)


def _has_a_class_of_a_store(node: ast.expr) -> bool:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return bool(names & classes_of_stores())


def imports_of_stores(tree: ast.Module) -> set[str]:
    """Return what is imported from the folder of one store, lazily or not."""
    named = {
        each.name for node in nodes(tree) if isinstance(node, ast.Import) for each in node.names
    } | {
        f"{node.module}.{each.name}"
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    return {name for name in named if re.match(rf"outlast\.store\.({FOLDERS})\b", name)}


def test_only_the_entry_of_a_store_knows_which_store_it_is() -> None:
    assert faults(SHARED_CODE, lambda path: store_switches(parsed(path))) == {}
    others = [path for path in SHARED_CODE if path != REGISTRY]
    assert faults(others, lambda path: imports_of_stores(parsed(path))) == {}


def test_the_registry_imports_entries_alone() -> None:
    assert imports_of_stores(parsed(REGISTRY)) == {
        f"outlast.store.{path.name}.backend.{path.name.upper()}" for path in OF_ONE_STORE
    }
    assert len(backend._backends) == len(OF_ONE_STORE)


@each_case(
    "switch",
    [
        'url.startswith("sqlite")',
        'url.lower().startswith(("sqlite:", "x"))',
        'scheme == "postgresql"',
        'scheme in {"postgres", "postgresql"}',
        "isinstance(store, SqliteStore)",
        "isinstance(store, (int, postgres.PostgresStore))",
        "isinstance(facts, int | SqliteFacts)",
        'match scheme:\n    case "sqlite":\n        pass',
        "match store:\n    case SqliteStore():\n        pass",
        're.match("postgres:", url)',
    ],
)
def test_a_switch_on_the_store_is_found(switch: str) -> None:
    assert store_switches(ast.parse(switch))


@each_case("line", ["from outlast.store.sqlite import url", "import outlast.store.postgres.pool"])
def test_an_import_of_one_store_is_found(line: str) -> None:
    assert imports_of_stores(ast.parse(f"def lazily():\n    {line}"))
