"""The facts that checks look at, and the document of what they find."""

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
    ``mode``: its permissions, None where it does not exist yet. ``owner``: its owner's name, None
    where that is this user; ``writable``: whether this user may make files in it. ``network``: the
    kind of a file system whose locks are not to be trusted. ``cleaned_by``: the rule by which old
    files in it are deleted."""

    path: str
    beside: bool = False
    mode: int | None = None
    owner: str | None = None
    writable: bool = True
    network: str | None = None
    cleaned_by: str | None = None


class MessengerUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A messenger on another host: whether TLS is asked for, and a login given."""

    place: str
    secured: bool
    login: bool


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """What strangers could read. ``route``: the way to the store's server, None where it has none.
    ``in_arguments``: a password was given as an argument. ``keys``: files of keys that others than
    their owner can use -> their modes, ``owners``: those of them that are another user's -> whose.
    """

    in_arguments: bool = False
    route: Route | None = None
    messenger: MessengerUrl | None = None
    keys: dict[str, int] = {}
    owners: dict[str, str] = {}


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """What MODULE:APP holds; ``error`` where it does not import. ``encryption``: as
    ``Payloads.encryption``."""

    spec: str
    tasks: list[str] = []
    aliases: list[str] = []
    encryption: str = "none"
    error: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen. ``now`` is this machine's, in seconds since 1970;
    ``asked_at``: what it was when the environment was read, for a look at the store's clock. What
    could not be read, because of ``error`` (the store), ``mismatch`` (its schema) or ``denied`` (a
    privilege is missing), is None or empty. ``malformed``: jobs among those that died last whose
    rows cannot be read, by id -> the columns. ``schedules``: the first by name. ``unencrypted``:
    unfinished jobs by task, and how many have plain payloads, where the application encrypts."""

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
