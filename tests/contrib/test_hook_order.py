"""Hooks of ours around each attempt are outside those of users, in any order of registration."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import outlast
from outlast.contrib import otel, sentry
from tests.contrib.django_kit import manage

INSTRUMENT: dict[str, Callable[[outlast.App], None]] = {
    "otel": otel.instrument,
    "sentry": sentry.instrument,
}
IN_A_PROJECT = """
import json
from outlast.contrib import otel, sentry
from outlast.contrib.django import app
{lines}
from outlast.contrib.django.runner import app
print(json.dumps([enter.__module__ for enter in app.around_fns]))
"""


def users(_attempt: outlast.Attempt) -> Iterator[None]:
    yield


async def users_later(_attempt: outlast.Attempt) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("users_first", [False, True])
@pytest.mark.parametrize("ours", [["otel"], ["sentry"], ["otel", "sentry"]], ids="+".join)
def test_ours_are_outside_those_of_the_code(ours: list[str], users_first: bool) -> None:
    app = outlast.App()
    if users_first:
        app.around(users)
        app.around(users_later)
    for name in ours:
        INSTRUMENT[name](app)
    if not users_first:
        app.around(users)
        app.around(users_later)
    modules = [enter.__module__ for enter in app.around_fns]
    assert modules[len(ours) :] == [__name__, __name__], modules
    assert {module.rpartition(".")[2] for module in modules[: len(ours)]} == set(ours)


@pytest.mark.parametrize("also", [[], ["otel"], ["sentry"]], ids=["alone", "otel", "sentry"])
def test_those_of_a_django_project_are_too(sqlite_url: str, also: list[str]) -> None:
    lines = "\n".join(f"{name}.instrument(app)" for name in also)
    code = IN_A_PROJECT.format(lines=lines)
    done = manage(sqlite_url, "shell", "-v", "0", "--no-startup", "-c", code, BOOKSHOP_HOOKS="1")
    modules = json.loads(done.stdout)
    assert modules[-2:] == ["shop.tasks", "shop.tasks"], modules
