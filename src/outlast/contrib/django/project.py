"""The project as an application: the database in which its jobs are, and its App."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.module_loading import import_string

from outlast.app import App
from outlast.contrib.django.database import url_of
from outlast.store.foreign.connection import foreign
from outlast.store.values import Enqueued, NewJob
from outlast.stores import StoreProvider

NO_SCHEMA = (
    "the database {!r} has no tables of Outlast: add 'outlast.contrib.django' to INSTALLED_APPS and"
    " run `manage.py migrate{}`"
)


@cache
def database() -> str:
    """Return the name of the database that is the store, as the backends in TASKS say."""
    names = {options.get("database", DEFAULT_DB_ALIAS) for options in _options()}
    return _the_only("database", names) or DEFAULT_DB_ALIAS


@cache
def own_url() -> str | None:
    """Return the URL of the store, where a backend in TASKS gives one."""
    return _the_only("url", {options["url"] for options in _options() if options.get("url")})


def _the_only(what: str, found: set[str]) -> str | None:
    if len(found) > 1:
        raise ImproperlyConfigured(
            f"the backends of Outlast in TASKS have more than one {what}: all jobs of a project"
            " are in one store"
        )
    return next(iter(found), None)


def _options() -> list[dict[str, Any]]:
    given = (getattr(settings, "TASKS", None) or {}).values()
    return [each.get("OPTIONS") or {} for each in given if _is_ours(each.get("BACKEND", ""))]


def _is_ours(backend: str) -> bool:
    try:
        return bool(getattr(import_string(backend), "enqueues_in_transaction", False))
    except ImportError:
        return False


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"TASKS", "DATABASES"}:
        database.cache_clear()
        own_url.cache_clear()


setting_changed.connect(_forget)


def store_url() -> str:
    """Return the URL of the project's store."""
    return own_url() or url_of(connections[database()])


class DjangoStores(StoreProvider):
    """The stores of a project. Jobs that go into Django's own transaction need none of them: no
    connection is opened beside Django's."""

    @property
    def url(self) -> str:
        """The store's address: that of Django's database unless another was given."""
        return self._url or store_url()

    async def enqueue(self, batch: Sequence[NewJob], connection: object = None) -> list[Enqueued]:
        """As StoreProvider, which has to compare the ids of two stores unless both are one."""
        if not self._is_its_own(connection):
            return await super().enqueue(batch, connection)
        here = foreign(connection, notify=self._notifies(), clock=self.clock)
        if await here.store_id() is None and await here.store_id(refresh=True) is None:
            where = "" if database() == DEFAULT_DB_ALIAS else f" --database {database()}"
            raise ImproperlyConfigured(NO_SCHEMA.format(database(), where))
        return await here.enqueue(batch)

    def _is_its_own(self, connection: object) -> bool:
        """Whether the store's address was derived from this connection."""
        alias = None if connection is None else getattr(connection, "alias", None)
        return self._url is None and alias == database() and own_url() is None


class DjangoApp(App):
    """The App of a project: its store is found when it is first used, by the settings."""

    _provider = DjangoStores


app = DjangoApp()
