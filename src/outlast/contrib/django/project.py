"""Find the database that holds the jobs of a project, and build the project's App."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils.module_loading import import_string

from outlast.base.clock import Clock
from outlast.base.sync import drive, loop_is_running
from outlast.client.app import App
from outlast.client.limits import Limit, LimitOptions
from outlast.client.stores import StoreProvider
from outlast.client.task import Task
from outlast.client.task_options import TaskOptions
from outlast.contrib.django.connections import keep_connections_fit
from outlast.contrib.django.database import url_of
from outlast.errors import ConfigError, UsageError, text_of
from outlast.store.foreign import foreign
from outlast.store.values import Enqueued, NewJob

R = TypeVar("R")

SETTING, LIMITS = "OUTLAST", "LIMITS"
_AT = f"{SETTING}['{LIMITS}']"
_SUCH_AS = "{'openai': {'running': 20, 'rate': '600/min'}}"
NO_SCHEMA = (
    "the database {!r} has no tables of Outlast: add 'outlast.contrib.django' to INSTALLED_APPS and"
    " run `manage.py migrate{}`"
)


@cache
def database() -> str:
    """Return the name of the database that is the store, from the backends in TASKS."""
    names = {options.get("database", DEFAULT_DB_ALIAS) for options in _options()}
    return _the_only("database", names) or DEFAULT_DB_ALIAS


@cache
def own_url() -> str | None:
    """Return the URL of the store, if a backend in TASKS gives one."""
    return _the_only("url", {options["url"] for options in _options() if options.get("url")})


def _the_only(what: str, found: set[str]) -> str | None:
    if len(found) > 1:
        raise ImproperlyConfigured(
            f"the Outlast backends in TASKS have more than one {what}: give all of them the same,"
            " since all jobs of a project are in one store"
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


@cache
def settings_limits() -> dict[str, Limit]:
    """Declare and return the limits in OUTLAST["LIMITS"]: name -> options of ``app.limit``.
    ImproperlyConfigured for an invalid one."""
    chosen = getattr(settings, SETTING, {})
    is_dict = isinstance(chosen, Mapping)
    unknown = sorted(map(str, chosen.keys() - {LIMITS})) if is_dict else []
    if not is_dict or unknown:
        told = ", ".join(unknown) if is_dict else type(chosen).__name__
        raise ImproperlyConfigured(
            f"{SETTING} has {told}: it must be a dict whose only key is {LIMITS}"
        )
    given = chosen.get(LIMITS, {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{_AT} must be a dict, such as {_SUCH_AS}")
    made = {name: _make_limit(name, options) for name, options in given.items()}
    app.limits.declared.update(made)
    return made


def _make_limit(name: str, options: object) -> Limit:
    if not isinstance(options, Mapping):
        raise ImproperlyConfigured(f"{_AT}[{name!r}] must be a dict, as in {_SUCH_AS}")
    try:
        return app.limits._make(name, options)
    except ConfigError as error:
        raise ImproperlyConfigured(f"{_AT}[{name!r}]: {text_of(error)}") from error


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"TASKS", "DATABASES"}:
        database.cache_clear()
        own_url.cache_clear()
    if setting == SETTING and settings_limits.cache_info().currsize:
        for name in settings_limits():
            del app.limits.declared[name]
        settings_limits.cache_clear()


setting_changed.connect(_forget)


def store_url() -> str:
    """Return the URL of the project's store."""
    return own_url() or url_of(connections[database()])


def _is_of_django(url: str) -> bool:
    try:
        return url == store_url()
    except ImproperlyConfigured:  # the database is in memory, or of another kind
        return False


class DjangoStores(StoreProvider):
    """The stores of a project. Jobs are stored on Django's own connection, unless another
    connection or store is named."""

    @property
    def url(self) -> str:
        """The store's address: the URL of Django's database unless another was given."""
        return self._url or store_url()

    async def _store_jobs(self, batch: Sequence[NewJob], connection: object) -> list[Enqueued]:
        """As StoreProvider does, but on Django's own connection unless another one is given."""
        if connection is None and self._url is None:
            return await _by_django(lambda: self._enqueue_on(batch, connections[database()]))
        return await self._enqueue_on(batch, connection)

    async def _enqueue_on(self, batch: Sequence[NewJob], connection: object) -> list[Enqueued]:
        if not self._is_its_own(connection):
            return await super()._store_jobs(batch, connection)
        here = foreign(connection, notify=self._notifies(), clock=self.clock)
        if await here.store_id() is None and await here.store_id(refresh=True) is None:
            where = "" if database() == DEFAULT_DB_ALIAS else f" --database {database()}"
            raise ImproperlyConfigured(NO_SCHEMA.format(database(), where))
        several = any(job.after for job in batch)  # statements, which one commit has to store
        whole: Any = transaction.atomic(using=database()) if several else nullcontext()
        with whole:
            return await here.enqueue(batch)

    async def _store_many(
        self,
        jobs: Sequence[NewJob],
        take: Callable[[list[Enqueued]], None],
        connection: object,
    ) -> None:
        """As StoreProvider does, on the connection that ``_store_jobs`` uses."""
        if connection is not None or self._url is not None:
            await super()._store_many(jobs, take, connection)
            return
        many = super()._store_many
        await _by_django(lambda: many(jobs, take, connections[database()]))

    @contextmanager
    def replace(self, url: str, clock: Clock) -> Iterator[None]:
        """As StoreProvider does, but Django's connection stays in use if the URL is its own."""
        is_djangos = _is_of_django(url)
        with super().replace(url, clock):
            if is_djangos:
                self._url = None
            yield

    def _is_its_own(self, connection: object) -> bool:
        """Whether the store's address was derived from this connection."""
        alias = None if connection is None else getattr(connection, "alias", None)
        return self._url is None and alias == database() and own_url() is None


async def _by_django(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Return the result of ``make()``, run where Django runs plain code: here or, if a loop runs,
    in the thread of ``sync_to_async``."""
    if not loop_is_running():
        return await make()
    refuse_loop_in_atomic()
    return await sync_to_async(lambda: drive(make()))()


def refuse_loop_in_atomic() -> None:
    """Raise UsageError if ``asyncio.run`` was called inside ``atomic``: Django would use another
    thread, and the job could not be part of that transaction."""
    if _of_plain_code(database()).in_atomic_block:
        raise UsageError(
            "this event loop runs inside atomic(), in the same thread, and a job enqueued from"
            " it would not be part of that transaction: call enqueue() outside the loop, or run"
            " the loop by asgiref's async_to_sync"
        )


def _of_plain_code(alias: str) -> Any:
    """Return the connection of the plain code that started the loop; Django has another inside."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)  # noqa: SLF001  (as asgiref does)
    try:
        return connections[alias]
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001


class DjangoApp(App):
    """The App of a project: it finds its store by the settings, at first use."""

    _provider = DjangoStores

    def _register(self, fn: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
        """Register a task, by default under its module path, so that apps do not clash."""
        own = getattr(fn, "__name__", "<lambda>")
        if options.get("name") is None and own != "<lambda>" and not isinstance(fn, Task):
            options = {**options, "name": f"{fn.__module__}.{own}"}
        return super()._register(fn, options)

    def limit(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """As ``App.limit``. Without options: the limit of that name in OUTLAST["LIMITS"]."""
        known = settings_limits()
        return known[name] if name in known and not options else super().limit(name, **options)


app = DjangoApp()
keep_connections_fit(app)  # the project's own hooks come later, so they are inside
