"""The store: the single source of truth about jobs and leases. ``open_store`` picks it by URL.

protocol.py     what a store must do, as verbs, and the limits that all stores share
values.py       what goes into the verbs, and what comes out of them
rows.py         jobs, attempts, workers and refusals as they are read, and the Inspector protocol
statistics.py   numbers that a store counts for people, each of them bounded
environment.py  what a store tells of its server, or its file and disk, for the doctor
history.py      jobs with their closed attempts, page by page, for `outlast verify`
columns.py      JSON and numbers in columns, read the same way by both stores
keys.py         what an enqueue answers where an unfinished job has the key
bisect.py       finds the one bad outcome in a batch, and ends its job
unannounced.py  waiting jobs that no messenger was told of, for the sweeper
presence.py     the lock that a live worker's session holds in the database: the protocol
lockfile.py     a worker's lock file: proof of its death on the same host, and its beat
migrations.py   the rules of schema migrations; the stores run the SQL
postgres/       the store on PostgreSQL
sqlite/         the store on SQLite
foreign/        connections of the caller's own, for the caller's own transactions
turns.py        whose turn it is among the queues
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.credentials import redacted
from outlast.errors import ConfigError

if TYPE_CHECKING:
    from outlast.store.protocol import Store

FORMS = (
    "sqlite:///jobs.db (a file in this directory)",
    "sqlite:////var/lib/jobs.db (an absolute path: four slashes)",
    "postgresql://user:password@host/database",
)


def open_store(url: str, **settings: Any) -> Store:
    """Return the store that the URL names, not yet connected: call its ``open``.

    ``settings`` go to the store's class (``clock=`` and its own). Raises ConfigError for any
    other URL, and where the driver for PostgreSQL is not installed.
    """
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        from outlast.store.sqlite.store import SqliteStore

        return SqliteStore(url, **settings)
    if scheme in {"postgres", "postgresql"}:
        return _postgres(url, **settings)
    raise ConfigError(f"{redacted(url)!r} is no store's URL; write one of: {'; '.join(FORMS)}")


def _postgres(url: str, **settings: Any) -> Store:
    try:
        from outlast.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("asyncpg"):
            raise
        raise ConfigError(
            "PostgreSQL needs the driver asyncpg: pip install 'outlast[postgres]'"
        ) from error
    return PostgresStore(url, **settings)
