"""The tree of errors: its page shows all of it, and all of it can be imported."""

from __future__ import annotations

import asyncio
import builtins
import copy
import inspect
import pickle
import re
import sqlite3
import ssl
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from math import inf, nan
from pathlib import Path
from types import ModuleType
from typing import Any

import aiormq.exceptions
import asyncpg
import nats.errors
import nats.js.errors
import pytest

import outlast
from outlast import errors
from outlast.errors import StoreError, StoreUnavailable, describe, text_of
from outlast.store.postgres.errors import remedy_of, translate
from outlast.store.sqlite import errors as sqlite_errors
from outlast.store.wakeup import Health
from tests.cases import each_case

LIBRARIES: tuple[ModuleType, ...] = (
    builtins, asyncio, ssl, sqlite3, asyncpg, nats.errors, nats.js.errors, aiormq.exceptions,
)  # fmt: skip
SILENT = [(), ("",), (" \n",)]  # arguments that make an error without a text


def silent_errors(modules: Iterable[ModuleType] = LIBRARIES) -> Iterator[Exception]:
    """All errors of these libraries that can be made without a text."""
    for module in modules:
        for kind in vars(module).values():
            if not (inspect.isclass(kind) and issubclass(kind, Exception)):
                continue
            for values in SILENT:
                try:
                    yield kind(*values)
                except TypeError:  # it needs other arguments
                    continue


class WithoutText(Exception):
    """A user's error whose ``str`` raises."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


def test_the_tree_on_the_page_names_every_error_and_its_place() -> None:
    drawn = re.findall(r"(│?)\s*(?:├──|└──) (\w+)", errors.__doc__ or "")
    shown = {name for _, name in drawn} | {"OutlastError", "Verdict", "Stopped"}
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    assert shown == set(kinds)
    below = {name for inside, name in drawn if inside}
    roots = {errors.OutlastError, errors.Verdict, errors.Stopped}
    assert below == {
        name for name, kind in kinds.items() if kind not in roots and kind.__base__ not in roots
    }


def test_every_error_can_be_imported_from_the_top() -> None:
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and kind.__module__ == errors.__name__:
            assert getattr(outlast, name) is kind
            assert name in outlast.__all__


# ------------------------------------------------------------------------ never an empty text


EMPTY = re.compile(r"(^|:)\s*(\(\s*\))?$|\(\s*\)")


def says_nothing(text: str) -> bool:
    return bool(EMPTY.search(text)) and "nats:" not in text  # some of which end with a colon


def test_no_error_of_any_library_is_shown_as_an_empty_text() -> None:
    made = [*silent_errors(), WithoutText(), type("é", (Exception,), {})()]
    assert len(made) > 500
    assert [each for each in made if says_nothing(text_of(each))] == []
    assert [each for each in made if says_nothing(describe(each))] == []


@each_case(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(), "the connection broke off"),
        (asyncpg.InterfaceError(""), "interface error"),
        (ssl.SSLError(), "ssl error"),
        (ValueError("told"), "told"),
    ],
)
def test_an_error_without_text_is_shown_by_its_type(error: Exception, words: str) -> None:
    assert text_of(error) == words


def test_a_store_error_caused_by_an_error_without_text_names_it() -> None:
    raised = [translate(each) for each in silent_errors()]
    raised += [sqlite_errors.translate(each, Path("jobs.db")) for each in silent_errors()]
    texts = [str(each) for each in raised if isinstance(each, StoreError)]
    assert len(texts) > 500
    assert [text for text in texts if says_nothing(text)] == []


def test_a_wake_ups_trouble_is_named_also_for_an_error_without_text() -> None:
    for error in silent_errors():
        health = Health("notify")
        health.note_trouble(error)
        assert not says_nothing(str(health))


@each_case(
    ("error", "words"),
    [
        (asyncpg.DiskFullError("could not extend file"), "disk is full: make room"),
        (asyncpg.InternalClientError("cannot switch to state 12"), "has ended the session (cannot"),
    ],
)
def test_what_an_error_of_the_server_or_its_driver_means_is_told(
    error: Exception, words: str
) -> None:
    raised = translate(error)
    assert isinstance(raised, StoreUnavailable)
    assert words in str(raised)


@each_case(
    ("error", "words"),
    [  # as 15 says it, and as 13 would
        (asyncpg.InternalServerError("could not write init file"), "disk is full: make room"),
        (asyncpg.UndefinedObjectError("unrecognized configuration parameter"), "14 or later"),
    ],
)
def test_what_an_older_server_means_is_told(error: Exception, words: str) -> None:
    assert words in remedy_of(error)


NO_SPANS = (-5, -0.001, nan, inf, -inf, 1e300, timedelta(seconds=-1))
SPANS: tuple[Callable[[Any], object], ...] = (
    outlast.Snooze,
    lambda span: outlast.Retry(after=span),
    lambda span: outlast.Throttled("api", after=span),
)


@each_case(("make", "span"), [(make, span) for make in SPANS for span in NO_SPANS])
def test_a_verdict_takes_only_spans_that_a_job_can_wait(
    make: Callable[[Any], object], span: Any
) -> None:
    with pytest.raises(outlast.UsageError, match="a job can wait for 0 to"):
        make(span)


def test_the_spans_that_a_verdict_takes() -> None:
    assert outlast.Snooze(timedelta(minutes=1)).seconds == 60
    assert (outlast.Snooze(0).seconds, outlast.Retry(after=0).after) == (0, 0)
    assert outlast.Snooze(3_153_600_000).seconds == 3_153_600_000


@pytest.mark.parametrize(
    "error",
    [
        outlast.Snooze(60),
        errors.wait_without_slot(5, "sleeps", event="paid"),
        outlast.Throttled("api", after=3),
        outlast.Retry("why", after=30),
        outlast.Dead("why"),
        outlast.Cancel(),
        outlast.ItemErrors({1: outlast.Snooze(2)}, [0, None]),
        outlast.KeyInUse("taken", key="k", task="mail"),
        outlast.QueueFull("full", queue="mail", waiting=2, waiting_max=1),
        outlast.JobFailed("job 1 is dead", None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_passes_from_one_process_to_another(error: BaseException) -> None:
    """As out of a ProcessPoolExecutor of a task, which breaks if it cannot read one."""
    error.add_note("in a child")
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert (type(again), str(again)) == (type(error), str(error))
        assert repr(vars(again)) == repr(vars(error))
