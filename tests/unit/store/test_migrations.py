"""The rules of migrations, without a store."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from outlast.errors import SchemaMismatch
from outlast.store import migrations
from outlast.store.migrations import (
    Applied,
    Step,
    check_history,
    check_usable,
    pending,
    read,
    step_of,
)
from tests.cases import each_case

HEAD = "-- compatible_from: 0.1\n"


def steps(count: int) -> list[Step]:
    return [
        step_of(f"migration_{n:04}_step{n}.sql", HEAD + f"SELECT {n};") for n in range(1, count + 1)
    ]


def applied(step: Step, **changes: str) -> Applied:
    row = {"checksum": step.checksum, "compatible_from": step.compatible_from, **changes}
    return Applied(step.number, step.name, row["checksum"], row["compatible_from"], 0.0)


@each_case("version", ["0.0.9", "0.1", "0"])
def test_versions_compare_by_number(version: str) -> None:
    (step,) = steps(1)
    check_usable([step], [applied(step, compatible_from=version)])


def test_version_ten_is_later_than_version_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "PROGRAM_VERSION", "0.10")
    (step,) = steps(1)
    check_usable([step], [applied(step, compatible_from="0.2")])


def test_line_endings_do_not_change_the_checksum(tmp_path: Path) -> None:
    found = []
    for end in ("\n", "\r\n"):
        text = (HEAD + "SELECT 1;\n").replace("\n", end)
        (tmp_path / "migration_0001_a.sql").write_bytes(text.encode())
        found.append(read(tmp_path))
    unix, dos = found
    assert unix == dos


@each_case(("name", "text"), [("0001.sql", HEAD), ("migration_0001_a.sql", "SELECT 1;")])
def test_an_invalid_migration_file_is_an_internal_error(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"compatible_from"):
        step_of(name, text)


@each_case("more", ["", " UNIQUE"])
def test_an_index_that_is_built_beside_writers_is_a_step_of_its_own(more: str) -> None:
    build = f"CREATE{more} INDEX CONCURRENTLY outlast_i ON outlast_jobs (id);\n"
    assert step_of("migration_0002_i.sql", f"{HEAD}-- Why;\n{build}").index == "outlast_i"
    for text in (f"SELECT 1;\n{build}", f"{build}SELECT 1;", build.replace("outlast_i ", "")):
        with pytest.raises(ValueError, match="a migration of its own"):
            step_of("migration_0002_i.sql", HEAD + text)
    assert step_of("migration_0002_i.sql", f"{HEAD}-- not CONCURRENTLY\nSELECT 1;").index is None


def folder_of(path: Path, **files: str) -> Path:
    """Return a folder with these files; two underscores stand for a slash."""
    for name, text in files.items():
        file = path / f"{name.replace('__', '/')}.sql"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


INCLUDING = HEAD + "SELECT 1;\n\\ir functions/f_v1.sql\nSELECT 2;\n"


def test_what_a_step_includes_stands_in_the_place_of_the_line(tmp_path: Path) -> None:
    (step,) = read(folder_of(tmp_path, migration_0001_a=INCLUDING, functions__f_v1="SELECT 'f';\n"))
    assert step.sql == HEAD + "SELECT 1;\nSELECT 'f';\n\nSELECT 2;\n"


def test_an_edited_file_is_noticed_where_the_step_that_includes_it_was_applied(
    tmp_path: Path,
) -> None:
    files = {"migration_0001_a": INCLUDING, "functions__f_v1": "SELECT 'f';\n"}
    before = read(folder_of(tmp_path, **files))
    check_history(before, [applied(before[0])])
    after = read(folder_of(tmp_path, functions__f_v1="SELECT 'f';  -- forever\n"))
    with pytest.raises(SchemaMismatch, match=r"migration 0001 .* another build"):
        check_history(after, [applied(before[0])])


def test_a_function_that_changes_is_a_new_file_in_a_new_step(tmp_path: Path) -> None:
    files = {"migration_0001_a": INCLUDING, "functions__f_v1": "SELECT 'f';\n"}
    (before,) = read(folder_of(tmp_path, **files))
    more = {"migration_0002_b": HEAD + "\\ir functions/f_v2.sql\n", "functions__f_v2": "SELECT 2;"}
    after = read(folder_of(tmp_path, **more))
    check_history(after, [applied(before)])
    assert [step.name for step in pending(after, [applied(before)])] == ["b"]


def test_a_step_that_includes_a_file_that_is_missing_is_a_fault_of_the_program(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match=r"migration_0001_a\.sql includes functions/f_v1\.sql"):
        read(folder_of(tmp_path, migration_0001_a=INCLUDING))


def test_steps_with_a_gap_are_a_fault_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="numbered 1, 2, 3"):
        read(folder_of(tmp_path, migration_0002_a=HEAD))


SQL = resources.files("outlast.store")


@each_case("dialect", ["postgres", "sqlite"])
def test_each_file_of_a_function_is_included_by_one_step(dialect: str) -> None:
    folder = Path(str(SQL.joinpath(dialect, "sql")))
    included = [
        line.removeprefix("\\ir ")
        for file in folder.glob("migration_*.sql")
        for line in file.read_text().splitlines()
        if line.startswith("\\ir ")
    ]
    files = [str(file.relative_to(folder)) for file in folder.glob("*/*.sql")]
    assert sorted(included) == sorted(files)


def is_a_head_and_its_function(file: Path) -> bool:
    head, create, rest = file.read_text().partition(f"\nCREATE FUNCTION {file.stem}(")
    return (
        create != ""
        and file.suffix == ".sql"
        and re.search(r"_v\d+$", file.stem) is not None
        and all(line.startswith("-- ") or line == "--" for line in head.splitlines())
        and rest.endswith("\n$$;\n")
        and rest.count("$$") == 2
    )


def test_a_file_of_a_function_has_a_head_and_the_function_of_its_name_alone() -> None:
    functions = list(Path(str(SQL.joinpath("postgres", "sql", "functions"))).iterdir())
    assert functions
    assert [each.name for each in functions if not is_a_head_and_its_function(each)] == []


@each_case("dialect", ["postgres", "sqlite"])
def test_the_steps_of_each_dialect_are_numbered_from_one(dialect: str) -> None:
    loaded = migrations.load(dialect)
    assert [step.number for step in loaded] == list(range(1, len(loaded) + 1))
    assert loaded
