"""Keep Django's connections usable around each attempt.

No async attempt waits for asgiref's single thread (``attempts.py``), at its start or its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator

from asgiref.sync import AsyncToSync, SyncToAsync, sync_to_async
from django.db import close_old_connections, connections, reset_queries

from outlast.client.app import App
from outlast.client.attempt import Attempt


def keep_connections_fit(app: App) -> None:
    """Around each attempt, close connections that are too old or broken, as Django does around each
    request, in the threads that use them. Call it before users register hooks, which are inside."""

    def leave() -> None:
        _close_old()
        if not app.stores.is_durable:  # a test's store, whose database is dropped in the end
            connections.close_all()

    @app.around
    async def in_the_thread_of_async_code(_attempt: Attempt) -> AsyncIterator[None]:
        await _call_in_order(_close_old)
        try:
            yield
        finally:
            await _call_in_order(leave)

    @app.around
    def in_its_thread(attempt: Attempt) -> Iterator[None]:
        if app.find(attempt.task).is_async:
            yield
            return
        _close_old()
        try:
            yield
        finally:
            leave()


async def _call_in_order(close: Callable[[], None]) -> None:
    """Close connections in the thread that async code shares, which keeps calls in order, so
    nothing waits; but wait if the loop or a ThreadSensitiveContext has another thread."""
    of_its_own = (
        getattr(AsyncToSync.executors, "current", None)
        or asyncio.get_running_loop() in AsyncToSync.loop_thread_executors
        or SyncToAsync.thread_sensitive_context.get(None)
    )
    if of_its_own:
        await sync_to_async(close)()
    else:
        SyncToAsync.single_thread_executor.submit(_logging_errors, close)


def _logging_errors(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception:
        logging.getLogger("outlast").exception("connections of Django were not closed")


def _close_old() -> None:
    reset_queries()
    close_old_connections()
