"""A row that another program has written fails no reader."""

from __future__ import annotations

import pytest

from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.store.columns import policy_of, progress_of


@pytest.mark.parametrize("text", ["", "null", "[]", "rubbish", '{"retries": "many"}', "\ud800"])
def test_a_policy_that_cannot_be_read_is_the_default_one(text: str) -> None:
    assert policy_of(text) == Policy()


def test_a_policy_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    assert policy_of('{"retries": 7, "of_a_later_release": true}') == Policy(retries=7)


@pytest.mark.parametrize("text", ["", "[1]", "rubbish", '{"fraction": "half"}', "\udcff"])
def test_progress_that_cannot_be_read_is_none(text: str) -> None:
    assert progress_of(text) is None


def test_progress_is_read() -> None:
    assert progress_of('{"fraction":0.5}') == Progress(fraction=0.5)
    assert progress_of(None) is None
