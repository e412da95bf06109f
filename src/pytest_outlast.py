"""The pytest plugin of Outlast: the fixtures and the marker of ``outlast.testing``.

pytest imports it at its start, so it is a module of its own: Outlast is imported by the first test
that uses a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from outlast.client.app import App
    from outlast.testing import AppUnderTest

APP, POSTGRES, POSTGRES_VARIABLE = "outlast_app", "outlast_postgres", "OUTLAST_TEST_POSTGRES"
CRASHES = "outlast_crashes"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the settings of the fixtures known."""
    parser.addini(APP, "the application of the fixtures of Outlast: MODULE:APP")
    parser.addini(POSTGRES, "the URL of a database for tests, for the fixture outlast_postgres")


@pytest.fixture
def outlast_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppUnderTest]:
    """Your application on an empty store in a file: an ``outlast.testing.AppUnderTest``."""
    from outlast.testing.app_under_test import isolate, url_of

    with isolate(_find_app(request.config.getini(APP)), url_of(tmp_path)) as under_test:
        yield under_test


@pytest.fixture
def outlast_postgres(request: pytest.FixtureRequest) -> Iterator[AppUnderTest]:
    """Your application on an emptied PostgreSQL database: an ``outlast.testing.AppUnderTest``."""
    from outlast.testing import isolate

    with isolate(
        _find_app(request.config.getini(APP)), _find_url(request.config.getini(POSTGRES))
    ) as under_test:
        yield under_test


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "outlast_crashes(app=None, **options): the test makes the files of a task, in a new working"
        " directory, and returns a call of it, which outlast.testing.crashes.crash_test tries in a"
        " process of its own",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Crash the call that a marked test returns at each of its points."""
    marker = pyfuncitem.get_closest_marker(CRASHES)
    if marker is None:
        return None
    from outlast.errors import UsageError, text_of
    from outlast.testing.crashes import crash_test

    options = dict(marker.kwargs)
    app = options.pop("app", None) or _name_app(pyfuncitem.config.getini(APP))
    function = pyfuncitem.function
    name = f"{function.__module__}:{function.__qualname__}"
    if pyfuncitem._fixtureinfo.argnames or "." in function.__qualname__:  # noqa: SLF001
        _refuse(f"{name} runs in a process of its own: write a function without fixtures for it")
    try:
        report = crash_test(app, name, **options)
    except UsageError as error:
        _refuse(text_of(error))
    if not report.is_clean:
        _refuse(str(report))
    return True


def _refuse(text: str) -> NoReturn:
    pytest.fail(text, pytrace=False)


def _name_app(spec: str) -> str:
    if not spec:
        _refuse(
            f"which application? Set {APP} = MODULE:APP in the settings of pytest, or write a"
            " fixture of your own with outlast.testing.isolate(app)"
        )
    return spec


def _find_app(spec: str) -> App:
    from outlast.errors import ApplicationError, text_of
    from outlast.runner.application import load_app

    try:
        return load_app(_name_app(spec))
    except ApplicationError as error:
        _refuse(f"{APP} = {spec}: {text_of(error)}")


def _find_url(setting: str) -> str:
    url = os.environ.get(POSTGRES_VARIABLE) or setting
    if not url:
        _refuse(
            f"outlast_postgres needs a database: set {POSTGRES} = postgresql://…/test_jobs in the"
            f" settings of pytest, or ${POSTGRES_VARIABLE}"
        )
    return url
