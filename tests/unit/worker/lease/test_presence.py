"""Presence: which workers are gone by it, and how a worker keeps its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.base.clock import SYSTEM
from outlast.base.config import WorkerSettings
from outlast.errors import StoreUnavailable
from outlast.model.lease import ABSENT_BEATS, ABSENT_LOOK_SECONDS, PresenceObserver, Sign
from outlast.model.lease import Presence as Seen
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.protocol import SWITCHED_OFF, NoPresence
from outlast.store.sqlite.wakeup import SqliteWakeup
from outlast.store.values import WorkerRef, WorkerSeen
from outlast.worker.assemble import presence_for
from outlast.worker.lease.presence import OFF_AFTER_SECONDS, RETRY_SECONDS, PresenceKeeper
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import heard_fields, lease_of


def sign(
    presence: Seen = Seen.ABSENT, beat: int = 7, heartbeat: float = 2.0, incarnation: str = "a"
) -> Sign:
    return Sign(1, beat, heartbeat, 30 * heartbeat, presence, incarnation)


class Looks:
    """Looks at one worker, each half a second after the last unless the test says otherwise."""

    def __init__(self) -> None:
        self.observer = PresenceObserver()
        self.now = 0.0

    def look(self, seen: Sign, *, pause: float = 0.5, takes: float = 0.0) -> bool:
        """Return whether the worker is gone by this look."""
        asked_at = self.now
        self.now += takes
        gone = self.observer.look(asked_at, self.now, [seen])
        self.now += pause
        return bool(gone)

    def seconds(self, seen: Sign, seconds: float) -> bool:
        gone = [self.look(seen) for _ in range(int(seconds * 2))]
        return any(gone)


@pytest.fixture
def looks():
    return Looks()


# ------------------------------------------------------------------------ gone workers


def test_an_absent_worker_without_a_due_beat_is_gone(looks):
    assert not looks.seconds(sign(), 4.0), "0 to 3.5 s"
    assert looks.look(sign())


def test_a_first_look_proves_nothing(looks):
    assert not looks.look(sign())


@pytest.mark.parametrize(
    "between",
    [sign(Seen.HELD), sign(Seen.UNKNOWN), sign(beat=8), sign(incarnation="b")],
    ids=["taken back", "switched off", "beaten", "another incarnation"],
)
def test_one_sign_of_life_starts_the_observing_again(looks, between):
    looks.seconds(sign(), 3.5)
    assert not looks.look(between)
    assert not looks.seconds(sign(), 4.0)
    assert looks.look(sign())


def test_a_worker_that_beats_is_never_gone_however_long_it_is_absent(looks):
    assert not any(looks.look(sign(beat=int(looks.now / 2))) for _ in range(100))


def test_a_failed_look_starts_the_observing_again(looks):
    looks.seconds(sign(), 3.5)
    looks.observer.forget()
    assert not looks.seconds(sign(), 4.0)


def test_a_pause_between_looks_starts_the_observing_again(looks):
    looks.seconds(sign(), 3.0)
    looks.look(sign(), pause=1.6)
    assert not looks.seconds(sign(), 4.0)


def test_a_slow_answer_proves_nothing_about_the_time_it_took(looks):
    """The rows were perhaps read right after the request."""
    assert not looks.seconds(sign(), 3.5)
    assert not looks.look(sign(), takes=1.0), "asked for at 3.5 s, after the first look's answer"
    assert looks.look(sign())


def test_an_absent_worker_makes_the_next_look_soon(looks):
    looks.look(sign(Seen.HELD))
    assert looks.observer.pause is None
    looks.look(sign())
    assert looks.observer.pause == ABSENT_LOOK_SECONDS
    looks.look(sign(heartbeat=0.4))
    assert looks.observer.pause == pytest.approx(0.1)


@given(st.floats(0.1, 30), st.floats(0, 1000))
def test_two_looks_alone_never_find_a_worker_gone(heartbeat, pause):
    looks = Looks()
    looks.look(sign(heartbeat=heartbeat), pause=pause)
    assert not looks.look(sign(heartbeat=heartbeat))


@given(st.floats(0.1, 30), st.floats(0, 1), st.data())
def test_a_worker_that_beats_while_the_store_is_up_is_never_gone(heartbeat, phase, data):
    """It never regains its presence, and the store stalls for any time, for both of them."""
    observer, now, beat, last_beat = PresenceObserver(), 0.0, 0, -phase * heartbeat
    for _ in range(60):
        stall = data.draw(st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0, 1.75, 3.5])) * heartbeat
        asked_at, now = now, now + stall
        seen = sign(beat=beat, heartbeat=heartbeat)
        assert observer.look(asked_at, now, [seen]) == []
        if now - last_beat >= heartbeat:
            last_beat, beat = now, beat + 1


@given(st.floats(0.1, 30))
def test_a_dead_worker_is_found_within_two_beats_and_a_quarter(heartbeat):
    observer, now = PresenceObserver(), 0.0
    while not observer.look(now, now, [sign(heartbeat=heartbeat)]):
        assert observer.pause is not None
        now += observer.pause
    assert heartbeat * ABSENT_BEATS < now <= heartbeat * (ABSENT_BEATS + 0.5)


# -------------------------------------------------------------------- how it is kept


class Lock:
    """A lock that answers as set: None is held, a text is why not, an error is raised."""

    def __init__(self) -> None:
        self.answer: str | Exception | None = None
        self.asked: list[int] = []
        self.released = 0

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None]) -> str | None:
        self.asked.append(me.worker_id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def release(self) -> None:
        self.released += 1


class Row:
    """The store, as far as presence goes."""

    def __init__(self) -> None:
        self.off: list[tuple[int, str]] = []
        self.away = False

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.off.append((me.worker_id, reason))


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.lock, self.row, self.lease = Lock(), Row(), lease_of()
        self.duty = PresenceKeeper(
            self.lock,
            self.row,  # type: ignore[arg-type]
            self.lease,
            clock=self.clock,
        )

    async def runs(self, seconds: float) -> list[float]:
        """Let the duty run for some seconds as a service would; return its pauses."""
        pauses, end = [], self.clock.boot() + seconds
        while self.clock.boot() < end:
            pauses.append(await self.duty.run_once())
            self.clock.advance(pauses[-1])
        return pauses


@pytest.fixture
def scene():
    return Scene()


async def test_presence_is_taken_and_then_proved_at_intervals(scene):
    with heard_fields() as events:
        assert await scene.runs(60.0) == [20.0, 20.0, 20.0]
    assert scene.lock.asked == [1, 1, 1]
    assert events == [("presence_taken", {"worker_id": 1})]
    assert scene.row.off == []


async def test_lost_presence_is_retried_at_once_and_then_every_quarter_second(scene):
    await scene.duty.run_once()
    scene.lock.answer = StoreUnavailable("terminated")
    with heard_fields() as events:
        assert await scene.runs(0.5) == [RETRY_SECONDS, RETRY_SECONDS]
        scene.lock.answer = None
        await scene.duty.run_once()
    assert events == [("presence_taken", {"worker_id": 1})]
    assert scene.row.off == [], "no other worker had to know"


@pytest.mark.parametrize("answer", ["a pooler", StoreUnavailable("a pooler")], ids=str)
async def test_presence_that_cannot_be_held_is_noted_on_the_row_once_and_retried(scene, answer):
    scene.lock.answer = answer
    with heard_fields() as events:
        pauses = await scene.runs(20.0)
    assert scene.row.off == [(1, "a pooler")]
    assert events == [("presence_off", {"worker_id": 1, "reason": "a pooler"})]
    assert pauses[:4] == [RETRY_SECONDS] * 4
    assert pauses[int(OFF_AFTER_SECONDS / RETRY_SECONDS) :] == [2.0] * 10
    scene.lock.answer = None
    with heard_fields() as events:
        await scene.duty.run_once()
    assert events == [("presence_taken", {"worker_id": 1})]


async def test_during_an_outage_presence_notes_nothing(scene):
    scene.lock.answer, scene.row.away = StoreUnavailable("away"), True
    with heard_fields() as events:
        assert set(await scene.runs(20.0)) == {RETRY_SECONDS}
    assert events == []
    scene.row.away = False
    await scene.duty.run_once()
    assert scene.row.off == [(1, "away")]


@pytest.mark.parametrize("shown", sorted(Seen), ids=str)
async def test_a_look_without_the_lock_contradicts_only_a_worker_that_holds_it(scene, shown):
    own = WorkerSeen(
        worker_id=1, name="w", host="h", boot_id="b", beat=1, heartbeat=2.0, lease=60.0,
        presence=shown,
    )  # fmt: skip
    scene.lock.answer = "a pooler"
    await scene.duty.run_once()
    assert not scene.duty.is_lost([own]), "it does not believe so"
    scene.lock.answer = None
    await scene.duty.run_once()
    assert scene.duty.is_lost([own]) == (shown is not Seen.HELD)


async def test_a_new_registration_has_a_lock_of_its_own(scene):
    await scene.duty.run_once()
    scene.lease.me = WorkerRef(1, 2)
    await scene.duty.run_once()
    assert (scene.lock.asked, scene.lock.released) == ([1, 1], 1), "a new epoch changes nothing"
    scene.lease.me = WorkerRef(5, 1)
    await scene.duty.run_once()
    assert (scene.lock.asked, scene.lock.released) == ([1, 1, 5], 2)


async def test_presence_switched_off_is_noted_on_the_row(scene):
    scene.duty._lock = NoPresence()
    await scene.runs(2.0)
    assert scene.row.off == [(1, SWITCHED_OFF)]


def test_sqlite_has_no_presence():
    url = "sqlite:///x.db"
    assert presence_for(url, WorkerSettings(), SqliteWakeup(url, SYSTEM)) is None
    assert presence_for(url, WorkerSettings(presence=False), SqliteWakeup(url, SYSTEM)) is None


def test_a_worker_on_a_server_may_do_without_presence():
    url = "postgresql://h/d"
    lock = presence_for(url, WorkerSettings(presence=False), PostgresWakeup(url))
    assert isinstance(lock, NoPresence)
