"""Note what the attempts of one run do, and find the lines of the user's code that do it."""

from __future__ import annotations

import inspect
import os
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import outlast
from outlast.client.attempt_context import find_current

OURS = str(Path(outlast.__file__).parent) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_OBSERVERS = str(Path(__file__).parent) + os.sep
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Effect(msgspec.Struct, frozen=True):
    """What an attempt did. ``lines``: where it did its parts, such as the tables of a commit."""

    kind: str
    what: str
    line: str
    lines: dict[str, str] = {}


class Recorder:
    """What the attempts of one run do. ``reach`` may be called in any thread."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.refused: list[str] = []
        self.unanswered: list[str] = []  # requests that no recording has
        self.requests: Counter[str] = Counter()  # with one key, many count as one
        self.request_lines: dict[str, str] = {}
        self.busy: Callable[[], bool] = lambda: False  # whether the user's code locks the store
        self.release: Callable[[], None] = lambda: None  # end the transactions of the user's code
        self._keys: set[tuple[str, str]] = set()
        self._answered: Counter[Any] = Counter()
        self._lock = threading.Lock()

    def attempt(self) -> Any:
        """Return the ``CrashAttempt`` of this run in whose code this is, or None."""
        attempt = find_current()
        return attempt if getattr(attempt, "recorder", None) is self else None

    def reach(self, kind: str, what: str, lines: dict[str, str] | None = None) -> None:
        """Come to a point, if this is the code of an attempt, which may meet its fate here."""
        attempt = self.attempt()
        if attempt is None:
            return
        line = find_line()
        attempt.crash_watch.reach(attempt, kind, what, line)
        with self._lock:
            self.effects.append(Effect(kind, what, line, lines or {}))

    def note_request(self, label: str, key: str | None, host: str) -> None:
        """Count a request to a host, unless one with this key was counted."""
        with self._lock:
            if key is None or (label, key) not in self._keys:
                self.requests[label] += 1
            self._keys |= {(label, key)} if key is not None else set()
            asked = [
                each.line for each in self.effects if each.kind == "request" and host in each.what
            ]
            self.request_lines.setdefault(label, asked[-1] if asked else "")

    def count_answer(self, key: Any) -> int:
        """Return how many answers to this were given before."""
        with self._lock:
            self._answered[key] += 1
            return self._answered[key] - 1

    def refuse(self, text: str) -> NoReturn:
        """Refuse what would leave the sandbox, and remember that, should the task go on."""
        line = find_line()
        text = f"{text}{f' ({line})' if line else ''}"
        with self._lock:
            self.refused.append(text)
        raise PermissionError(1, text)


@cache
def owner_of(path: str) -> str:
    """Return whose a file of code is: ours, of a library, of the standard one, or the user's."""
    if path.startswith(OURS):
        return "ours"
    if any(each in path for each in _PACKAGES):
        return "library"
    return "standard" if path.startswith(("<", *_STANDARD)) else "user"


def is_ours() -> bool:
    """Whether this is no doing of the task: Outlast itself has called the standard library, or a
    module is being imported."""
    frame, by_library = inspect.currentframe(), False
    while frame is not None:
        path = frame.f_code.co_filename
        owner = "standard" if path.startswith(_OBSERVERS) else owner_of(path)
        if owner == "user" or path.startswith("<frozen importlib"):
            return owner != "user"
        if owner == "ours":
            return not by_library
        by_library = by_library or owner == "library"
        frame = frame.f_back
    return False


def find_line() -> str:
    """Return FILE:LINE of the innermost line of the user's code; "" if there is none here."""
    frame = inspect.currentframe()
    while frame is not None:
        if owner_of(frame.f_code.co_filename) == "user":
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
