"""Format arguments in lists as a person would write them: ``book="Emma", pages=20``. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from outlast.model.job import SHELL_TASK
from outlast.payload.payloads import is_encoded

_PART_OF_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)$")
_CLOSING = {"[": "]", "{": "}"}


def describe_call(task: str, stored: str) -> str:
    """Return stored arguments, whole or cut, as the arguments of a call, each value as JSON. A
    command is shown as the command, encoded arguments only as encoded, and a text that is not JSON
    object as it is."""
    if is_encoded(stored):
        return "(encoded)"
    args = _decode(stored)
    if not isinstance(args, dict):
        return stored
    if task == SHELL_TASK and isinstance(args.get("argv"), list):
        return shlex.join(map(str, args["argv"]))
    return ", ".join(f"{name}={json.dumps(one, ensure_ascii=False)}" for name, one in args.items())


def _decode(text: str) -> Any:
    """Return the value of a JSON text, or as much as a cut text still holds; None: it is no
    JSON."""
    ways: tuple[Callable[[str], str], ...] = (str, _close, _close_at_comma)
    for way in ways:
        try:
            return json.loads(way(text))
        except (ValueError, RecursionError):
            continue
    return None


def _close(text: str) -> str:
    """Return a text whose end was cut, completed with the missing quote and brackets."""
    opened, is_within = _scan(text)[:2]
    if is_within:
        part = _PART_OF_ESCAPE.search(text)
        text = f'{text if part is None else text[: part.start(1)]}…"'
    return text + "".join(_CLOSING[each] for each in reversed(opened))


def _close_at_comma(text: str) -> str:
    """Do the same up to the last comma between values: behind that a name was cut."""
    return _close(text[: _scan(text)[2]])


def _scan(text: str) -> tuple[list[str], bool, int]:
    """Return the brackets that are open at the end, whether the end is within a string, and the
    position of the last comma between strings."""
    opened: list[str] = []
    is_within = is_escaped = False
    comma = 0
    for at, one in enumerate(text):
        if is_within:
            is_within = is_escaped or one != '"'
            is_escaped = one == "\\" and not is_escaped
        elif one == '"':
            is_within = True
        elif one in _CLOSING:
            opened.append(one)
        elif one in "]}" and opened:
            opened.pop()
        elif one == ",":
            comma = at
    return opened, is_within, comma
