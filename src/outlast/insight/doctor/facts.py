"""Define the facts that checks read, read them from a store, and make the document of findings."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from outlast.errors import NotPermitted, SchemaMismatch, StoreError, text_of
from outlast.insight.availability import list_alive
from outlast.insight.queries import read_workers
from outlast.insight.resource import SCHEMA, Document
from outlast.model.job import State
from outlast.model.pause import Pause
from outlast.store.finding import Environment, Finding, Level, Route
from outlast.store.inspector import ReadableStore
from outlast.store.rows import Held, JobFilter, WorkerRow
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import DueJobs, Statistics, Unencrypted


class Locks(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of lock files on this machine. ``beside``: it is beside the store's file.
    ``mode``: its permissions, None if it does not exist yet. ``owner``: its owner's name, None if
    that is this user; ``writable``: whether this user may create files in it. ``network``: its file
    system, if that is of a kind whose locks cannot be trusted. ``cleaned_by``: the rule by which
    old files in it are deleted."""

    path: str
    beside: bool = False
    mode: int | None = None
    owner: str | None = None
    writable: bool = True
    network: str | None = None
    cleaned_by: str | None = None


class MessengerUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A messenger on another host: whether its URL requires TLS, and has a login."""

    place: str
    secured: bool
    login: bool


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """What strangers could read. ``route``: the way to the store's server, None if it has none.
    ``in_arguments``: a password was given as an argument. ``keys``: key files that others than
    their owner can use -> their modes; ``owners``: key files of another user -> that user.
    """

    in_arguments: bool = False
    route: Route | None = None
    messenger: MessengerUrl | None = None
    keys: dict[str, int] = {}
    owners: dict[str, str] = {}


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The application MODULE:APP; ``error`` if it does not import. ``encryption``: as
    ``Payloads.encryption``."""

    spec: str
    tasks: list[str] = []
    aliases: list[str] = []
    encryption: str = "none"
    error: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts. ``now`` is this machine's time, in seconds since 1970. Facts that could not be
    read, because of ``error`` (the store), ``mismatch`` (its schema) or ``denied`` (a missing
    privilege), are None or empty. ``malformed``: of the jobs that died last, those with unreadable
    rows, by id -> the columns. ``schedules``: the first by name. ``unencrypted``: unfinished jobs
    with plain payloads, counted by task, if the application encrypts."""

    place: str
    now: float
    locks: Locks
    error: str = ""
    mismatch: str = ""
    denied: str = ""
    environment: Environment | None = None
    workers: list[WorkerRow] = []
    held: list[Held] = []
    pauses: list[Pause] = []
    statistics: Statistics | None = None
    schedules: list[ScheduleRow] = []
    malformed: dict[int, str] = {}
    unencrypted: list[Unencrypted] = []
    exposure: Exposure = Exposure()
    application: Application | None = None
    kubernetes: bool = False

    @property
    def is_read(self) -> bool:
        """Whether all facts of the store could be read."""
        return not (self.error or self.mismatch or self.denied)

    @property
    def live(self) -> list[WorkerRow]:
        """The workers that are alive."""
        return list_alive(self.workers)

    @property
    def lanes(self) -> list[DueJobs]:
        """The due jobs, by queue and task."""
        return [] if self.statistics is None else self.statistics.lanes


def doctor_document(place: str, findings: list[Finding]) -> Document:
    """Return the findings as one JSON document."""
    return {
        "schema": SCHEMA,
        "store": place,
        "problems": sum(one.level is Level.PROBLEM for one in findings),
        "findings": [msgspec.to_builtins(one) for one in findings],
    }


DEAD_LOOKED_AT = 50  # jobs that died last
SCHEDULES_LOOKED_AT = 500  # by name


async def gather(
    store: ReadableStore,
    check_exists: Callable[[ReadableStore], Awaitable[None]],
    *,
    encrypted: bool = False,
) -> dict[str, Any]:
    """Open the store and return fields of ``Facts``: what could be read, and what prevented the
    rest.

    ``check_exists`` raises if there is no store: opening one would create it. ``encrypted``: look
    for payloads that are not encrypted.
    """
    seen: dict[str, Any] = {}
    try:
        await check_exists(store)
        seen["environment"] = await store.inspector.environment()
        await store.open()
        await read_contents(store, seen)
        died = await store.inspector.jobs(JobFilter(state=State.DEAD, limit=DEAD_LOOKED_AT))
        seen["malformed"] = {row.id: row.malformed for row in died if row.malformed is not None}
        if encrypted:
            seen["unencrypted"] = await store.inspector.unencrypted()
    except SchemaMismatch as error:
        seen["mismatch"] = text_of(error)
    except NotPermitted as error:
        seen["denied"] = text_of(error)
        with contextlib.suppress(StoreError):
            # a producer's role may not read the schema's version
            environment = await store.inspector.environment()
            if environment.limited_to is not None:
                seen.setdefault("environment", environment)
    except StoreError as error:
        seen["error"] = text_of(error)
    return seen


async def read_contents(store: ReadableStore, seen: dict[str, Any]) -> None:
    """Read the facts about workers, what waits for them, and schedules, one after the other."""
    seen["workers"] = await read_workers(store)
    seen["pauses"] = await store.inspector.pauses()
    seen["held"] = await store.inspector.held()
    seen["statistics"] = await store.inspector.statistics()
    seen["schedules"] = await store.inspector.schedules(SCHEDULES_LOOKED_AT)
