"""What a store knows of its server or file, for ``outlast doctor``. Each kind has its own facts."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import msgspec


class PostgresFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL server as this role sees it. Times and ages are in seconds.

    Attributes:
        version: as ``server_version_num``: 140005 is 14.5.
        clock: the server's, in seconds since 1970.
        role: the one of this connection; lacking: privileges that a worker needs and it has not.
        pooled: whether our backend is another than the one that greeted us: a pooler.
        standby: whether it follows another server and takes no writes.
        connections: open ones of clients; connections_max: what is there for this role.
        oldest_transaction: of other sessions of this database, as far as this role may see.
        prepared, oldest_prepared: transactions that wait for their second phase.
        notify_queue: how full the queue of notifications is, 0 to 1.
        not_vacuumed: tables of Outlast that autovacuum was told to leave alone.
        track_activities: whether the server shows what its sessions do; worker_roles: those of the
            sessions that hold workers' presence.
        strangers: roles that may connect and have no rights on the jobs; some, if there are many.
        superuser, owner: whether the role of this connection is one, or owns the tables.
        open_schemas: those of the search_path in which every role may create.
        unlogged: tables of Outlast that a crash empties; encoding: of the database.
    """

    version: int
    clock: float
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    autovacuum: str
    pooled: bool
    standby: bool
    connections: int
    connections_max: int
    prepared: int
    two_phase: bool
    notify_queue: float
    not_vacuumed: list[str]
    role: str
    lacking: list[str] = []
    superuser: bool = False
    owner: bool = False
    open_schemas: list[str] = []
    unlogged: list[str] = []
    encoding: str = "UTF8"
    track_activities: str = "on"
    worker_roles: list[str] = []
    strangers: list[str] = []
    oldest_transaction: float | None = None
    oldest_prepared: float | None = None


class SqliteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A SQLite file. ``synchronous`` is that of a worker's connection (2: FULL), None where this
    user may not write; ``network`` is the kind of a file system that is not to be trusted.
    ``open_to``: those of its files and directories that users beside its owner can use -> their
    modes; ``owners``: those of them that are another user's -> whose. ``directory_mode``: of the
    directory that the file is in."""

    version: str
    faults: list[str]
    path: str
    journal_mode: str
    synchronous: int | None
    writable: bool
    free_bytes: int
    wal_bytes: int
    network: str | None = None
    open_to: dict[str, int] = {}
    owners: dict[str, str] = {}
    directory_mode: int = 0o700


Environment = PostgresFacts | SqliteFacts


def owner_unless_own(path: str | Path) -> str | None:
    """Return the name of a file's owner; None where that is this user, or nothing is there."""
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return None
    if uid == os.geteuid():
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
