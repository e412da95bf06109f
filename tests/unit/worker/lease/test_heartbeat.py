"""The heartbeat: its time is taken before sending, a missed beat is repeated, and none is sent for
a main loop that stands still."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.lease import LeaseTerms, Trust
from outlast.store import lockfile
from outlast.store.lockfile import LockFile, Probe
from outlast.store.values import Beat, Failing, WorkerRef
from outlast.worker.lease.heartbeat import PAUSE_SECONDS_MIN, RETRY_SECONDS_MAX, Heartbeat
from outlast.worker.service import Trouble
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import heard

ME = WorkerRef(1, 1)
TERMS = LeaseTerms(heartbeat=2.0, lease=60.0)


class BeatingStore:
    """A store that renews, or fails as set; each beat takes a while."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.takes = 0.25  # seconds
        self.fails: list[BaseException] = []
        self.beats: list[WorkerRef] = []
        self.drops = 0
        self.failing: list[Failing | None] = []
        self.refuses = 0

    async def heartbeat(self, me: WorkerRef) -> Beat:
        self.clock.advance(self.takes)
        if self.fails:
            raise self.fails.pop(0)
        self.beats.append(me)
        return Beat(renewed=True)

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        if self.refuses:
            self.refuses -= 1
            raise StoreUnavailable("busy")
        self.failing.append(failing)

    async def drop_connections(self) -> None:
        self.drops += 1
        raise OSError("it cannot even be closed")


class Heart:
    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.store = BeatingStore(self.clock)
        self.opened = 0
        self.told: list[tuple[float, WorkerRef, Beat]] = []
        self.missed: list[float] = []
        self.heartbeat = Heartbeat(
            self._open,  # type: ignore[arg-type]
            ME,
            TERMS,
            clock=self.clock,
            on_beat=lambda *beat: self.told.append(beat),
            on_miss=lambda: self.missed.append(self.clock.boot()),
        )

    async def _open(self) -> BeatingStore:
        self.opened += 1
        return self.store

    async def beat(self) -> float:
        pause = await self.heartbeat.run_once()
        await asyncio.sleep(0)  # the main loop turns
        return pause


@pytest.fixture
async def heart():
    return Heart()


async def test_a_beat_is_reported_with_the_time_before_it_was_sent(heart):
    heart.clock.advance(10.0)
    assert await heart.beat() == TERMS.heartbeat - heart.store.takes
    assert heart.told == [(10.0, ME, Beat(renewed=True))]
    assert heart.clock.boot() == 10.25


async def test_all_beats_use_one_connection(heart):
    for _ in range(3):
        await heart.beat()
    assert heart.opened == 1


async def test_a_beat_is_reported_with_its_registration(heart):
    await heart.beat()
    heart.heartbeat.me = WorkerRef(2, 1)
    await heart.beat()
    assert [me for _, me, _ in heart.told] == [ME, WorkerRef(2, 1)]


async def test_the_lock_file_of_a_worker_that_died_just_now_is_not_old(heart, tmp_path):
    """Otherwise its successor removes the proof of its death at the start, and waits for a lease:
    no attempt has begun for a day where one takes two, or none has come."""
    heart.heartbeat._lock = lock = LockFile.create(tmp_path, "w1")
    os.utime(lock.path, (0, 0))
    await heart.beat()
    lock.release(unlink=False)
    LockFile.create(tmp_path, "successor").release()
    assert lockfile.probe(lock.path, lock.device, lock.inode) is Probe.FREE


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), OSError("reset"), TimeoutError(), RuntimeError("a driver's bug")],
    ids=lambda error: type(error).__name__,
)
async def test_a_missed_beat_is_reported_once_and_retried_soon(heart, error):
    heart.store.fails = [error, error]
    with heard() as names:
        for pause in (RETRY_SECONDS_MAX, RETRY_SECONDS_MAX, TERMS.heartbeat):
            assert await heart.beat() == pause - heart.store.takes
    assert names == ["store_unavailable", "store_recovered"]
    assert heart.store.drops == 2
    assert len(heart.told) == 1


async def test_each_missed_beat_is_told_unless_this_process_stood_still(heart):
    heart.store.fails = [StoreUnavailable("away"), TimeoutError()]
    await heart.beat()
    assert heart.missed == [0.25]
    heart.store.takes = TERMS.lease / 2
    await heart.beat()
    assert len(heart.missed) == 1


@pytest.mark.parametrize("error", [None, TimeoutError()], ids=["answered", "lost"])
async def test_after_a_beat_that_took_long_the_next_is_asked_at_once(heart, error):
    heart.store.takes, heart.store.fails = TERMS.lease / 3, [error] if error else []
    assert await heart.beat() == PAUSE_SECONDS_MIN


async def test_the_shortest_lease_survives_one_lost_beat(heart):
    """A lease of three heartbeats, with the whole patience spent on the lost one."""
    terms = LeaseTerms(heartbeat=1.0, lease=3.0)
    heart.heartbeat._terms = terms
    trust = Trust(terms, asked_at=heart.clock.boot())
    heart.clock.advance(await heart.beat())
    heart.store.takes, heart.store.fails = terms.lease / 3, [TimeoutError()]
    heart.clock.advance(await heart.beat())
    heart.store.takes = 0.25
    await heart.beat()
    assert trust.holds(heart.clock.boot())


@pytest.mark.parametrize("error", [None, StoreUnavailable("away")], ids=["renewed", "missed"])
async def test_a_lock_file_that_a_task_has_unlocked_is_locked_by_the_next_beat(
    heart, tmp_path: Path, error: Exception | None
):
    lock = LockFile.create(tmp_path, "w1")
    heart.heartbeat._lock, heart.store.fails = lock, [error] if error else []
    fcntl.flock(lock.fd, fcntl.LOCK_UN)
    fcntl.flock(lock.runners_fd, fcntl.LOCK_UN)
    await heart.beat()
    assert lockfile.probe(lock.path, lock.device, lock.inode) is Probe.HELD
    lock.release()


async def test_a_main_loop_that_has_stopped_turning_is_not_kept_alive(heart):
    await heart.beat()
    heart.clock.advance(TERMS.lease / 2)
    assert await heart.heartbeat.run_once() == RETRY_SECONDS_MAX
    assert len(heart.store.beats) == 1
    await asyncio.sleep(0)  # it turns again
    await heart.beat()
    assert len(heart.store.beats) == 2


async def test_a_beat_writes_the_failing_duty_once_and_on_change(heart):
    await heart.beat()
    assert heart.store.failing == []
    heart.heartbeat.report(Trouble("exchange", "NotPermitted: no", 0.0))
    for _ in range(3):
        await heart.beat()
    assert heart.store.failing == [Failing("exchange", "NotPermitted: no", 0.5)]
    heart.heartbeat.report(None)
    for _ in range(3):
        await heart.beat()
    assert heart.store.failing[1:] == [None]


async def test_an_unwritten_failure_is_written_with_the_next_beat(heart):
    heart.store.refuses = 1
    heart.heartbeat.report(Trouble("exchange", "NotPermitted: no", 0.0))
    with heard() as names:
        await heart.beat()
        await heart.beat()
    assert len(heart.store.failing) == 1
    assert (len(heart.told), heart.store.drops, names) == (2, 0, [])


async def test_a_new_registration_also_gets_the_failing_duty(heart):
    heart.heartbeat.report(Trouble("exchange", "NotPermitted: no", 0.0))
    await heart.beat()
    heart.heartbeat.note_registration(WorkerRef(2, 1))
    await heart.beat()
    assert len(heart.store.failing) == 2
