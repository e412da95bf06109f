"""What Helm makes of a chart: as much of its template language as the chart in ops/ is written in.

Anything else is an error. Where Helm itself is there, a test compares the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # that of libyaml, where it is built in
_ACTION = re.compile(r"\s*\{\{-\s*(.*?)(?:\s+-\}\}\s*|\s*\}\})|\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_WORD = re.compile(r'"[^"]*"|[()|]|[^\s()|]+')


class Node(NamedTuple):
    """Text, or an action with what it encloses, and its ``else``."""

    action: str
    text: str
    inner: list[Node]
    other: list[Node]


def parse(text: str) -> list[Node]:
    """Return the nodes of a template."""
    tokens = list(_split(text))

    def read(stops: tuple[str, ...]) -> tuple[list[Node], str]:
        nodes: list[Node] = []
        while tokens:
            action, plain = tokens.pop(0)
            if action in stops:
                return nodes, action
            if action.partition(" ")[0] in {"if", "range", "define"}:
                inner, stop = read(("end", "else"))
                other = read(("end",))[0] if stop == "else" else []
                nodes.append(Node(action, "", inner, other))
            elif action or plain:
                nodes.append(Node(action, plain, [], []))
        assert not stops, f"no end of {stops}"
        return nodes, ""

    return read(())[0]


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield texts and actions in turn; a comment is neither."""
    at = 0
    for found in _ACTION.finditer(text):
        yield "", text[at : found.start()]
        action = found[1] or found[2]
        if not action.startswith("/*"):
            yield action, ""
        at = found.end()
    yield "", text[at:]


class Scope(NamedTuple):
    """What names mean: ``.``, and variables, of which ``$`` is the root."""

    here: Any
    names: dict[str, Any]


class Chart:
    """A chart in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._defined: dict[str, list[Node]] = {}
        self._templates: list[list[Node]] = []
        self.values: dict[str, Any] = yaml.safe_load((folder / "values.yaml").read_text())
        for path in sorted((folder / "templates").iterdir()):
            nodes = parse(path.read_text())
            defines = [each for each in nodes if each.action.startswith("define ")]
            self._defined |= {each.action.split('"')[1]: each.inner for each in defines}
            self._templates.append([each for each in nodes if each not in defines])

    def render(self, name: str = "outlast", **values: Any) -> list[dict[str, Any]]:
        """Return the objects of a release with these values over the chart's own."""
        root = {
            "Values": _over(self.values, values),
            "Release": {"Name": name},
            "Files": {"Get": lambda file: (self.folder / file).read_text()},
        }
        texts = [self._text(nodes, Scope(root, {"$": root})) for nodes in self._templates]
        return [one for text in texts for one in yaml.load_all(text, LOADER) if one]

    def _text(self, nodes: list[Node], scope: Scope) -> str:
        return "".join(self._one(node, scope) for node in nodes)

    def _one(self, node: Node, scope: Scope) -> str:
        word, _, rest = node.action.partition(" ")
        if not node.action:
            return node.text
        if word == "if":
            return self._text(node.inner if self._value(rest, scope) else node.other, scope)
        if word == "range":
            return "".join(self._text(node.inner, each) for each in self._each(rest, scope))
        value = self._value(node.action, scope)
        assert isinstance(value, str), node.action
        return value

    def _each(self, said: str, scope: Scope) -> Iterator[Scope]:
        names, _, asked = said.rpartition(":=")
        value = self._value(asked, scope) or []
        items = sorted(value.items()) if isinstance(value, dict) else enumerate(value)
        for pair in items:
            named = zip((each.strip() for each in names.split(",") if names), pair, strict=False)
            yield Scope(pair[1], scope.names | dict(named))

    def _value(self, text: str, scope: Scope) -> Any:
        words = _WORD.findall(text)
        value = self._pipeline(words, scope)
        assert not words, text
        return value

    def _pipeline(self, words: list[str], scope: Scope) -> Any:
        value: list[Any] = []
        while True:
            given: list[Any] = []
            while words and words[0] not in {"|", ")"}:
                given.append(self._operand(words, scope))
            first, *others = given
            value = [first(*others, *value) if callable(first) else first]
            if not words or words.pop(0) == ")":
                return value[0]

    def _operand(self, words: list[str], scope: Scope) -> Any:
        word = words.pop(0)
        if word == "(":
            return self._pipeline(words, scope)
        if word.startswith('"'):
            return word[1:-1]
        if word.startswith((".", "$")):
            start, *path = word.split(".")
            value = scope.names[start] if start else scope.here
            for key in filter(None, path):
                value = None if value is None else value.get(key)
            return value
        functions: dict[str, Callable[..., Any]] = {
            "toJson": json.dumps,
            "not": lambda value: not value,
            "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
            "nindent": lambda by, text: "\n" + re.sub("^", " " * int(by), text, flags=re.MULTILINE),
            "include": lambda name, here: self._text(
                self._defined[name], Scope(here, {"$": here})
            ).lstrip(),
        }
        return functions[word] if word in functions else int(word)


def _over(values: Any, given: Any) -> Any:
    """Return values with those of a user over them; null takes one away."""
    if not (isinstance(values, dict) and isinstance(given, dict)):
        return given
    merged = values | {key: _over(values.get(key), one) for key, one in given.items()}
    return {key: one for key, one in merged.items() if given.get(key, one) is not None}
