"""Tasks whose function takes a list: what is accepted, what is refused where it is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import outlast
from outlast.testing import inline_sync
from tests.cases import each_case


class Page(msgspec.Struct):
    url: str


@pytest.fixture
def app() -> outlast.App:
    return outlast.App("sqlite:///never-opened.db")


def one(items: list[Page]) -> list[int]:
    return [len(item.url) for item in items]


def test_a_job_is_one_item_of_the_list_s_type(app: outlast.App) -> None:
    task = app.task(batch=3)(one)
    assert (task.batch, task.batch_wait, task.own_runner, task.returns) == (3, 1.0, True, int)
    call = task.call(Page("/a"))
    assert call.job.args == '{"items":{"url":"/a"}}'
    with pytest.raises(outlast.BadArguments, match="argument 'items'"):
        task.call([Page("/a")])  # type: ignore[arg-type]
    assert task([Page("/a"), Page("/bc")]) == [2, 3]
    assert inline_sync(call) == 2


def test_inline_runs_a_batch_of_one_and_raises_its_error(app: outlast.App) -> None:
    @app.task(batch=3)
    async def fails(items: list[int]) -> None:
        (attempt,) = outlast.current_batch()
        with pytest.raises(outlast.UsageError, match="a task that takes one job"):
            await attempt.save(1)
        raise outlast.ItemErrors({0: LookupError(f"no {items[0]}")})

    with pytest.raises(LookupError, match="no 7"):
        inline_sync(fails.call(7))


@each_case(
    ("options", "said"),
    [
        ({"batch": 0}, "batch must be a whole number from 1 to 1000"),
        ({"batch": 5, "batch_wait": 0}, "batch_wait"),
        ({"batch": 5, "batch_wait": 61}, "batch_wait may be at most 60 s"),
        ({"batch": 5, "batch_wait": 4, "timeout": 9}, "at most 3 s for a task with a timeout"),
        ({"batch_wait": 2}, "batch_wait needs batch"),
        ({"batch": 5, "own_runner": False}, "batch cannot be combined with own_runner"),
        (
            {"batch": 5, "stall_timeout": 9},
            "combined with stall_timeout: timeout bounds",
        ),
        ({"batch": 5, "uses": {"gpu": 1}}, "batch cannot be combined with uses"),
        ({"batch": 5, "checkpoint": int}, "batch cannot be combined with checkpoint"),
        ({"batch": 5, "logs": True}, "batch cannot be combined with logs"),
        ({"flush_every": 5}, r"flush_every \(here: batch\)"),
        ({"flush_interval": 5}, r"flush_interval \(here: batch_wait\)"),
    ],
)
def test_options_that_cannot_work_are_refused(
    app: outlast.App, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(outlast.ConfigError, match=said):
        app.task(**options)(one)


def test_functions_that_take_no_list_or_return_none_are_refused(app: outlast.App) -> None:
    def two(items: list[int], depth: int) -> None: ...
    def plain(item: int) -> None: ...
    def rest(*items: int) -> None: ...
    def gives(items: list[int]) -> int: ...  # type: ignore[empty-body]

    decorate: Any = app.task(batch=2)
    for function, said in [
        (two, "takes one parameter, the list of its items"),
        (rest, "takes one parameter, the list of its items"),
        (plain, "the parameter 'item' must be a list, such as list.str., not int"),
        (gives, "must return a list with a result for each item, or None, not int"),
    ]:
        with pytest.raises(outlast.ConfigError, match=said):
            decorate(function)

    def bare(items):
        return items

    assert decorate(bare).call({"any": 1}).job.args == '{"items":{"any":1}}'


def test_item_errors_are_exceptions_by_place() -> None:
    assert outlast.ItemErrors({3: outlast.Snooze(1)}).results is None
    for wrong in [{"3": ValueError()}, {-1: ValueError()}, {3: "no"}, {True: ValueError()}]:
        with pytest.raises(outlast.UsageError, match="by index, such as"):
            outlast.ItemErrors(wrong)  # type: ignore[arg-type]
