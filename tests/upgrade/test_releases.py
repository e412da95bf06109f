"""The two releases of a rehearsal: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.store.migrations import load, read
from tests.chaos.supervisor import Member
from tests.upgrade import releases, run
from tests.upgrade.run import SPARED_SECONDS, Seat, unlike
from tools import release
from tools.release import Refused


def test_only_the_copy_has_the_migrations_of_the_rehearsal(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    releases.copy_tree(tree)
    releases.add_migrations(tree)
    releases.add_break(tree)
    for dialect in releases.DIALECTS:
        steps = read(tree / releases.SQL / dialect / "sql")
        assert steps[:-3] == load(dialect)
        assert [step.name for step in steps[-3:]] == [
            f"rehearsal_{name}" for name in releases.REHEARSAL
        ]
    assert "rehears" not in "".join(
        step.sql for dialect in releases.DIALECTS for step in load(dialect)
    )


def test_a_release_that_git_does_not_have_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "FROM", tmp_path / "upgrade-from")
    releases.FROM.write_text("# a comment\nv99.0.0\n")
    with pytest.raises(Refused, match=r"names v99\.0\.0, which git cannot show here"):
        releases.make_old_tree(tmp_path / "old", tmp_path / "new")


def test_an_upgrade_begins_with_the_kept_wheel_of_the_last_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes, and not a tree that is built again."""
    monkeypatch.setattr(releases, "FROM", tmp_path / "upgrade-from")
    new = tmp_path / "new" / "tree"
    releases.copy_tree(new)
    wheel = releases.build(new)
    releases.FROM.write_text(f"# a comment\n{wheel}\n")
    name, kept = releases.make_old_tree(tmp_path / "old", new)
    assert (name, kept) == (wheel.stem, wheel)
    old = releases.Release(name, wheel, tmp_path / "installed")
    code, told = old.ask("migrate", url=f"sqlite:///{tmp_path}/jobs.db")
    assert code == 0, told
    releases.FROM.write_text("tests/upgrade/outlast-99.whl\n")
    with pytest.raises(Refused, match=r"names tests/upgrade/outlast-99\.whl, which is not there"):
        releases.make_old_tree(tmp_path / "missing", new)


def test_a_changed_migration_is_refused_once_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "RELEASED", tmp_path / "released-migrations")
    new = tmp_path / "new"
    releases.copy_tree(new)
    with (new / releases.SQL / "sqlite/sql/migration_0001_schema.sql").open("a") as file:
        file.write("-- changed\n")
    assert releases.make_old_tree(tmp_path / "before", new) == ("this tree", None)
    assert "as it may until the first release" in capsys.readouterr().out
    release.RELEASED.write_text("abc  sqlite 0001 schema\n")
    with pytest.raises(Refused, match="a released migration never changes"):
        releases.make_old_tree(tmp_path / "after", new)


def test_two_releases_may_differ_in_names_that_one_has_alone_and_in_nothing_else() -> None:
    new = {"jobs": [{"id": 1, "state": "dead", "more": 1}], "now": 1}
    assert list(unlike(new, {"jobs": [{"id": 1, "state": "dead"}], "now": 2}, "jobs")) == []
    (told,) = unlike(new, {"jobs": [{"id": 1, "state": "queued"}]}, "list")
    assert told == "UPGRADE list.jobs[0].state: the new release reads 'dead', the old one 'queued'"
    assert len(list(unlike(new, {"jobs": []}, "list"))) == 1


def test_a_worker_is_spared_until_it_has_ended_an_attempt_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, log = [0.0], tmp_path / "worker-0.log"
    log.write_text('{"event": "attempt_ended"}\n')  # of the worker before it
    living = SimpleNamespace(log=log, process=SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(run, "boot", lambda: clock[0])
    monkeypatch.setattr(Member, "start", lambda seat: setattr(seat, "process", living))
    scene: Any = SimpleNamespace(folder=tmp_path)
    release: Any = None
    seat = Seat(scene, 0, "", release)
    seat.start()
    assert not seat.may_be_harmed
    clock[0] = SPARED_SECONDS
    assert seat.may_be_harmed, "a start that takes too long is harmed"
    seat.start()
    assert not seat.may_be_harmed
    with log.open("a") as file:
        file.write('{"event": "attempt_ended"}\n')
    assert seat.may_be_harmed
