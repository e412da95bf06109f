"""Open files for the code of a task so that their end is a point: a killed process loses what its
files have buffered."""

from __future__ import annotations

import builtins
import io
import os
import weakref
from collections.abc import Callable
from typing import Any

from outlast.testing.crashes.recorder import here, is_ours

Open = Callable[..., Any]
REAL_OPEN: Open = builtins.open


def observe(name_of: Callable[[str], str]) -> None:
    """Observe this process's files from now on. ``name_of`` names one, "" if it does not last."""

    def open_file(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        opened = REAL_OPEN(file, mode, *args, **kwargs)
        is_path, is_written = not isinstance(file, int), not {*"wax+"}.isdisjoint(mode)
        if is_path and is_written and here().attempt is not None and not is_ours():
            opened.close = _closing(opened, name_of(os.fsdecode(file)))
        return opened

    builtins.open = io.open = open_file


def _closing(opened: Any, name: str) -> Callable[[], None]:
    held, names = weakref.ref(opened), [name] if name else []  # a file may end by being dropped
    recorder = here()

    def close() -> None:
        told = names[:]
        names.clear()
        if told:
            recorder.reach("file", f"write {name}", told)
        file: Any = held()
        type(file).close(file)

    return close
