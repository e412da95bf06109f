"""The same tasks in an application with a hook of each kind around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import outlast
from tests.crash.odd_ends import tasks
from tests.crash.tasks import app

__all__ = ["app", "tasks"]


@app.around
async def in_the_loop(_: outlast.Attempt) -> AsyncIterator[None]:
    yield


@app.around
def in_the_thread(_: outlast.Attempt) -> Iterator[None]:
    yield
