"""The application: its URL, and its hooks."""

from __future__ import annotations

from contextlib import asynccontextmanager, chdir, contextmanager
from functools import partial
from typing import Any

import pytest

import outlast
from outlast.errors import ConfigError, UsageError
from outlast.store.lockfile import directory_for
from tests.cases import each_case
from tests.unit.client import app_kit
from tests.unit.client.app_kit import application

app = app_kit.app
locks = partial(directory_for, None)


# ---------------------------------------------------------------------------------- the URL


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "mysql://h/db", "sqlite:", "sqlite://", "postgresql://", "://"]
)
def test_a_wrong_url_names_a_right_one(url, monkeypatch):
    monkeypatch.setenv("OUTLAST_URL", "redis://user:secret@host")
    with pytest.raises(ConfigError, match=r"write sqlite:///jobs.db .* or postgresql://") as caught:
        print(outlast.App(url or None).url)
    assert "secret" not in str(caught.value)


def test_an_empty_url_is_not_the_default(monkeypatch):
    """``App(os.environ.get("DATABASE_URL", ""))`` must not make a file that no worker reads."""
    monkeypatch.setenv("OUTLAST_URL", "sqlite:///elsewhere.db")
    with pytest.raises(ConfigError, match="'' is not the URL of a store"):
        outlast.App("")
    monkeypatch.setenv("OUTLAST_URL", "")
    with pytest.raises(
        ConfigError, match=r"\$OUTLAST_URL is empty: set it to the URL of the store"
    ):
        outlast.App().url  # noqa: B018 - it is read at the first use


def test_a_url_that_is_none_is_refused_with_where_it_is_from_and_what_to_leave_out(monkeypatch):
    monkeypatch.setenv("OUTLAST_URL", "redis://localhost")
    with pytest.raises(ConfigError, match=r"^\$OUTLAST_URL: 'redis://localhost' is not the URL"):
        outlast.App().url  # noqa: B018 - it is read at the first use
    with pytest.raises(ConfigError, match=r"no driver is named: leave out '\+psycopg'$"):
        outlast.App("postgresql+psycopg://u@h/shop")


def test_the_url_is_given_or_from_the_environment_or_a_local_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAST_URL", "sqlite:///env.db")
    assert outlast.App("sqlite:///given.db").url == f"sqlite:///{tmp_path}/given.db"
    assert outlast.App().url == f"sqlite:///{tmp_path}/env.db"
    monkeypatch.delenv("OUTLAST_URL")
    assert outlast.App().url == f"sqlite:///{tmp_path}/outlast.db"


@each_case("find", [lambda: outlast.App("sqlite:///jobs.db"), lambda: outlast.App().url, locks])
def test_a_relative_path_in_a_folder_that_was_deleted_says_what_to_do(find, monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAST_RUN_DIR", "run")
    gone = tmp_path / "gone"
    gone.mkdir()
    with chdir(gone):
        gone.rmdir()
        with pytest.raises(ConfigError, match="was deleted: change to another one, or write"):
            find()


async def test_the_url_can_be_changed_until_it_is_used(sqlite_url):
    app = application("sqlite:///elsewhere.db")
    app.url = sqlite_url
    await app.tasks["mail"].enqueue("a")
    with pytest.raises(UsageError, match="has already opened"):
        app.url = "sqlite:///third.db"
    await app.close()


@each_case("limit", [0, 1023, 2**31, "1 MiB", True])
def test_a_limit_that_cannot_work_is_refused(limit):
    with pytest.raises(ConfigError, match="max_payload"):
        outlast.App(max_payload=limit)


# --------------------------------------------------------------------------------- the hooks


async def agenerator(app: outlast.App) -> Any:
    yield app


def generator() -> Any:
    yield "resources"


@each_case(
    "fn", [generator, contextmanager(generator), agenerator, asynccontextmanager(agenerator)]
)
async def test_a_lifespan_yields_once_taking_the_app_or_nothing(fn):
    app = outlast.App()
    assert app.lifespan(fn) is fn
    assert app.lifespan_fn is not None
    context: Any = app.lifespan_fn(app)
    if hasattr(context, "__aenter__"):
        async with context as resources:
            assert resources is app
    else:
        with context as resources:
            assert resources == "resources"


def outer(attempt: Any) -> Any:
    yield "outer", attempt


def inner(attempt: Any) -> Any:
    yield "inner", attempt


def test_arounds_are_kept_outermost_first():
    app = outlast.App()
    app.around(outer)
    app.around(contextmanager(inner))
    entered: list[Any] = []
    for around in app.around_fns:
        context: Any = around("attempt")  # type: ignore[arg-type]
        with context as value:
            entered.append(value)
    assert entered == [("outer", "attempt"), ("inner", "attempt")]


async def coroutine(app: Any) -> None:
    pass


@each_case(
    ("fn", "says"),
    [
        (coroutine, "yields once"),
        (print, "yields once"),
        (5, "yields once"),
        (lambda a, b: (yield), "must take the app or nothing"),
    ],
)
def test_an_invalid_lifespan_is_refused(fn, says):
    app = outlast.App()
    with pytest.raises(ConfigError, match=says):
        app.lifespan(fn)
    assert app.lifespan_fn is None


def test_there_is_one_lifespan_and_an_around_takes_the_attempt():
    app = outlast.App()
    app.lifespan(generator)
    with pytest.raises(ConfigError, match="already has a lifespan"):
        app.lifespan(generator)
    with pytest.raises(ConfigError, match="must take the attempt"):
        app.around(generator)
