"""The pytest plugin of Outlast: the fixtures of ``outlast.testing``.

pytest imports it at its start, so it is a module of its own: Outlast is imported by the first test
that uses a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from outlast.client.app import App
    from outlast.testing import AppUnderTest

APP, POSTGRES, POSTGRES_VARIABLE = "outlast_app", "outlast_postgres", "OUTLAST_TEST_POSTGRES"


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
