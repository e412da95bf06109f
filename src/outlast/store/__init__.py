"""The store: the one truth about jobs and leases. ``open_store`` picks it by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.credentials import redacted
from outlast.errors import ConfigError

if TYPE_CHECKING:
    from outlast.store.base import Store

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
        from outlast.store.sqlite import SqliteStore

        return SqliteStore(url, **settings)
    if scheme in {"postgres", "postgresql"}:
        return _postgres(url, **settings)
    raise ConfigError(f"{redacted(url)!r} is no store's URL; write one of: {'; '.join(FORMS)}")


def _postgres(url: str, **settings: Any) -> Store:
    try:
        from outlast.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("asyncpg"):
            raise
        raise ConfigError(
            "PostgreSQL needs the driver asyncpg: pip install 'outlast[postgres]'"
        ) from error
    return PostgresStore(url, **settings)
