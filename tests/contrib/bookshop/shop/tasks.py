"""The tasks of the shop: those of Django, and one of Outlast, beside each other."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection

import outlast
from outlast.contrib.django import app
from shop.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import TaskContext, task
else:
    from django_tasks import TaskContext, task


JAM = 3  # the page behind which a first attempt hangs


class OutOfPaper(Exception):
    """Of a module of the project."""


@task
def count(*args: Any, **kwargs: Any) -> int:
    return len(args) + len(kwargs)


@task(priority=5, queue_name="mail")
def mail(to: str, *, text: str = "hello") -> str:
    return f"{text}, {to}"


@task
async def mail_later(to: str) -> str:
    return f"later, {to}"


@task
async def holds_the_thread(path: str) -> str:
    """Hold the one thread of async code, as a slow query does, while there is no such file."""
    await sync_to_async(_wait_for)(path)
    return "held"


def _wait_for(path: str) -> None:
    Path(f"{path}.held").touch()
    while not Path(path).exists():
        time.sleep(0.02)


@task
async def titles() -> list[str]:
    return [order.title async for order in Order.objects.order_by("id")]


@task(takes_context=True)
def who(context: TaskContext) -> list[Any]:
    return [context.task_result.id, context.attempt]


@task
def fails() -> None:
    raise OutOfPaper("no paper")


@task
def leaves() -> None:
    raise SystemExit("gone")


@task
def returns_an_object() -> object:
    return object()


@task(backend="patient", takes_context=True)
def hangs_once(context: TaskContext, path: str) -> str:
    if context.attempt == 1:
        Path(path).write_text(str(os.getpid()))
        threading.Event().wait()
    return f"attempt {context.attempt}"


@task(backend="immediate")
def elsewhere() -> str:
    return "here"


@task
def session() -> int:
    """Use the database; return the backend's process, or 0."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT 0")
        else:
            cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _ask() -> None:
    """Use the database where Django allows it: not in an event loop."""
    with suppress(SynchronousOnlyOperation):
        Order.objects.exists()


if "BOOKSHOP_HOOKS" in os.environ:

    @app.lifespan
    async def lives() -> AsyncIterator[None]:
        await Order.objects.aexists()
        yield
        await Order.objects.aexists()

    @app.around
    def asks(_attempt: outlast.Attempt) -> Iterator[None]:
        _ask()
        yield
        _ask()

    @app.around
    async def asks_later(_attempt: outlast.Attempt) -> AsyncIterator[None]:
        await Order.objects.aexists()
        yield
        await Order.objects.aexists()


@app.task
def total(printed: list[str]) -> int:
    return len(printed)


@app.task(retries=9)
def print_order(order_id: int, pages: int) -> str:
    attempt = outlast.current()
    for page in range(attempt.checkpoint or 0, pages):
        Order.objects.filter(pk=order_id).update(printed=page + 1)
        attempt.save_sync(page + 1)
        if page + 1 == JAM and attempt.number == 1:
            threading.Event().wait()
    return f"{pages} pages in attempt {attempt.number}"


app.schedule("nightly", print_order.call(1, 1), cron="0 3 * * *")
