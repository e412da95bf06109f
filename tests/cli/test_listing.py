"""``outlast jobs``: how far a search has looked, names that nothing has, a missing store."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.cli.connect import check_exists
from outlast.cli.listing import describe_rest
from outlast.errors import StoreUnavailable
from outlast.store import open_store
from tests.cli.conftest import Filled


def test_a_search_that_ends_early_says_how_far_back_it_has_looked() -> None:
    assert describe_rest(0, 50, None) is None
    assert describe_rest(0, 50, 99) == (
        "jobs before 99 were not searched; --before 99 continues with them"
    )


def test_a_search_says_how_far_back_it_has_read() -> None:
    said = describe_rest(0, 50, 99, 1_893_455_999.0)
    assert said == "searched back to 2029-12-31 23:59:59 UTC; --before 99 continues"


def test_a_filter_that_names_what_nothing_has_says_so(filled: Filled) -> None:

    def told(*command: str, name: str) -> str:
        said = filled(*command, f"--{name}", "typo")
        assert said.code == 0
        return said.err

    for command in (
        ("jobs",),
        ("cancel",),
        ("dead", "list"),
        ("dead", "requeue"),
        ("dead", "discard", "--dry-run"),
    ):
        for name in ("queue", "task", "tenant"):
            words = f"outlast: no job and no worker has the {name} 'typo'\n"
            assert told(*command, name=name) == words, command
    for command in (("jobs",), ("cancel",), ("dead", "requeue")):
        assert told(*command, name="label") == "outlast: no job has the label 'typo'\n", command
    for verb in ("list", "requeue", "discard"):
        words = "outlast: no dead job has the group 'typo'\n"
        assert told("dead", verb, name="group") == words, verb


def test_a_filter_that_names_what_there_is_says_nothing(filled: Filled) -> None:
    said = filled("jobs", "--queue", "default", "--error", "no such text")
    assert (said.err, said.code) == ("", 0)


async def test_a_missing_store_in_a_project_of_django_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable) as said:
        await check_exists(open_store("sqlite:///none.db"))
    assert "manage.py" not in str(said.value)
    (tmp_path / "manage.py").touch()
    with pytest.raises(StoreUnavailable, match=r"Django project: `python manage\.py outlast"):
        await check_exists(open_store("sqlite:///none.db"))
