"""Define the facts that checks read, and the document of their findings."""

from __future__ import annotations

import msgspec

from outlast.insight.documents import SCHEMA, Document
from outlast.model.pause import Pause
from outlast.store.finding import Environment, Finding, Level, Route
from outlast.store.rows import Held, WorkerRow
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import Statistics, Unencrypted


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
    """All facts. ``now`` is this machine's time, in seconds since 1970; ``asked_at`` is that time
    when the environment was read, to compare with the store's clock. Facts that could not be read,
    because of ``error`` (the store), ``mismatch`` (its schema) or ``denied`` (a missing privilege),
    are None or empty. ``malformed``: of the jobs that died last, those with unreadable rows, by id
    -> the columns. ``schedules``: the first by name. ``unencrypted``: unfinished jobs with plain
    payloads, counted by task, if the application encrypts."""

    place: str
    now: float
    locks: Locks
    error: str | None = None
    mismatch: str | None = None
    denied: str | None = None
    environment: Environment | None = None
    asked_at: float | None = None
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


def doctor_document(place: str, findings: list[Finding]) -> Document:
    """Return the findings as one JSON document."""
    return {
        "schema": SCHEMA,
        "store": place,
        "problems": sum(one.level is Level.PROBLEM for one in findings),
        "findings": [msgspec.to_builtins(one) for one in findings],
    }
