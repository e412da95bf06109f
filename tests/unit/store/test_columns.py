"""A row that another program has written fails no reader."""

from __future__ import annotations

from outlast.model.job import Policy
from outlast.store.columns import policy_of


def test_a_policy_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    assert policy_of('{"retries": 7, "of_a_later_release": true}') == Policy(retries=7)
