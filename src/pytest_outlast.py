"""The pytest plugin of Outlast: the fixtures and the marker of ``outlast.testing``.

pytest imports it at its start, so it is a module of its own: Outlast is imported by the first test
that uses a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        " directory, and returns a call of it, which outlast.testing.crashes.crash_test then tries",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Crash the call that a marked test returns at each of its points."""
    marker = pyfuncitem.get_closest_marker(CRASHES)
    if marker is None:
        return None
    from outlast.client.task import Call
    from outlast.testing.crashes import crash_test

    options = dict(marker.kwargs)
    app = options.pop("app", None) or _find_app(pyfuncitem.config.getini(APP))
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001  # as pytest itself calls it

    def make() -> Call[Any]:
        call = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        if not isinstance(call, Call):
            pytest.fail(f"a test with the marker {CRASHES} returns task.call(…)", pytrace=False)
        return call

    report = crash_test(app, make, **options)
    if not report.is_clean:
        pytest.fail(str(report), pytrace=False)
    return True


def _find_app(spec: str) -> App:
    from outlast.errors import ApplicationError, text_of
    from outlast.runner.application import load_app

    if not spec:
        pytest.fail(
            f"which application? Set {APP} = MODULE:APP in the settings of pytest, or write a"
            " fixture of your own with outlast.testing.isolate(app)",
            pytrace=False,
        )
    try:
        return load_app(spec)
    except ApplicationError as error:
        pytest.fail(f"{APP} = {spec}: {text_of(error)}", pytrace=False)


def _find_url(setting: str) -> str:
    url = os.environ.get(POSTGRES_VARIABLE) or setting
    if not url:
        pytest.fail(
            f"outlast_postgres needs a database: set {POSTGRES} = postgresql://…/test_jobs in the"
            f" settings of pytest, or ${POSTGRES_VARIABLE}",
            pytrace=False,
        )
    return url
