"""`make release`: what it refuses, and that a commit gives the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from outlast.store.migrations import Step, load, step_of
from tests.cases import each_case
from tests.package.wheel_kit import build
from tools import release

DATED = "# Changelog\n\n## [0.1.0] - 2026-11-25\n\n### Added\n"


@each_case("text", [DATED, DATED.replace("## [0.1", "## [Unreleased]\n\n## [0.1", 1)])
def test_a_dated_changelog_is_accepted(text: str) -> None:
    release.check_changelog(text, "0.1.0")


@each_case(
    "text",
    [
        "# Changelog\n",
        "# Changelog\n\n## [Unreleased]\n\n### Added\n",
        DATED.replace("## [0.1", "## [Unreleased]\n\n- more\n\n## [0.1", 1),
        DATED.replace("0.1.0", "0.0.9"),
        DATED.replace(" - 2026-11-25", ""),
    ],
)
def test_a_changelog_without_a_date_is_refused(text: str) -> None:
    with pytest.raises(release.Refused, match=r"begin with '## \[0\.1\.0\] - YYYY-MM-DD'"):
        release.check_changelog(text, "0.1.0")


def test_a_tree_with_changes_or_on_a_branch_is_refused(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    git("commit", "--allow-empty", "--message=first")
    release.check_clean(tmp_path)
    (tmp_path / "new.txt").write_text("")
    with pytest.raises(release.Refused, match=r"commit or remove these files first:\n\?\? new.txt"):
        release.check_clean(tmp_path)
    (tmp_path / "new.txt").unlink()
    git("switch", "--create", "other")
    with pytest.raises(release.Refused, match="the branch is 'other'"):
        release.check_clean(tmp_path)


def test_a_migration_is_frozen_by_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = tmp_path / "released-migrations"
    release.check_migrations(frozen, record=False)
    assert release.read_released(frozen) == {}, "a rehearsal freezes nothing"
    with pytest.raises(release.Refused, match=r"released-migrations froze .*: commit it"):
        release.check_migrations(frozen, record=True)
    release.check_migrations(frozen, record=True)
    assert {"postgres 0001 schema", "sqlite 0001 schema"} <= release.read_released(frozen).keys()

    def load_changed(dialect: str) -> list[Step]:
        first, *others = load(dialect)
        changed = "-- changed" if dialect == "sqlite" else ""
        return [step_of(f"migration_0001_{first.name}.sql", first.sql + changed), *others]

    monkeypatch.setattr(release, "load", load_changed)
    for record in (True, False):
        with pytest.raises(
            release.Refused, match=r"frozen .*: sqlite 0001 schema\. Take .*the next"
        ):
            release.check_migrations(frozen, record=record)
    monkeypatch.setattr(release, "load", lambda dialect: load(dialect)[1:])
    with pytest.raises(release.Refused, match="postgres 0001 schema, sqlite 0001 schema"):
        release.check_migrations(frozen, record=False)


@pytest.mark.slow
@pytest.mark.xdist_group("wheel")
def test_two_builds_of_a_commit_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = build(tmp_path / "first")
    assert [a.read_bytes() for a in first] == [b.read_bytes() for b in build(tmp_path / "second")]

    listed = release.list_packages(first[1], 1_700_000_000)
    assert listed == release.list_packages(first[1], 1_700_000_000)
    parsed = json.loads(listed)
    names = {each["name"] for each in parsed["components"]}
    assert {"msgspec", "asyncpg", "starlette", "cryptography", "uvloop"} <= names
    assert "outlast" not in names
    assert all(each["purl"].endswith(f"@{each['version']}") for each in parsed["components"])
    (digest,) = parsed["metadata"]["component"]["hashes"]
    assert digest["content"] == hashlib.sha256(first[1].read_bytes()).hexdigest()

    release.write_sums([*first], tmp_path / "first" / "SHA256SUMS")
    checked = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(checked, cwd=tmp_path / "first", check=True, capture_output=True)
