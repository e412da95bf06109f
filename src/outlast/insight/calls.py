"""Format arguments in lists as a person would write them: ``book="Emma", pages=20``. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from outlast.model.job import SHELL_TASK
from outlast.payload.payloads import is_encoded

_ENDS = ("", '…"}', "}", '…"]}', "]}")  # of a text whose end was cut, perhaps in a string
_NAME = re.compile(r'(^\{|, ?)"(\w+)": ?')


def describe_call(task: str, stored: str) -> str:
    """Return stored arguments, whole or cut, as the arguments of a call, each value as JSON. A
    command is shown as the command, encoded arguments only as encoded, and a text that is not JSON
    object as it is."""
    if is_encoded(stored):
        return "(encoded)"
    args = _decode(stored)
    if not isinstance(args, dict):  # its end was cut in a name, or deep in a value
        return _NAME.sub(r", \2=", stored).removeprefix(", ")
    if task == SHELL_TASK and isinstance(args.get("argv"), list):
        from shlex import join

        return join(map(str, args["argv"]))
    return ", ".join(f"{name}={json.dumps(one, ensure_ascii=False)}" for name, one in args.items())


def _decode(text: str) -> Any:
    """Return the value of a JSON text, even if its end was cut; None: it cannot be read."""
    for end in _ENDS:
        try:
            return json.loads(text + end)
        except (ValueError, RecursionError):
            continue
    return None
