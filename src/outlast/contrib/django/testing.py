"""Let tests of a project run its jobs: ``isolate`` of ``outlast.testing``, on the database of
Django's test."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from asgiref.sync import SyncToAsync
from django.db import connections

from outlast.client.app import App
from outlast.contrib.django.project import database, store_url
from outlast.errors import UsageError
from outlast.store.backend import file_of
from outlast.store.lockfile import directory_for
from outlast.testing import AppUnderTest
from outlast.testing import isolate as isolate_app

CLOSE_SECONDS = 5.0  # unless what a test has left there goes on for longer


@contextmanager
def isolate() -> Iterator[AppUnderTest]:
    """Within the block, the project's jobs can be run: ``jobs.drain_sync()`` runs all that is due,
    in this process; ``jobs.crash_after_save()`` and the rest work as in ``outlast.testing``.

    For a ``TransactionTestCase``: ``self.jobs = self.enterContext(isolate())`` in ``setUp``.

    Raises:
        UsageError: a transaction is open, as it is in each ``TestCase``: no worker would see what
            the test writes.
        ImproperlyConfigured: the database is in memory: give its TEST settings a NAME.
        ConfigError: the name of the database, on a server, does not contain the word "test".
    """
    connection: Any = connections[database()]
    if connection.in_atomic_block:
        raise UsageError(
            "jobs run in connections of their own, which see only committed rows, and a TestCase"
            " commits nothing: use a TransactionTestCase; in pytest transactional_db, or"
            " @pytest.mark.django_db(transaction=True)"
        )
    url = store_url()
    app: App = import_module("outlast.contrib.django.runner").app
    try:
        with isolate_app(app, url) as jobs:
            yield jobs
    finally:  # in the thread of async code, where a lifespan may have used them, too
        wait([SyncToAsync.single_thread_executor.submit(connections.close_all)], CLOSE_SECONDS)
    file = file_of(url)
    if file is not None:  # Django deletes only the file
        with suppress(OSError):  # a worker that the test started still has its lock there
            directory_for(file).rmdir()
