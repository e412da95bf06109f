"""What the tests of house rules share: all files of the code, each read and parsed once."""

from __future__ import annotations

import ast
import gc
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
    """Parse a file. Its tree is kept from garbage collections: to look through all trees again and
    again takes three times as long as to parse them."""
    gc.collect()  # what tests have left; nothing is large that is not frozen
    gc.disable()
    try:
        return ast.parse(read(path), filename=str(path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def faults(paths: Iterable[Path], find: Callable[[Path], object]) -> dict[str, object]:
    """Return what is wrong with each of these files, by its name; not those that are right.

    One test looks at all files: as tests of their own they would be half of all tests.
    """
    return {named(path): found for path in paths if (found := find(path))}
