"""The rules of migrations, without a store."""

from __future__ import annotations

import pytest

from outlast.errors import SchemaMismatch
from outlast.store import migrations
from outlast.store.migrations import Applied, Step, check_history, check_usable, pending, step_of

HEAD = "-- compatible_from: 0.1\n"


def steps(count: int) -> list[Step]:
    return [
        step_of(f"migration_{n:04}_step{n}.sql", HEAD + f"SELECT {n};") for n in range(1, count + 1)
    ]


def applied(step: Step, **changes: str) -> Applied:
    row = {"checksum": step.checksum, "compatible_from": step.compatible_from, **changes}
    return Applied(step.number, step.name, row["checksum"], row["compatible_from"], 0.0)


def test_pending_are_the_steps_that_the_store_lacks_in_order() -> None:
    one, two, three = steps(3)
    assert pending([one, two, three], [applied(two)]) == [one, three]


def test_a_store_with_all_steps_is_usable() -> None:
    known = steps(2)
    check_usable(known, [applied(step) for step in known])


def test_a_store_that_lacks_a_step_asks_for_migrate() -> None:
    known = steps(2)
    with pytest.raises(SchemaMismatch, match="outlast migrate"):
        check_usable(known, [applied(known[0])])


def test_a_store_that_lacks_a_step_may_be_migrated() -> None:
    known = steps(2)
    check_history(known, [applied(known[0])])


def test_a_changed_step_is_refused() -> None:
    (step,) = steps(1)
    with pytest.raises(SchemaMismatch, match="another build"):
        check_history([step], [applied(step, checksum="0" * 64)])


def test_a_newer_schema_that_still_serves_this_program_is_usable() -> None:
    one, two = steps(2)
    check_usable([one], [applied(one), applied(two)])


def test_a_newer_schema_that_no_longer_serves_this_program_is_refused() -> None:
    one, two = steps(2)
    with pytest.raises(SchemaMismatch, match="install a newer Outlast"):
        check_usable([one], [applied(one), applied(two, compatible_from="99.0")])


@pytest.mark.parametrize("version", ["0.0.9", "0.1", "0"])
def test_versions_compare_by_number(version: str) -> None:
    (step,) = steps(1)
    check_usable([step], [applied(step, compatible_from=version)])


def test_version_ten_is_later_than_version_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "PROGRAM_VERSION", "0.10")
    (step,) = steps(1)
    check_usable([step], [applied(step, compatible_from="0.2")])


def test_line_ends_do_not_change_the_checksum() -> None:
    unix = step_of("migration_0001_a.sql", HEAD + "SELECT 1;\n")
    dos = step_of("migration_0001_a.sql", (HEAD + "SELECT 1;\n").replace("\n", "\r\n"))
    assert unix == dos


@pytest.mark.parametrize(
    ("name", "text"), [("0001.sql", HEAD), ("migration_0001_a.sql", "SELECT 1;")]
)
def test_a_file_that_is_no_migration_is_a_fault_of_the_program(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"compatible_from"):
        step_of(name, text)


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_the_steps_of_each_dialect_are_numbered_from_one(dialect: str) -> None:
    loaded = migrations.load(dialect)
    assert [step.number for step in loaded] == list(range(1, len(loaded) + 1))
    assert loaded
