"""``outlast verify``: healthy stores, and one with changed rows."""

from __future__ import annotations

import sqlite3

from tests.cli.conftest import Filled, Outlast


def test_a_violation_is_printed_and_ends_with_1(rows: Filled) -> None:
    dead = rows.ids["dead"]
    with sqlite3.connect(rows.url.removeprefix("sqlite:///")) as file:
        file.execute("UPDATE outlast_jobs SET failures = 77 WHERE id = ?", (dead,))
    file.close()
    said = rows("verify")
    assert said.code == 1
    assert f"VIOLATION  job {dead}  budgets: it has 77 failures" in said.out
    assert "1 violation" in said.out
    machine = rows("verify", "--json")
    assert machine.code == 1
    assert '"rule": "budgets"' in machine.out


def test_no_store_is_no_healthy_store(outlast: Outlast) -> None:
    outlast("verify", "--url", "sqlite:///nowhere.db").refused(3, "nowhere.db")
    outlast("verify", "--limit", "0").refused(2, "limit")
