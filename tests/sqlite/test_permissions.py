"""No other user of the machine can read, freeze or blind a store in a SQLite file, unless its owner
has opened it to a group."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import ConfigError
from outlast.insight.doctor.host import locks_of
from outlast.store import open_store
from outlast.store.backend import file_of
from outlast.store.lockfile import LockFile, directory_for
from outlast.store.protocol import Store
from outlast.store.sqlite import connection
from outlast.store.sqlite.checks import SqliteFacts
from tests.conformance.kit import Hands, enqueued

STRANGER = 65_534  # a user id that owns nothing


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


async def in_use(path: Path) -> list[Path]:
    """Use a store as a worker does; return all files and directories that are its own then."""
    url = f"sqlite:///{path}"
    lock = LockFile.create(directory_for(file_of(url)), "w")
    store = open_store(url)
    await store.open()
    try:
        await enqueued(store)
        assert await (await Hands.on(store)).claim(1)
        beside = [one for one in path.parent.iterdir() if one.name.startswith(path.name)]
        modes = {one: mode(one) for one in [*beside, lock.path]}
        assert {one.name for one in beside} >= {f"{path.name}{end}" for end in ("", "-wal", "-shm")}
        if os.getuid() == 0:
            assert taken_by_a_stranger(list(modes)) == []
        for one, bits in modes.items():
            assert not bits & 0o007, f"{one} has mode {bits:o}"
        return list(modes)
    finally:
        lock.release(unlink=False)
        await store.close()


def taken_by_a_stranger(paths: list[Path]) -> list[Path]:
    """Return what another user can open: that is enough to read it, and to hold locks on it."""
    stranger: dict[str, Any] = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
    looks = {path: ["ls" if path.is_dir() else "cat", str(path)] for path in paths}
    tried = {
        path: subprocess.run(look, capture_output=True, check=False, **stranger)
        for path, look in looks.items()
    }
    return [path for path, look in tried.items() if look.returncode == 0]


@pytest.fixture
def srv() -> Iterator[Path]:
    """A directory that every user can enter and list, as there are in /srv."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_new_store_is_its_owner_s_alone(srv: Path) -> None:
    path = srv / "jobs.db"
    own = await in_use(path)
    assert {mode(one) for one in own if one.is_file()} == {0o600}
    assert mode(directory_for(path)) == 0o700


async def test_a_file_that_its_owner_has_opened_to_a_group_is_shared_with_it(srv: Path) -> None:
    path = srv / "jobs.db"
    path.touch()
    path.chmod(0o660)
    own = await in_use(path)
    assert {mode(one) for one in own if one.is_file() and one.suffix != ".lock"} == {0o660}
    assert {mode(one) for one in own if one.suffix == ".lock"} == {0o640}
    assert mode(directory_for(path)) == 0o2770


async def test_doctor_shows_which_other_users_can_use_the_files(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await in_use(path)
    store = open_store(f"sqlite:///{path}")
    await store.open()
    assert await open_to(store) == {}
    assert (await facts_of(store)).directory_mode == mode(tmp_path)
    path.chmod(0o644)
    Path(f"{path}-locks").chmod(0o755)
    found = await open_to(store)
    assert found.items() >= {str(path): 0o644, f"{path}-locks": 0o755}.items()
    await store.close()


async def test_doctor_shows_the_owner_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    await in_use(path)
    path.chmod(0o644)
    store = open_store(f"sqlite:///{path}")
    await store.open()
    assert (await facts_of(store)).owners == {}
    owner = pwd.getpwuid(path.stat().st_uid).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert (await facts_of(store)).owners[str(path)] == owner
    assert locks_of(f"sqlite:///{path}").owner == owner
    await store.close()


async def facts_of(store: Store) -> SqliteFacts:
    found = await store.inspector.environment()
    assert isinstance(found, SqliteFacts)
    return found


async def open_to(store: Store) -> dict[str, int]:
    return (await facts_of(store)).open_to


async def test_a_file_that_is_there_keeps_its_mode_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    await in_use(path)
    path.chmod(0o640)
    await in_use(path)
    assert mode(path) == 0o640
    assert {one.name for one in tmp_path.iterdir()} == {"jobs.db", "jobs.db-locks"}


def test_lock_files_in_a_directory_of_several_users_are_for_its_group(
    tmp_path: Path,
) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.mkdir(mode=0o755)
    shared.mkdir()
    shared.chmod(0o2770)
    for directory, wanted in ((own, 0o600), (shared, 0o640), (tmp_path / "new", 0o600)):
        lock = LockFile.create(directory, "w")
        assert mode(lock.path) == wanted
        lock.release()
    assert mode(tmp_path / "new") == 0o700


as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


def hand_over(path: Path) -> None:
    """Make a file another user's."""
    os.chown(path, STRANGER, -1, follow_symlinks=False)


async def refused(path: Path) -> None:
    """Open a store that cannot be opened, since another user has prepared something."""
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(ConfigError, match=rf"belongs to user {STRANGER}, .* Remove it"):
        await store.open()
    await store.close()


@as_root
@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["file", "link"])
async def test_a_log_that_another_user_has_prepared_is_refused(
    tmp_path: Path, end: str, kind: str
) -> None:
    path, log, precious = (tmp_path / name for name in ("jobs.db", f"jobs.db{end}", "precious"))
    precious.write_text("the only copy")
    if kind == "link":
        log.symlink_to(precious)
    else:
        log.touch()
    hand_over(log)
    await refused(path)
    assert precious.read_text() == "the only copy"
    log.unlink()
    await in_use(path)


@as_root
async def test_a_log_that_another_user_makes_as_the_store_is_opened_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_up = connection._set_up

    def lose_race(opened: Any, path: Path) -> None:
        set_up(opened, path)
        hand_over(path.with_name("jobs.db-wal"))

    monkeypatch.setattr(connection, "_set_up", lose_race)
    await refused(tmp_path / "jobs.db")


@as_root
async def test_a_log_that_the_group_of_the_file_has_made_is_used(tmp_path: Path) -> None:
    path, log = tmp_path / "jobs.db", tmp_path / "jobs.db-wal"
    path.touch()
    path.chmod(0o660)
    log.touch(0o660)
    hand_over(log)
    await in_use(path)


@as_root
async def test_a_file_that_another_user_has_prepared_in_a_directory_of_all_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    path.touch(0o600)
    hand_over(path)
    await in_use(path)
    tmp_path.chmod(0o1777)
    await refused(path)
