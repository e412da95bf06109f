"""Who may write the row of a worker names a file of another program as its lock file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from outlast.base.clock import SYSTEM
from outlast.insight.availability import with_proof
from outlast.store import lockfile
from outlast.store.backend import file_of
from outlast.store.lockfile import LockFile, boot_id, directory_for
from outlast.store.protocol import Store
from outlast.worker.maintenance.reaper import Reaper
from tests.cases import each_case
from tests.conformance.kit import Hands
from tests.unit.worker.worker_kit import FakeOwner

OURS = f"{7:020}\n"  # as in the file of a worker
OTHER = "the only copy\n"


@pytest.fixture
def locks(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this program's lock files."""
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    directory = directory_for(file_of(store_url))
    directory.mkdir(exist_ok=True)
    return directory


async def ghost(store: Store, path: Path, named: Path | None = None) -> Hands:
    """A worker whose row names this file."""
    status = path.lstat()
    place: dict[str, Any] = {"lock_device": status.st_dev, "lock_inode": status.st_ino}
    return await Hands.on(store, boot_id=boot_id(), lock_path=str(named or path), **place)


async def look(store: Store) -> None:
    await Reaper(FakeOwner(), store, clock=SYSTEM).run_once()
    with_proof(await store.inspector.workers())


@pytest.mark.parametrize("way", ["absolute", "from the directory of the locks"])
@pytest.mark.parametrize("name", ["important.txt", "w1-abcdefgh.lock"])
async def test_no_file_that_a_row_names_is_deleted_or_opened(
    store: Store, locks: Path, tmp_path: Path, name: str, way: str
) -> None:
    """The inode of a file can be guessed, and its text be that of a lock file by chance."""
    home = tmp_path / "home"
    home.mkdir()
    path = home / name
    path.write_text(OURS)
    named = path if way == "absolute" else locks / os.path.relpath(home, locks) / name
    hands = await ghost(store, path, named)
    opened: list[str] = []
    real = os.open

    def noted(what: str, *rest: Any, **more: Any) -> int:
        opened.append(os.fspath(what))
        return real(what, *rest, **more)

    with mock.patch("os.open", noted):
        await look(store)
    assert path.read_text() == OURS
    assert {each for each in opened if name in each} <= {f"{locks}/{name}"}
    assert (await hands.seen()).beat == 0, "nothing proves that it is dead"


async def test_a_file_of_another_program_beside_the_lock_files_stays(
    store: Store, locks: Path
) -> None:
    path = locks / "w1-abcdefgh.lock"
    path.write_text(OTHER)
    await ghost(store, path)
    await look(store)
    assert path.read_text() == OTHER


async def test_a_free_lock_file_is_found_by_its_name_and_removed(
    store: Store, locks: Path, tmp_path: Path
) -> None:
    """As of a worker that reaches the same directory by another path."""
    lock = LockFile.create(locks, "w1")
    lock.release(unlink=False)
    await ghost(store, lock.path, tmp_path / "mounted" / lock.path.name)
    (row,) = with_proof(await store.inspector.workers())
    assert row.lock_free
    await look(store)
    assert not lock.path.exists()
    assert not (await store.observe()).workers


@each_case(
    "named", [None, 7, b"x", "", "/", "..", "../..", "/a/b.lock", "x-abcdefgh.lock/", "a\nb"]
)
def test_what_is_no_name_of_a_lock_file_is_looked_for_nowhere(named: object) -> None:
    assert lockfile.place_in(Path("/run"), named) is None


def test_of_a_path_only_the_name_counts() -> None:
    found = lockfile.place_in(Path("/run/outlast"), "/proc/1/../x/w-abcdefgh.lock")
    assert found == "/run/outlast/w-abcdefgh.lock"
