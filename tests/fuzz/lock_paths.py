"""The place of a lock file on the row of a worker, as who may write that table has it: no file is
touched but lock files in this worker's own directory, and the looks of workers go on."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from unittest import mock

import msgspec
from hypothesis import strategies as st

from harness.stores import opened
from outlast.base.clock import SYSTEM
from outlast.insight.availability import with_proof
from outlast.store.backend import file_of
from outlast.store.lockfile import boot_id, directory_for
from outlast.store.protocol import Store
from outlast.worker.maintenance.reaper import Reaper
from tests.conformance.kit import Hands
from tests.fuzz.kit import INT64, SECONDS, Fuzzer
from tests.fuzz.lock_files import paths
from tests.unit.worker.worker_kit import FakeOwner

OURS = f"{7:020}\n"  # as in the file of a worker
PLACES = ["home/note.txt", "home/w1-abcdefgh.lock", "home/x/../w1-abcdefgh.lock"]


class Row(msgspec.Struct, frozen=True):
    """What a row names. ``known``: the number of the file's inode was guessed."""

    path: str
    known: bool
    device: int
    inode: int


rows = st.builds(
    Row,
    st.sampled_from(["{root}/" + one for one in PLACES])
    | st.sampled_from(["{locks}/../" + one for one in PLACES])
    | paths,
    st.booleans(),
    st.integers(-INT64, INT64 - 1),
    st.integers(-INT64, INT64 - 1),
)


def rows_name_files(all_rows: list[Row]) -> None:
    """The files of others stay as they are; none of them is opened."""
    with (
        tempfile.TemporaryDirectory() as root,
        mock.patch.dict(os.environ, {"OUTLAST_RUN_DIR": f"{root}/run"}),
    ):
        asyncio.run(_rows_name_files(Path(root), all_rows))


async def _rows_name_files(root: Path, all_rows: list[Row]) -> None:
    victims = [root / "home" / "note.txt", root / "home" / "w1-abcdefgh.lock"]
    (root / "home" / "x").mkdir(parents=True)
    for victim in victims:
        victim.write_text(OURS)
    url = f"sqlite:///{root}/it.db"
    locks = directory_for(file_of(url))
    locks.mkdir(parents=True, exist_ok=True)
    async with opened(url) as store:
        with closing(sqlite3.connect(root / "it.db")) as file:
            for number, row in enumerate(all_rows):
                _write(file, await Hands.on(store, f"w{number}"), root, locks, row)
        async with asyncio.timeout(SECONDS):
            found = await _look(store)
    assert [victim.read_text() for victim in victims] == [OURS] * len(victims)
    assert not {os.path.realpath(one) for one in found} & {*map(str, victims)}


def _write(file: sqlite3.Connection, hands: Hands, root: Path, locks: Path, row: Row) -> None:
    """Write the place into the row; SQLite takes any text that it can encode."""
    path = row.path.replace("{root}", str(root)).replace("{locks}", str(locks))
    device, inode = row.device, row.inode
    if row.known and "home" in path:
        status = (root / "home" / Path(path).name).stat()
        device, inode = status.st_dev, status.st_ino
    text = path.encode("utf-8", "replace").decode()
    with file:
        file.execute(
            "UPDATE outlast_workers SET lock_path = ?, lock_device = ?, lock_inode = ?,"
            " boot_id = ? WHERE id = ?",
            (text, device, inode, boot_id(), hands.me.worker_id),
        )


async def _look(store: Store) -> list[str]:
    """Return which files a reaper and a reading command open."""
    opened: list[str] = []
    real = os.open

    def noted(path: str, *rest: int, **more: int) -> int:
        opened.append(os.fspath(path))
        return real(path, *rest, **more)

    with mock.patch("os.open", noted):
        await Reaper(FakeOwner(), store, clock=SYSTEM).run_once()
        with_proof(await store.inspector.workers())
    return opened


FUZZERS = [
    Fuzzer("lock paths of workers", st.lists(rows, min_size=1, max_size=5), rows_name_files, few=10)
]
