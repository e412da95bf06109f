"""Note what the attempts of one run do, and find the lines of the user's code that do it."""

from __future__ import annotations

import inspect
import os
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec

import outlast
from outlast.model.crash import Crash
from outlast.testing.crashes.cases import Point

OURS = str(Path(outlast.__file__).parent) + os.sep
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_OBSERVERS = str(Path(__file__).parent) + os.sep
NOWHERE: Mapping[str, str] = MappingProxyType({})
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Trace(msgspec.Struct):
    """What one run has done so far. It can be sent to another process, which goes on from there.

    Attributes:
        job_id: the job.
        points: those that its attempts have reached, until one met its fate.
        lines: where the user's code first had each effect, by its name in the report.
        happened: whether the fate was met.
        locked: whether it was not met because the task's own transaction locked the store.
        may_stop: whether the task can be asked to stop: a coroutine, or one that looks.
        went_on: whether an attempt wrote again after it had got LostLease.
        hit_token: the token of the attempt that met it. ``hit_saves``: how often it had saved.
        failures: the crash reports of attempts that failed by themselves.
        ahead: by how many seconds the clock is ahead.
        requests: how many were sent; all with one key count as one.
        outside: changes of files outside the folder, which the kernel refuses.
        refused: acts that were refused, since they would have been unseen.
    """

    job_id: int = 0
    points: list[Point] = []
    lines: dict[str, str] = {}
    happened: bool = False
    locked: bool = False
    may_stop: bool = False
    went_on: bool = False
    hit_token: int = 0
    hit_saves: int = 0
    failures: list[Crash] = []
    ahead: float = 0.0
    requests: Counter[str] = msgspec.field(default_factory=Counter)
    keys: set[tuple[str, str]] = set()
    outside: set[str] = set()
    refused: list[str] = []


def name_jobs(task: str) -> str:
    """Return how the report names the jobs of a task that were enqueued."""
    return f"jobs of {task}"


class Recorder:
    """Notes in ``trace`` the acts of ``attempt``, one at a time, in any of its threads."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.attempt: Any = None
        self.busy: Callable[[], bool] = lambda: False  # whether the user's code locks the store
        self.release: Callable[[], None] = lambda: None  # end the transactions of the user's code
        self._lock = threading.Lock()

    def reach(
        self, kind: str, what: str, effects: Iterable[str] = (), lines: Mapping[str, str] = NOWHERE
    ) -> None:
        """Come to a point, if this is the code of an attempt. It may meet its fate here; otherwise
        it has these effects: at this line, or at ``lines``."""
        attempt = self.attempt
        if attempt is None:
            return
        line = find_line()
        attempt.crash_watch.reach(attempt, kind, what, line)
        for effect, own in {**dict.fromkeys(effects, line), **lines}.items():
            self.trace.lines.setdefault(effect, own)

    def note_request(self, label: str, key: str | None) -> None:
        """Count a request, unless one with this key was counted."""
        trace = self.trace
        with self._lock:
            if key is None or (label, key) not in trace.keys:
                trace.requests[label] += 1
            trace.keys |= {(label, key)} if key is not None else set()
            trace.lines.setdefault(label, find_line())

    def note_outside(self, what: str) -> None:
        """Note that the code of an attempt tries to change a file outside the folder."""
        self.trace.outside.add(f"{what} ({find_line()})")

    def refuse(self, text: str) -> NoReturn:
        """Refuse an act that would be unseen; remember it in case the task goes on."""
        line = find_line()
        text = f"{text}{f' ({line})' if line else ''}"
        with self._lock:
            self.trace.refused.append(text)
        raise PermissionError(1, text)


_under_way: list[Recorder] = [Recorder()]


def here() -> Recorder:
    """Return the recorder of the run that is under way."""
    return _under_way[-1]


@contextmanager
def record(recorder: Recorder) -> Iterator[None]:
    """Within the block, this is the recorder of the run."""
    _under_way.append(recorder)
    try:
        yield
    finally:
        _under_way.remove(recorder)


@cache
def owner_of(path: str) -> str:
    """Return whose code a file holds: ours, a library's, the standard library's or the user's."""
    if path.startswith(OURS):
        return "ours"
    if any(each in path for each in _PACKAGES):
        return "library"
    return "standard" if path.startswith(("<", *_STANDARD)) else "user"


def is_ours() -> bool:
    """Whether Outlast itself acts, or a module is being imported, not the task."""
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
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
