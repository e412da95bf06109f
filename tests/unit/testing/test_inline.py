"""A call of a task here and now: what goes through JSON, and what the task sees."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

import outlast
from outlast.testing import inline, inline_sync

app = outlast.App("sqlite:////nowhere/at/all.db")


@dataclass
class Page:
    number: int


@app.task
async def read(page: Page, tags: Any = ()) -> Page:
    assert isinstance(page, Page)
    assert outlast.current().task == "read"
    return Page(page.number + len(tags))


@app.task
def go_on(pages: int) -> list[int]:
    attempt = outlast.current()
    done = []
    for page in range(attempt.checkpoint or 0, pages):
        done.append(page)
        attempt.save_sync(page + 1)
        attempt.report(page / pages)
    return done


async def test_a_task_is_called_with_what_a_worker_would_read() -> None:
    assert await inline(read.call(Page(1))) == Page(1)
    assert await inline(read.call(Page(1), tags=("a", "b"))) == Page(3)
    assert await inline(go_on.call(2)) == [0, 1]


def test_plain_tests_do_the_same() -> None:
    assert inline_sync(read.call(Page(1))) == Page(1)
    assert inline_sync(go_on.call(5), checkpoint=3) == [3, 4]
    with pytest.raises(outlast.NotInAttempt):
        outlast.current()


def test_what_json_does_not_keep_is_lost_here_too() -> None:
    @app.task
    async def kind(value: Any) -> str:
        return type(value).__name__

    assert inline_sync(kind.call((1, 2))) == "list"


def test_a_plain_function_may_use_the_thread_of_a_plain_test() -> None:
    @app.task
    def where() -> int:
        return threading.get_ident()

    assert inline_sync(where.call()) == threading.get_ident()


async def test_what_the_task_raises_is_raised() -> None:
    @app.task
    async def snoozes() -> None:
        if outlast.current().resources == "busy":
            raise outlast.Snooze(60)
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        await inline(snoozes.call())
    with pytest.raises(outlast.Snooze):
        await inline(snoozes.call(), resources="busy")


async def test_what_cannot_work_says_so() -> None:
    @app.task
    async def completes() -> None:
        await outlast.current().complete_in(object())

    @app.task
    async def wrong() -> int:
        return "text"  # type: ignore[return-value]

    with pytest.raises(outlast.UsageError, match="use drain"):
        await inline(completes.call())
    with pytest.raises(outlast.BadArguments, match="the result does not fit int"):
        await inline(wrong.call())
    with pytest.raises(outlast.SyncInLoop, match="await inline"):
        inline_sync(wrong.call())
