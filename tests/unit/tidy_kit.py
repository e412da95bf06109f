"""What the tests of house rules share: all files of the code, each read and parsed once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = sorted(
    path
    for folder in ("src", "tests", "harness", "bench", "examples", "tools")
    for path in (ROOT / folder).rglob("*.py")
)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def read(path: Path) -> str:
    return path.read_text()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(read(path), filename=str(path))


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def faults(paths: Iterable[Path], find: Callable[[Path], object]) -> dict[str, object]:
    """Return what is wrong with each of these files, by its name; not those that are right.

    One test looks at all files: as tests of their own they would be half of all tests.
    """
    return {named(path): found for path in paths if (found := find(path))}
