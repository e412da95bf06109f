"""Counts phrases that no native engineer writes, in the texts of src: the counts may only fall."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.unit.tidy_kit import ROOT, nodes, parsed, read

pytestmark = pytest.mark.xdist_group("tidy")
_ASKS = r"(?<!says )(?<!say )(?<!tells )(?<!tell )(?<!shows )(?<!show )(?<!knows )(?<!know )"
ODD = {
    "what is, what the (name the thing: the jobs that wait, not what waits)": (
        re.compile(_ASKS + r"\bwhat (?:is|are|was|were|has|had|the)\b"),
        126,
    ),
    "those that, those of (repeat the noun: the jobs that, the jobs of)": (
        re.compile(r"\bthose (?:that|of|who|which|with|without|in|under)\b"),
        90,
    ),
    "is no X (write: is not an X)": (
        re.compile(
            r"(?<!there )\b(?:is|are|was|were|be) no"
            r" (?!longer\b|more\b|other\b|less\b|such\b|matter\b|one\b)[a-z]+"
        ),
        7,
    ),
}
"""Kind -> its pattern, and how often src has it. Lower a number when its count has fallen."""
SLACK = 20  # by which a count may be below its number, so that each deletion need not lower it


def texts(path: Path) -> list[str]:
    """Return the texts that a file of code has for people: comments, docstrings and literals."""
    if path.suffix == ".sql":
        return [" ".join(re.findall(r"--(.*)", read(path)))]
    tree = parsed(path)
    literals = [
        node.value
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(read(path)).readline)
    comments = [token.string.lstrip("#") for token in tokens if token.type == tokenize.COMMENT]
    return [*literals, " ".join(comments)]


def count(pattern: re.Pattern[str], found: list[str]) -> int:
    return sum(len(pattern.findall(" ".join(text.split()).lower())) for text in found)


def test_odd_phrases_become_fewer() -> None:
    code = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql")]
    found = [text for path in sorted(code) for text in texts(path)]
    counts = {kind: (count(pattern, found), most) for kind, (pattern, most) in ODD.items()}
    more = {kind: pair for kind, pair in counts.items() if pair[0] > pair[1]}
    assert not more, f"write these otherwise; (now, at most): {more}"
    fewer = {kind: pair for kind, pair in counts.items() if pair[0] <= pair[1] - SLACK}
    assert not fewer, f"lower these numbers in ODD; (now, at most): {fewer}"


@each_case(
    ("text", "kinds"),
    [
        ("Return what is\n    kept.", "what"),
        ("Cancel those of a tenant.", "those"),
        ("The line is no hash.", "is"),
        ("There is no job, and it is no longer known.", ""),
        ("It says what is wrong.", ""),
    ],
)
def test_an_odd_phrase_is_counted(text: str, kinds: str) -> None:
    seen = [kind.split()[0] for kind, (pattern, _) in ODD.items() if count(pattern, [text])]
    assert " ".join(seen) == kinds
