"""Restores what a task changed in its process before the next task runs there.

The state is taken once, when the application has started, and compared whenever no attempt runs in
the runner. Small jobs end many thousand times a second, so each check is a few system calls (8 us).
The umask cannot be read: setting it to its former value returns the current one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import operator
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from outlast.model.crash import clean
from outlast.runner.printing import find_identity
from outlast.runner.protocol import STACKS_SIGNAL

SIGNALS = tuple(
    {
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM,
        signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2,
        signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU,
    } - {STACKS_SIGNAL}
)  # fmt: skip
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = ("CPU", "AS", "DATA", "FSIZE", "NOFILE", "NPROC")
_STREAMS = {0: ("stdin", "r"), 1: ("stdout", "w"), 2: ("stderr", "w")}
_MODES = ("encoding", "errors", "line_buffering", "write_through")
_get_modes = operator.attrgetter(*_MODES)
ROOM = 1 / 8  # of the descriptors that tasks may open; with fewer left a runner is replaced
NAMES_MAX = 20  # of changed variables that are reported
# signal.getsignal() calls this, and takes ten times as long to make an enum member of the result
_get_handler = importlib.import_module("_signal").getsignal


class ProcessState:
    """The umask, working directory, environment, descriptors, streams, timers, signal handlers and
    limits of this process, and the file that it writes its stacks to.

    ``is_spoiled``: a task has changed what cannot be restored.
    """

    is_spoiled = False

    def __init__(self, stacks: int) -> None:
        """Call it in the main thread, which alone may set signal handlers. ``stacks``: the
        descriptor for the stacks, even if the application has set another one."""
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._folder = _opened(".")
        self._path = _cwd()
        self._variables = os.environ
        self._values = dict(_bytes_of(os.environ))
        self._places = {fd: find_identity(fd) for fd in _STREAMS}
        self._copies = {fd: os.dup(fd) for fd, place in self._places.items() if place is not None}
        self._streams: dict[str, Any] = {name: getattr(sys, name) for name, _ in _STREAMS.values()}
        self._buffers = {name: getattr(it, "buffer", None) for name, it in self._streams.items()}
        self._modes = {name: _modes_of(it) for name, it in self._streams.items()}
        # faulthandler does not tell its file, but holds a reference to it as long as it uses it
        self._stacks = open(stacks, "wb", closefd=False)  # noqa: SIM115
        faulthandler.enable(self._stacks)
        self._stacks_references = sys.getrefcount(self._stacks)
        self._timers = [each for each in _TIMERS if signal.getitimer(each) == (0.0, 0.0)]
        self._handlers = {int(number): _get_handler(number) for number in SIGNALS}
        self._limits = _read_limits()
        most = self._limits["NOFILE"][0]
        self._full_from = most - ROOM * max(0, most - self._find_free())
        self._looks = (
            self._look_at_umask,
            self._look_at_folder,
            self._look_at_variables,
            self._look_at_descriptors,
            self._look_at_room,
            self._look_at_streams,
            self._look_at_stacks,
            self._look_at_timers,
            self._look_at_limits,
        )
        self._looks_in_main_thread = (*self._looks, self._look_at_handlers)

    def restore(self, *, signals: bool = True) -> list[str]:
        """Restore the changed state; return the names of the changes, without values. ``signals``:
        whether signal handlers may have been changed: only the main thread can do that."""
        looks = iter(self._looks_in_main_thread if signals else self._looks)
        changed: list[str] = []
        while True:
            with contextlib.suppress(Exception):  # a failed restore harms no ended attempt
                for look in looks:
                    changed.extend(look())
                return changed

    def _look_at_umask(self) -> Iterator[str]:
        if os.umask(self._umask) != self._umask:
            yield "umask"

    def _look_at_folder(self) -> Iterator[str]:
        if _cwd() == self._path:
            return
        if self._folder is not None:
            os.fchdir(self._folder)  # even if it was renamed
        self._path = _cwd()  # None: it was deleted
        yield "working directory"

    def _look_at_variables(self) -> Iterator[str]:
        if os.environ is not self._variables:
            os.environ = self._variables  # noqa: B003  # the object that the program began with
            yield "environment"
        now, before = _bytes_of(self._variables), self._values
        if now == before:
            return
        changed = {name for name, value in before.items() if now.get(name) != value}
        changed |= now.keys() - before.keys()
        for name in changed:
            _set_variable(name, before.get(name))
        if b"TZ" in changed:
            time.tzset()
        names = sorted(clean(name.decode("utf-8", "replace")) for name in changed)
        yield from (f"variable {name}" for name in names[:NAMES_MAX])

    def _look_at_descriptors(self) -> Iterator[str]:
        for fd, copy in self._copies.items():
            if find_identity(fd) != self._places[fd]:  # closed, or it leads elsewhere
                os.dup2(copy, fd)
                yield f"descriptor {fd}"

    def _look_at_room(self) -> Iterator[str]:
        """Where tasks have left nearly all descriptors open, the next ones would fail."""
        if self._find_free() > self._full_from > 0 and not self.is_spoiled:
            self.is_spoiled = True
            yield "descriptors left open"

    def _find_free(self) -> int:
        """Return the lowest free descriptor."""
        try:
            free = os.dup(self._stacks.fileno())
        except OSError:
            return sys.maxsize
        os.close(free)
        return free

    def _look_at_streams(self) -> Iterator[str]:
        for fd, (name, mode) in _STREAMS.items():
            stream = self._streams[name]
            if stream is not None and _is_shut(stream):
                buffer = self._buffers[name]
                if buffer is None or buffer.closed:
                    buffer = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115
                again = io.TextIOWrapper(buffer, errors="backslashreplace", write_through=True)
                self._streams[name], self._buffers[name], stream = again, buffer, again
                self._modes[name] = _modes_of(again)
            if getattr(sys, name, self) is not stream:
                setattr(sys, name, stream)
                yield f"sys.{name}"
            modes = self._modes[name]
            if fd and modes and stream and _get_modes(stream) != modes:  # input may have been read
                stream.reconfigure(**dict(zip(_MODES, modes, strict=True)))
                yield f"sys.{name}"

    def _look_at_stacks(self) -> Iterator[str]:
        faulthandler.cancel_dump_traceback_later()  # it may end the process; nothing tells of it
        is_ours = sys.getrefcount(self._stacks) == self._stacks_references
        if not is_ours or not faulthandler.is_enabled():
            faulthandler.enable(self._stacks)
            yield "faulthandler"

    def _look_at_timers(self) -> Iterator[str]:
        for timer in self._timers:
            if signal.setitimer(timer, 0) != (0.0, 0.0):
                yield "timer"  # its signal would have reached the next task

    def _look_at_limits(self) -> Iterator[str]:
        if (resource := sys.modules.get("resource")) is None:  # which alone sets limits
            return
        for name, limit in self._limits.items():
            number = getattr(resource, f"RLIMIT_{name}")
            if resource.getrlimit(number) != limit:
                yield f"limit {name}"
                try:
                    resource.setrlimit(number, limit)
                except (ValueError, OSError):  # only root may raise a hard limit
                    self.is_spoiled = True
                    self._limits[name] = resource.getrlimit(number)

    def _look_at_handlers(self) -> Iterator[str]:
        for number, handler in self._handlers.items():
            if _get_handler(number) is not handler and handler is not None:
                signal.signal(number, handler)
                yield f"handler of {signal.Signals(number).name}"


def _read_limits() -> dict[str, tuple[int, int]]:
    """Return the soft and hard limits. The module stays unloaded, unless the application needs it:
    reading the limits takes as long as all other looks."""
    was_loaded = "resource" in sys.modules
    resource = importlib.import_module("resource")
    if not was_loaded:
        del sys.modules["resource"]
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS}


def _is_shut(stream: Any) -> bool:
    """Whether a stream is closed, or was taken from its buffer (``detach``)."""
    try:
        return bool(stream.closed)
    except ValueError:
        return True


def _modes_of(stream: Any) -> tuple[Any, ...]:
    """Return how a stream of Python's own writes. It does not tell its line breaks."""
    is_own = isinstance(stream, io.TextIOWrapper) and not _is_shut(stream)
    return _get_modes(stream) if is_own else ()


def _bytes_of(variables: Any) -> dict[bytes, bytes]:
    """Return the variables in their stored form: decoding each takes twenty times as long."""
    kept: dict[bytes, bytes] = variables._data  # noqa: SLF001
    return kept


def _set_variable(name: bytes, value: bytes | None) -> None:
    if value is None:
        os.environb.pop(name, None)
    else:
        os.environb[name] = value


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _opened(folder: str) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
