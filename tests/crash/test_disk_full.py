"""The store's disk is full under real workers: nothing accepted is lost, and all goes on later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.scene import Scene
from harness.servers import PostgresServer
from harness.stores import opened
from outlast.errors import StoreUnavailable
from outlast.insight.verify import verify
from outlast.model.job import State
from outlast.store.rows import JobFilter
from outlast.store.values import NewJob
from tests.chaos.disk import Disk, own_mounts
from tests.crash.kit import scene

LARGE = "x" * 200_000
TRIES = 1_000  # jobs of that size: more than the disk holds


@pytest.fixture
def disks() -> Iterator[contextlib.ExitStack]:
    """A stack of small disks of the test's own, which are unmounted afterwards."""
    if not own_mounts():
        pytest.skip("a disk that can be filled takes root, who may mount a tmpfs")
    with contextlib.ExitStack() as stack:
        yield stack


def small_disk(disks: contextlib.ExitStack, folder: Path, megabytes: int) -> Disk:
    disk = Disk(folder, megabytes)
    disks.callback(disk.close)
    return disk


async def accepted_until_full(stage: Scene) -> tuple[list[int], str]:
    """Enqueue until a job is refused; return those that were accepted, and why this one was not."""
    accepted: list[int] = []
    for _ in range(TRIES):
        try:
            accepted.append(await stage.enqueue("echoes", data=LARGE))
        except StoreUnavailable as error:
            return accepted, str(error)
    raise AssertionError(f"{len(accepted)} jobs fit on a full disk")


async def is_told_of(stage: Scene, words: str) -> None:
    """Wait until the worker says that it fails, and why."""

    async def said() -> bool:
        told = stage.workers[0].told("store_unavailable")
        return any(words in entry["error"] for entry in told)

    await stage.until(said, f"the worker to say: {words}")


async def all_completed(stage: Scene, accepted: list[int]) -> None:
    for job in accepted:
        assert (await stage.ended(job)).state is State.COMPLETED
    assert stage.workers[0].process.poll() is None


async def outlives_it(stage: Scene, disk: Disk, words: str) -> None:
    """Fill the disk under a worker, which says so in these words, and make room: no accepted job
    is lost."""
    await stage.worker()
    running = await stage.enqueue("counts_while_wanted")
    await stage.started(1)
    disk.fill()
    accepted, why = await accepted_until_full(stage)
    assert words in why
    await is_told_of(stage, words)
    disk.free()
    stage.enough()
    await all_completed(stage, [running, *accepted, await stage.enqueue("noop")])


async def answers(server: PostgresServer) -> bool:
    """Return whether it works; start it again where it ended because it could not write its log."""
    if not server.running:
        server.start()
    with contextlib.suppress(RuntimeError):
        return server.sql("SELECT 1") == "1"
    return False


async def test_a_full_disk_under_a_file_loses_no_accepted_job(
    disks: contextlib.ExitStack, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    disk = small_disk(disks, tmp_path / "disk", 16)
    async with scene(f"sqlite:///{disk.folder}/outlast.db", tmp_path) as stage:
        await outlives_it(stage, disk, "the disk is full: make room")


async def test_a_file_on_a_full_disk_is_read_and_a_little_space_lets_it_be_pruned(
    disks: contextlib.ExitStack, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    disk = small_disk(disks, tmp_path / "disk", 32)
    url = f"sqlite:///{disk.folder}/outlast.db"
    reserve = disk.folder / "reserve"
    reserve.write_bytes(bytes(12 * 1024**2))  # more than the log of 9 MB, which is copied first
    large = NewJob(task="t", args=f'"{LARGE}"')
    async with opened(url) as store:
        made = [(await store.enqueue([large]))[0] for _ in range(40)]
        await store.cancel([one.job_id for one in made])
        disk.fill()
        with pytest.raises(StoreUnavailable, match="the disk is full: make room"):
            while True:
                await store.enqueue([large])

    async with opened(url, read_only=True) as reader:
        cancelled = await reader.inspector.job_ids(JobFilter(state=State.CANCELLED))
        assert len(cancelled.ids) == len(made)
        assert (await reader.inspector.statistics()).ended[0].number == len(made)
        assert (await verify(reader.inspector)).findings == []

    reserve.unlink()
    async with opened(url) as store:
        for _ in range(len(made) // 4):
            assert await store.prune(jobs_older_than=-1.0, workers_older_than=1.0, limit=4) == 4
        assert await store.enqueue([large] * 20)


async def test_a_full_disk_under_a_server_loses_no_accepted_job(
    disks: contextlib.ExitStack, tmp_path: Path
) -> None:
    server = PostgresServer(settings={"max_wal_size": "32MB", "fsync": "on"})
    disks.callback(server.dispose)
    disk = small_disk(disks, server.data, 160)
    disks.callback(server.dispose)  # while its disk is there; its folder goes with the first one
    server.start()
    async with scene(server.create_database("small"), tmp_path) as stage:
        await stage.worker()
        running = await stage.enqueue("counts_while_wanted")
        await stage.started(1)
        disk.fill()
        accepted, why = await accepted_until_full(stage)
        assert why
        disk.free()
        await stage.until(lambda: answers(server), "the server to come back")
        stage.enough()
        await all_completed(stage, [running, *accepted, await stage.enqueue("noop")])


@pytest.fixture
def tables(disks: contextlib.ExitStack) -> tuple[PostgresServer, Disk]:
    """A server whose tables have a small disk of their own, apart from its log."""
    server = PostgresServer()
    disks.callback(server.dispose)
    disk = small_disk(disks, server.data / "base", 64)
    disks.callback(server.stop)  # while its disk is there
    server.start()
    return server, disk


async def test_a_server_that_lives_on_without_room_loses_no_accepted_job(
    tables: tuple[PostgresServer, Disk], tmp_path: Path
) -> None:
    """It goes on, and refuses what needs room: the worker stays, and its row says why it fails."""
    server, disk = tables
    async with scene(server.create_database("small"), tmp_path) as stage:
        await outlives_it(stage, disk, "the server's disk is full: make room there")
    assert server.running


async def test_a_server_without_room_for_a_new_session_says_so(
    tables: tuple[PostgresServer, Disk],
) -> None:
    """It writes a file for the first session after a change of its catalogue."""
    server, disk = tables
    url = server.create_database("small")
    server.sql("SELECT 1", "small")
    disk.fill()
    for each in disk.folder.rglob("pg_internal.init"):
        each.unlink()
    disk.fill()
    with pytest.raises(StoreUnavailable, match=r"init file.*disk is full: make room"):
        async with opened(url):
            pass
