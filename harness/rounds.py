"""Lowers how much an exchange does in one round, so that a few rows are more than fit into it.

What stays, or waits, must keep no other from going on: that shows only where a round is full.
``OUTLAST_TEST_MOST=1`` (or 5) lowers the rounds of all stores that tests make, of a chaos run and
of simulated worlds.
"""

from __future__ import annotations

import os
import re
from typing import Any
from unittest import mock

MOST = int(os.environ.get("OUTLAST_TEST_MOST") or 0)  # 0: as it is
FUNCTIONS = {  # of PostgreSQL: where the numbers stand
    "outlast_prepare_claim_v1": [
        r"(?<=outlast_resolve_v1\()",
        r"(?<=outlast_fold_v1\(p_now, )",
        r"(?<=outlast_expire_v1\()",
        r"(?<=expired = )",
        r"(?<=opens_at LIMIT )",
    ],
    "outlast_claim_streams_v1": [r"(?<=nth < )", r"(?<=LIMIT )(?=256)", r"(?<=>= )(?=256)"],
    "outlast_fold_v1": [r"(?<=nth < )"],
    "outlast_next_opening_v1": [r"(?<=LIMIT )"],
    "outlast_exchange_v1": [r"(?<=v_expired < )", r"(?<=v_rounds := )"],
    "outlast_hand_in_v1": [r"(?<=outlast_follow_v1\(v_awaited, )"],
    "outlast_due_v1": [r"(?<=LIMIT )", r"(?<=\(v_due\) >= )"],
}
CONSTANTS = [  # of SQLite, under outlast.store.sqlite
    "dependencies.RESOLVE_MAX",
    "exchange.EXPIRE_MAX",
    "lanes.DUE_MAX",
    "streams.FOLD_MAX",
    "streams.OPEN_MAX",
    "streams.OPEN_MIN",
    "streams.ROUNDS_MAX",
]


def lower_functions(url: str, most: int) -> dict[str, str]:
    """Lower the numbers in a database on PostgreSQL; return the definitions as they were."""
    import psycopg  # a release that is rehearsed has none

    was = {}
    with psycopg.connect(url, autocommit=True) as session:
        for name, numbers in FUNCTIONS.items():
            (row,) = session.execute("SELECT pg_get_functiondef(%s::regproc)", [name])
            was[name] = lowered = row[0]
            for number in numbers:
                lowered, count = re.subn(rf"{number}\d+", str(most), lowered)
                assert count, f"{name} has no {number}"
            session.execute(lowered.encode())
    return was


def restore_functions(url: str, was: dict[str, str]) -> None:
    """Put definitions back."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as session:
        for definition in was.values():
            session.execute(definition.encode())


def lowered_constants(most: int) -> list[Any]:
    """Return patches that lower the numbers of SQLite in this process; none for 0."""
    names = CONSTANTS if most else []
    return [mock.patch(f"outlast.store.sqlite.{name}", most) for name in names]
