"""Define the settings with their defaults, and check them.

A wrong setting raises ConfigError where it is written; the message says what to write.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from math import isfinite, nan
from pathlib import Path
from typing import Any

import msgspec

from outlast.errors import ConfigError, text_of
from outlast.model.job import BACKFILL_KEY, TICKS_KEY
from outlast.model.lease import LeaseTerms

VERSION: str = sys.modules["outlast"].__version__  # its import leads up to the worker
URL_VARIABLE = "OUTLAST_URL"
URL_DEFAULT = "sqlite:///outlast.db"
WAKEUP_VARIABLE = "OUTLAST_WAKEUP"
TASK_REUSE_VARIABLE = "OUTLAST_TASK_REUSE"

MAX_PAYLOAD = 1024 * 1024  # bytes of one job's arguments, result or checkpoint
NAME_MAX = 200  # characters of the name of a task, queue or worker
KEY_MAX = 500  # characters of a unique key or a tenant
SECONDS_MAX = 100 * 365 * 86_400.0  # the longest span of time: a hundred years
PATTERNS_MAX = 100
CONCURRENCY_MAX = 10_000  # attempts at the same time in one runner
RSS_LEAST = 16 * 1024 * 1024  # bytes: less than any interpreter uses
WEEK = 7 * 86_400.0

HAS_MAX = 1_000_000  # units of one resource that a worker has and tasks use
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}  # seconds
_NOT_IN_NAMES = re.compile(r"[\s,\x00-\x1f\x7f]")
_NOT_IN_KEYS = re.compile(r"[\x00\ud800-\udfff]")


def absolute(path: str | Path) -> Path:
    """Return a path from the root. ConfigError in a folder that was deleted."""
    try:
        return Path(os.path.abspath(path))
    except FileNotFoundError:
        raise ConfigError(
            "the current directory was deleted: change to another one, or write absolute paths"
        ) from None


def resolve_wakeup(url: str | None) -> str | None:
    """Return ``url``, else ``$OUTLAST_WAKEUP``, else None: the store's own wake-ups."""
    return url or os.environ.get(WAKEUP_VARIABLE) or None


def resolve_task_reuse() -> bool:
    """Return whether attempts may share an asyncio task: unless ``$OUTLAST_TASK_REUSE`` is off."""
    chosen = os.environ.get(TASK_REUSE_VARIABLE) or "on"
    if chosen not in {"on", "off"}:
        raise ConfigError(f"{TASK_REUSE_VARIABLE} must be on or off, not {_shown(chosen)}")
    return chosen == "on"


def check_name(what: str, name: object) -> str:
    """Return ``name``; ConfigError if it is not a short text without blanks and commas."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= NAME_MAX
        or _NOT_IN_NAMES.search(name)
        or _NOT_IN_KEYS.search(name)
    ):
        raise ConfigError(
            f"{what} must be a text of 1 to {NAME_MAX} characters without blanks or commas,"
            f" not {_shown(name)}"
        )
    return str.__str__(name)  # drivers do not accept subclasses of str


def check_key(what: str, key: object) -> str:
    """Return ``key``; ConfigError if it is not a short text that every store can hold."""
    if not isinstance(key, str) or not key or len(key) > KEY_MAX or _NOT_IN_KEYS.search(key):
        raise ConfigError(
            f"{what} must be a text of 1 to {KEY_MAX} characters without NULs or lone surrogates,"
            f" not {_shown(key)}"
        )
    return str.__str__(key)


def check_job_key(key: object) -> str:
    """Return the key of a job, or raise ConfigError; keys of schedules are reserved."""
    checked = check_key("key", key)
    if checked.startswith((TICKS_KEY, BACKFILL_KEY)):
        raise ConfigError(
            f"key {_shown(key)} begins as the keys of schedules do: choose one that does not begin"
            f" with {TICKS_KEY} or {BACKFILL_KEY}"
        )
    return checked


def check_seconds(what: str, value: object, *, above_zero: bool = False) -> float:
    """Return a span of time in seconds, given as a number or a timedelta, or raise ConfigError."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(f"{what} must be seconds or a timedelta, not {_shown(value)}")
    if not 0 <= seconds <= SECONDS_MAX:
        raise ConfigError(
            f"{what} must be seconds from 0 to {SECONDS_MAX:.0f}, not {_shown(value)}"
        )
    if above_zero and seconds == 0:
        raise ConfigError(f"{what} must be above 0 seconds")
    return float(seconds)


def check_whole(what: str, value: object, least: int, most: int) -> int:
    """Return a whole number within its limits, both included, or raise ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(
            f"{what} must be a whole number from {least} to {most}, not {_shown(value)}"
        )
    return value


def check_units(what: str, units: object) -> dict[str, int]:
    """Return numbers of units by their names, such as ``{"gpu": 2}``, or raise ConfigError."""
    if not isinstance(units, Mapping):
        raise ConfigError(
            f'{what} must map names to numbers, such as {{"gpu": 1}}, not {_shown(units)}'
        )
    return {
        check_name(f"{what}: a unit", name): check_whole(f"{what} of {name}", count, 1, HAS_MAX)
        for name, count in units.items()
    }


def parse_size(what: str, text: str) -> int:
    """Return bytes from a text such as 500M or 2G (powers of 1,024), or raise ConfigError."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise ConfigError(f"{what} must be a size such as 500M or 2G, not {_shown(text)}")
    return int(float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " "))


def parse_seconds(text: str) -> float:
    """Return seconds from a text such as 90, 1.5, 90s, 15m, 2h or 7d, or raise ConfigError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = nan
    if not isfinite(seconds):
        raise ConfigError(
            f"{_shown(text)} is not a span of time: write seconds, such as 90 or 0.5, or a number"
            " with a unit, such as 90s, 15m, 2h or 7d"
        )
    return seconds


def _shown(value: object) -> str:
    try:
        text = ascii(value)
    except Exception:  # a number of thousands of digits; a class with an odd __repr__
        return f"this {type(value).__qualname__}"
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004


def default_runners() -> int:
    """Return the number of processors that this process may use, at most 4."""
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        usable = os.cpu_count() or 1
    return max(1, min(4, usable))


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one worker. Raises ConfigError for invalid values.

    Attributes:
        queues: the queues to serve; empty means all.
        tags: the tags of this worker; it takes no tasks that require any other tag.
        has: resources that this worker has and its tasks use, such as ``{"gpu": 2}``: its running
            attempts never use more. Each worker counts only its own.
        runners: child processes that run attempts.
        concurrency: attempts of async tasks at the same time in one runner.
        heartbeat, lease: seconds; the lease is at least three times the heartbeat.
        drain_timeout: seconds that running attempts get to finish after a request to stop.
        poll: seconds between polls for work when no wake-up comes.
        keep_completed: seconds for which completed and cancelled jobs are kept; default: 7 days.
            Each worker deletes for all, so the shortest setting among several workers applies.
        keep_workers: seconds for which the rows of gone workers are kept; default: 7 days.
        keep_dead: seconds for which dead jobs are kept; default, or None: until an operator
            requeues or discards them.
        max_rss: bytes of memory of a runner and its children, above which it takes no more
            attempts and is replaced; it is killed above 1.5 times that. Linux only.
        max_jobs_per_runner: attempts after which a runner is replaced.
        redact: regular expressions; crash reports show ``[redacted]`` in place of each match.
        name: the name that people see; default: made from host and process id.
        instance: a name that the platform gives to one living process at a time (the pod of a
            StatefulSet). A new worker takes over at once from the worker that had the name before.
        presence: whether a lock in PostgreSQL proves that the worker lives.
        shell: whether the worker runs the commands of ``outlast run``: every client that enqueues
            can then execute anything that this worker's user can.
        probe_port: the port on which it answers ``/livez``, ``/readyz`` and ``/startupz`` over HTTP
            (0: any free port, which an event names); default: none.
        probe_host: the address of that port; default, or None: all addresses of the machine.
    """

    queues: list[str] = []
    tags: list[str] = []
    has: dict[str, int] = {}
    runners: int = msgspec.field(default_factory=default_runners)
    concurrency: int = 10
    heartbeat: float = 2.0
    lease: float = 60.0
    drain_timeout: float = 25.0
    poll: float = 1.0
    keep_completed: float = WEEK
    keep_workers: float = WEEK
    keep_dead: float | None = None
    max_rss: int | None = None
    max_jobs_per_runner: int | None = None
    redact: list[str] = []
    name: str | None = None
    instance: str | None = None
    presence: bool = True
    shell: bool = False
    probe_port: int | None = None
    probe_host: str | None = None

    def __post_init__(self) -> None:
        _check_names("queues", self.queues, "a queue", ["mail", "analysis"])
        _check_names("tags", self.tags, "a tag", ["gpu", "eu"])
        check_units("has", self.has)
        if self.name is not None:
            check_name("name", self.name)
        if self.instance is not None:
            check_name("instance", self.instance)
        check_whole("runners", self.runners, 1, 256)
        check_whole("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        if self.max_rss is not None:
            _check_rss(self.max_rss)
        _check_patterns(self.redact)
        if self.max_jobs_per_runner is not None:
            check_whole("max_jobs_per_runner", self.max_jobs_per_runner, 1, 10**9)
        if self.probe_port is not None:
            check_whole("probe_port", self.probe_port, 0, 65_535)
        if self.probe_host is not None:
            check_name("probe_host", self.probe_host)
        check_seconds("drain_timeout", self.drain_timeout)
        check_seconds("poll", self.poll, above_zero=True)
        check_seconds("keep_completed", self.keep_completed)
        check_seconds("keep_workers", self.keep_workers)
        if self.keep_dead is not None:
            check_seconds("keep_dead", self.keep_dead)
        check_seconds("heartbeat", self.heartbeat, above_zero=True)
        check_seconds("lease", self.lease, above_zero=True)
        lease_terms(self)


def lease_terms(settings: WorkerSettings) -> LeaseTerms:
    """Return heartbeat and lease, checked against each other."""
    return LeaseTerms(heartbeat=settings.heartbeat, lease=settings.lease)


def _check_rss(size: object) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < RSS_LEAST:
        raise ConfigError(
            f"max_rss must be a number of bytes, at least {RSS_LEAST} (16M), not {_shown(size)}"
        )
    if not sys.platform.startswith("linux"):
        raise ConfigError("max_rss needs /proc, which only Linux has")


def _check_patterns(patterns: object) -> None:
    if not isinstance(patterns, list) or len(patterns) > PATTERNS_MAX:
        raise ConfigError(f"redact must be a list of at most {PATTERNS_MAX} regular expressions")
    for pattern in patterns:
        try:
            found = re.search(pattern, "")
        except (re.error, TypeError, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"redact {_shown(pattern)} is not a regular expression: {text_of(error)}"
            ) from None
        if found:
            raise ConfigError(
                f"redact {_shown(pattern)} matches an empty text: write a pattern that does not"
            )


def _check_names(what: str, names: object, one: str, such_as: list[str]) -> None:
    if not isinstance(names, list):
        raise ConfigError(f"{what} must be a list of names, such as {such_as}")
    for name in names:
        check_name(f"{what}: {one}", name)


def worker_settings(**settings: Any) -> WorkerSettings:
    """Return settings from keyword arguments; ConfigError names an unknown or wrong one."""
    unknown = sorted(set(settings) - set(WorkerSettings.__struct_fields__))
    if unknown:
        known = ", ".join(WorkerSettings.__struct_fields__)
        raise ConfigError(f"a worker has no setting {', '.join(unknown)}; choose from: {known}")
    return WorkerSettings(**settings)
