"""Write the worker's log, without ever blocking: every event, as a line for people or as JSON, and
what its runners write, in the order in which they come.

A worker that waited for the reader of its log would stop its heartbeat when a pipe is full or a
terminal is paused. So ``emit`` only puts the event on a bounded queue; a thread renders and writes
it. What does not fit is dropped and counted, and the count is logged once there is space again.
To wake the thread costs more than to write a line, so the start and the end of an attempt wait a
moment for company; all else is written at once, with what waits.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

import structlog

from outlast.base.clock import SYSTEM, Clock
from outlast.base.credentials import hide_logins
from outlast.base.text import safe
from outlast.errors import text_of
from outlast.events import CATALOGUE, Subscriber, subscribe

STDERR = 2
QUEUE_MAX = 5_000  # entries; a few megabytes, or 40 if all are the longest lines of output
OUTPUT_BYTES_MAX = 8_000_000  # of runners' output that waits
# events that come with each attempt, by kind: if all is well, and if each attempt fails
ROUTINE = {
    "attempt_started": 0,
    "attempt_ended": 0,
    "result_mismatched": 0,
    "runner_restored": 0,
    "attempt_failed": 1,
}
ROUTINE_MAX = 100  # entries of a kind in a second; an entry costs more than a small job
# steps of each start, which a person sees only if they are repeated, as after an outage
STEPS = {
    "worker_registered",
    "worker_started",
    "wakeup_ready",
    "presence_taken",
    "reconciliation_complete",
}
OF_HEALTHY_RUNNERS = {"runner_started", "runner_ready"}
MAY_WAIT = {"attempt_started", "attempt_ended"}
GATHER_SECONDS = 0.1  # for which these wait
TOGETHER_MAX = 100  # entries in a write
RETRY_SECONDS = 0.5
CLOSE_SECONDS = 2.0  # for the last lines, if the reader takes them

Entry = MutableMapping[str, Any]
Renderer = Callable[[Entry], str]


class LogWriter:
    """A thread that renders and writes entries to a descriptor, and runners' output unchanged; it
    drops rather than blocks.

    Attributes:
        dropped: how many entries and chunks did not fit and have not been reported yet.
    """

    def __init__(self, render: Renderer, fd: int = 2, most: int = QUEUE_MAX) -> None:
        self._render = render
        self._fd = fd
        self._most = most
        self._queue: queue.SimpleQueue[Entry | str | bytes] = queue.SimpleQueue()
        self._chunks = self._bytes = 0  # of output that were taken
        self._chunks_out = self._bytes_out = 0  # of these, left the queue; the thread counts them
        self._hurry = threading.Event()
        self._is_closing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="outlast-log", daemon=True)
        self._thread.start()

    def put(self, entry: Entry | str) -> None:
        """Accept an entry to render, or a finished text. Never waits."""
        if self._queue.qsize() - (self._chunks - self._chunks_out) >= self._most:
            self.dropped += 1
            return
        self._queue.put(entry)
        if isinstance(entry, str) or entry["event"] not in MAY_WAIT:
            self._hurry.set()

    def write(self, _pid: int, data: bytes, _token: int | None = None) -> None:
        """Accept a chunk of a runner's output. Never waits; from the loop's thread."""
        if self._bytes - self._bytes_out + len(data) > OUTPUT_BYTES_MAX:
            self.dropped += 1
            return
        self._chunks += 1
        self._bytes += len(data)
        self._queue.put(data)
        self._hurry.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is queued, as far as that can be done in ``seconds``."""
        self._is_closing = True
        self._queue.put("")  # then the thread does not wait for an entry
        self._hurry.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not (self._is_closing and self._queue.empty()):
            first = self._queue.get()
            self._hurry.wait(GATHER_SECONDS)
            self._hurry.clear()
            rest = [self._queue.get() for _ in range(min(self._queue.qsize(), TOGETHER_MAX))]
            items = [first, *rest]
            is_written = write_all(self._fd, b"".join(map(self._text, items)))
            output = [each for each in items if isinstance(each, bytes)]
            self._chunks_out += len(output)
            self._bytes_out += sum(map(len, output))
            if not is_written:
                self.dropped += len(items)
            elif self.dropped and self._queue.qsize() < self._most // 2:
                count, self.dropped = self.dropped, 0
                lost = {"level": "warning", "event": "log_dropped", "entries": count}
                write_all(self._fd, self._text(lost))

    def _text(self, entry: Entry | str | bytes) -> bytes:
        """Return what is written, without the logins of URLs: a driver's error may name one."""
        if isinstance(entry, bytes):
            return entry
        if not isinstance(entry, str):
            try:
                for key, value in entry.items():
                    if isinstance(value, str):
                        entry[key] = hide_logins(value)
                entry = f"{self._render(entry)}\n"
            except Exception as error:
                entry = f"outlast: an entry of the log cannot be shown: {text_of(error)}\n"
        return entry.encode("utf-8", "backslashreplace")


def write_all(fd: int, data: bytes) -> bool:
    """Write everything, however long the reader takes; return False if that fails, as on a full
    disk, or without a reader."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # another process has made the terminal non-blocking
            select.select([], [fd], [], RETRY_SECONDS)
        except OSError:
            return False
    return True


def for_people(write: Subscriber) -> Subscriber:
    """Return a subscriber that leaves out the steps of a start: a worker is ready in one line."""
    left = set(STEPS)

    def write_the_rest(name: str, fields: dict[str, Any]) -> None:
        if name in left:
            left.remove(name)
        elif name not in OF_HEALTHY_RUNNERS:
            write(name, fields)

    return write_the_rest


class Thinned:
    """Writes events, but at most ``ROUTINE_MAX`` a second of the kind that comes with each attempt,
    and as many of the kind that reports a failure.

    The others are counted, and the count is written as ``log_thinned`` with the next one.
    """

    def __init__(self, write: Subscriber, clock: Clock = SYSTEM) -> None:
        self._write = write
        self._clock = clock
        self._since = float("-inf")
        self._told = [0, 0]
        self._left_out = 0

    def __call__(self, name: str, fields: dict[str, Any]) -> None:
        """Accept one event, from any thread: a race costs an entry or shows one more."""
        if name in ROUTINE:
            if not self.thin(name, 1):
                return
            self._told[ROUTINE[name]] += 1
        self._write(name, fields)

    def thin(self, name: str, count: int) -> int:
        """Return how many of ``count`` events may be logged; count the others as left out."""
        if name not in ROUTINE:
            return count
        now = self._clock.boot()
        if now - self._since >= 1.0:
            self._since, self._told = now, [0, 0]
            left_out, self._left_out = self._left_out, 0
            if left_out:
                structlog.get_logger("outlast").info("log_thinned", entries=left_out)
        taken = min(count, ROUTINE_MAX - self._told[ROUTINE[name]])
        self._left_out += count - taken
        return taken


class _Bridge(logging.Handler):
    """Sends messages of the standard library's logging (asyncio's, the stores') the same way."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record."""
        logger = structlog.get_logger()
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        logger.log(record.levelno, text, logger=record.name)


def start_log(*, as_json: bool) -> LogWriter:
    """Configure structlog for this process, listen to all events, and return their writer."""
    colors = os.isatty(STDERR) and not os.environ.get("NO_COLOR") and sys.platform != "win32"
    writer = LogWriter(_json if as_json else text_renderer(colors=colors), STDERR)

    def hand_over(logger: Any, method: str, entry: Entry) -> Entry:
        entry["timestamp"] = SYSTEM.wall()
        writer.put(entry)
        raise structlog.DropEvent

    def write(name: str, fields: dict[str, Any]) -> None:  # without structlog: it is the hot path
        level, at = CATALOGUE[name].level, SYSTEM.wall()
        writer.put({**fields, "event": name, "level": level, "timestamp": at})

    structlog.configure(
        processors=[structlog.processors.add_log_level, hand_over],
        cache_logger_on_first_use=True,
    )
    whole = os.environ.get("OUTLAST_LOG") == "debug"
    subscribe(Thinned(write if as_json or whole else for_people(write)))
    level = logging.DEBUG if whole else logging.WARNING
    logging.getLogger("outlast").setLevel(level)
    logging.getLogger().addHandler(_Bridge(level))
    logging.captureWarnings(capture=True)
    return writer


def _json(entry: Entry) -> str:
    if "timestamp" in entry:
        at = datetime.fromtimestamp(entry["timestamp"], UTC)
        entry["timestamp"] = at.isoformat().replace("+00:00", "Z")
    return json.dumps(entry, default=str)


def text_renderer(*, colors: bool) -> Renderer:
    """Return a function that renders an entry as a line for people, without empty fields."""
    renderer = structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=24)

    def render(entry: Entry) -> str:
        told = {
            safe(name): safe(value) if isinstance(value, str) else value
            for name, value in entry.items()
            if value is not None
        }
        if "timestamp" in entry:
            told["timestamp"] = time.strftime("%H:%M:%S", time.localtime(entry["timestamp"]))
        return str(renderer(None, "", told))

    return render
