"""Arguments in lists, as a person would write them: ``book="Emma", pages=20``. Pure."""

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
    """Return stored arguments, whole or cut, as those of a call, each value as JSON; of a command,
    the command; of encoded ones only that they are. What is no JSON object is returned as it is."""
    if is_encoded(stored):
        return "(encoded)"
    args = _decode(stored)
    if not isinstance(args, dict):
        return stored
    if task == SHELL_TASK and isinstance(args.get("argv"), list):
        return shlex.join(map(str, args["argv"]))
    return ", ".join(f"{name}={json.dumps(one, ensure_ascii=False)}" for name, one in args.items())


def _decode(text: str) -> Any:
    """Return what JSON holds; of one whose end was cut, what is there of it. None: it is none."""
    ways: tuple[Callable[[str], str], ...] = (str, _close, _close_at_comma)
    for way in ways:
        try:
            return json.loads(way(text))
        except (ValueError, RecursionError):
            continue
    return None


def _close(text: str) -> str:
    """Return a text of which the end was cut, with the quote and the brackets that it lacks."""
    opened, is_within = _scan(text)[:2]
    if is_within:
        part = _PART_OF_ESCAPE.search(text)
        text = f'{text if part is None else text[: part.start(1)]}…"'
    return text + "".join(_CLOSING[each] for each in reversed(opened))


def _close_at_comma(text: str) -> str:
    """Return the same of a text up to its last comma between values: behind it a name was cut."""
    return _close(text[: _scan(text)[2]])


def _scan(text: str) -> tuple[list[str], bool, int]:
    """Return the brackets that are open at the end, whether that is within a text, and where the
    last comma between texts is."""
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
