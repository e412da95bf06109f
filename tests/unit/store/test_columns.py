"""A row that another program has written fails no reader."""

from __future__ import annotations

import msgspec

from outlast.model.job import Policy
from outlast.store import rows
from outlast.store.columns import _flags, policy_of


def test_a_policy_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    assert policy_of('{"retries": 7, "of_a_later_release": true}') == Policy(retries=7)


def test_truths_are_known_by_their_declared_types() -> None:
    """SQLite has numbers for them."""
    kinds = [each for each in vars(rows).values() if isinstance(each, type(msgspec.Struct))]
    declared = {
        kind: {field.name for field in msgspec.structs.fields(kind) if field.type is bool}
        for kind in kinds
    }
    assert {kind: {*_flags(kind)} for kind in kinds} == declared
    assert declared[rows.StoredJob] > {"waiting"}
