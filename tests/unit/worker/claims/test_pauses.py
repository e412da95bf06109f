"""The keeper of pauses, step by step: what is asked for, what starts, what is acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.model.pause import Pause, PauseKind
from outlast.store.values import Claimed, ClaimRequest, Exchanged, WorkerRef
from outlast.worker.claims.exchange import Exchange
from outlast.worker.claims.pauses import READ_SECONDS, RECALL_SECONDS, PauseKeeper
from tests.unit.worker.claims.exchange_kit import Bench
from tests.unit.worker.worker_kit import accepted, claimed, heard

FREE = 10  # slots of the worker


def paused(number: int, kind: str, name: str = "", **fields: Any) -> Pause:
    return Pause(id=number, kind=PauseKind(kind), name=name, paused_at=0.0, **fields)


class Paused(Bench):
    """An exchange with a keeper, and the store that it reads."""

    def __init__(self) -> None:
        super().__init__(FREE)
        self.listed: list[Pause] = []
        self.on_read: Callable[[], None] = lambda: None
        self.found_waiting: list[Claimed] = []  # claimed, and not begun
        store: Any = self.store
        store.inspector, store.acknowledge_pauses = self, self.acknowledge_pauses
        self.pool.recall = self.recall  # type: ignore[method-assign]
        self.keeper = PauseKeeper(self, store, self.in_flight, self.clock)  # type: ignore[arg-type]
        self.nudged = self.keeper.nudge
        self.exchange = Exchange(
            store,
            self.in_flight,
            self.pool,
            self.holder,
            self.checkpoints,
            self.plan,
            self.keeper,
            clock=self.clock,
        )

    @property
    def me(self) -> WorkerRef:
        return self.holder.me

    def look_for_work(self) -> None:
        self.store.calls.append(("look for work", None))

    async def pauses(self) -> list[Pause]:
        self.store.calls.append(("pauses", None))
        listed = list(self.listed)
        self.on_read()
        return listed

    async def acknowledge_pauses(self, me: WorkerRef, version: str) -> None:
        self.store.calls.append(("acknowledge_pauses", version))

    def recall(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> bool:
        assert which is not None
        self.store.calls.append(("recall", [c.token for c in self.found_waiting if which(c)]))
        return self.pool.has_recalled

    def acknowledged(self) -> list[str]:
        return [version for verb, version in self.store.calls if verb == "acknowledge_pauses"]


@pytest.fixture
async def bench() -> Paused:
    return Paused()


async def test_nothing_is_claimed_before_it_is_known_what_is_paused(bench: Paused) -> None:
    await bench.exchange.run_once()
    assert bench.requests() == []
    await bench.keeper.run_once()
    await bench.exchange.run_once()
    assert bench.requests() == [[ClaimRequest(["t"], FREE)]]


@pytest.mark.parametrize("row", [WorkerRef(2, 1), WorkerRef(1, 2)])
async def test_a_new_row_or_epoch_reads_again_before_it_claims(
    bench: Paused, row: WorkerRef
) -> None:
    """The store may have been set back to a moment at which more was paused."""
    assert bench.holder.me == WorkerRef(1, 1)
    await bench.keeper.run_once()
    bench.holder.me = row
    assert not bench.keeper.are_known()
    await bench.exchange.run_once()
    assert bench.requests() == []
    await bench.keeper.run_once()
    assert bench.keeper.are_known()
    assert bench.acknowledged() == ["", ""]


async def test_what_was_read_for_an_older_registration_does_not_count(bench: Paused) -> None:
    def registers_again() -> None:
        bench.holder.me = WorkerRef(2, 1)
        bench.on_read = lambda: None

    bench.on_read = registers_again
    await bench.keeper.run_once()
    assert not bench.keeper.are_known()
    assert bench.acknowledged() == []
    await bench.keeper.run_once()
    assert bench.keeper.are_known()


async def test_what_is_paused_is_left_out_of_claims(bench: Paused) -> None:
    bench.listed = [paused(1, "queue", "q"), paused(2, "tenant", "acme"), paused(3, "task", "u")]
    await bench.keeper.run_once()
    await bench.exchange.run_once()
    passed: Any = {"not_queues": ("q",), "not_tenants": ("acme",)}
    assert bench.requests() == [[ClaimRequest(["t"], FREE, **passed)]]


@pytest.mark.parametrize("pause", [paused(1, "task", "t"), paused(1, "all")])
async def test_nothing_is_asked_for_where_nothing_may_start(bench: Paused, pause: Pause) -> None:
    bench.listed = [pause]
    await bench.keeper.run_once()
    await bench.exchange.run_once()
    assert bench.requests() == []
    bench.ends(1)
    await bench.exchange.run_once()
    assert (bench.handed_in(), bench.requests()) == ([[1]], [[]])


@pytest.mark.parametrize(
    "pause",
    [paused(1, "queue", "q"), paused(1, "task", "u"), paused(1, "tenant", "acme"),
     paused(1, "all")],
)  # fmt: skip
async def test_a_claim_under_way_while_it_is_paused_starts_nothing_of_it(
    bench: Paused, pause: Pause
) -> None:
    """The reply that brings it is older than the acknowledgement, and is taken in later."""
    await bench.keeper.run_once()
    brought = [claimed(1, task="u", queue="q", tenant="acme"), claimed(2)]

    def replies() -> Exchanged:
        bench.listed = [pause]
        step = bench.keeper.run_once()
        with pytest.raises(StopIteration):
            step.send(None)  # the duty runs to its end, while the reply is under way
        return accepted(0, claimed=brought)

    bench.keeper.read_soon()
    bench.store.script = [replies]
    await bench.exchange.run_once()
    everything = pause.kind is PauseKind.ALL
    assert bench.acknowledged() == ["", "1"]
    assert bench.pool.placed == ([] if everything else [2])
    back = {each.token: each for each in bench.in_flight.ended}
    assert back.keys() == ({1, 2} if everything else {1})
    assert {(end.outcome, end.charge.value) for end in back.values()} == {("released", "none")}


async def test_what_has_not_begun_is_recalled_before_it_is_acknowledged(bench: Paused) -> None:
    await bench.keeper.run_once()
    bench.found_waiting = [claimed(1, queue="q"), claimed(2), claimed(3, queue="q")]
    bench.listed = [paused(5, "queue", "q")]
    bench.keeper.read_soon()
    bench.store.calls.clear()
    with heard() as names:
        await bench.keeper.run_once()
    said = [
        ("pauses", None),
        ("look for work", None),
        ("recall", [1, 3]),
        ("acknowledge_pauses", "5"),
    ]
    assert bench.store.calls == said
    assert names == ["pauses_changed"]


async def test_a_pause_is_acknowledged_once_the_runners_have_answered(bench: Paused) -> None:
    """What lies in a runner whose loop is blocked has been handed over, and has not begun."""
    await bench.keeper.run_once()
    bench.listed = [paused(5, "queue", "q")]
    bench.keeper.read_soon()
    bench.pool.has_recalled = False
    assert await bench.keeper.run_once() == RECALL_SECONDS
    assert bench.acknowledged() == [""]
    bench.pool.has_recalled = True
    await bench.keeper.run_once()
    assert bench.acknowledged() == ["", "5"]


async def test_a_stop_is_heard_through_an_older_pause_of_the_same_jobs(bench: Paused) -> None:
    bench.in_flight.claim([claimed(1, queue="q")])
    bench.listed = [paused(1, "queue", "q")]
    await bench.keeper.run_once()
    assert bench.pool.stopped == []
    bench.listed.append(paused(2, "all", stop=True))
    bench.keeper.take_look("1,2")
    await bench.keeper.run_once()
    assert bench.pool.stopped == [(1, "pause")]


async def test_running_attempts_are_asked_to_stop_once_where_that_is_wanted(bench: Paused) -> None:
    jobs = [claimed(1, queue="q"), claimed(2), claimed(3, tenant="acme"), claimed(4, queue="r")]
    bench.in_flight.claim(jobs)
    bench.listed = [
        paused(1, "queue", "q", stop=True),
        paused(2, "tenant", "acme"),
        paused(3, "queue", "r", stop=True),
    ]
    await bench.keeper.run_once()
    assert bench.pool.stopped == [(1, "pause"), (4, "pause")]
    bench.in_flight.claim([claimed(5, queue="q")])  # as where a look shows it late
    bench.listed.append(paused(4, "task", "other"))
    bench.keeper.read_soon()
    await bench.keeper.run_once()
    assert bench.pool.stopped == [(1, "pause"), (4, "pause")]


async def test_looks_that_show_nothing_new_spare_a_statement(bench: Paused) -> None:
    await bench.keeper.run_once()
    for _ in range(3):
        bench.clock.advance(1.0)
        bench.keeper.take_look("")
        assert 0 < await bench.keeper.run_once() <= READ_SECONDS
    assert bench.store.verbs().count("pauses") == 1
    bench.clock.advance(READ_SECONDS)  # no look any more
    await bench.keeper.run_once()
    assert bench.store.verbs().count("pauses") == 2


async def test_a_look_that_shows_another_version_has_it_read(bench: Paused) -> None:
    await bench.keeper.run_once()
    bench.nudged.take()
    bench.listed = [paused(7, "queue", "q")]
    bench.keeper.take_look("7")
    assert bench.nudged.is_given
    await bench.keeper.run_once()
    assert bench.acknowledged() == ["", "7"]
    bench.listed = []
    bench.keeper.take_look("")
    await bench.keeper.run_once()
    assert bench.acknowledged() == ["", "7", ""]


async def test_a_look_that_comes_during_a_read_is_not_forgotten(bench: Paused) -> None:
    """What was read may be older than it."""
    await bench.keeper.run_once()

    def look() -> None:
        bench.on_read = lambda: None
        bench.clock.advance(0.01)
        bench.listed = [paused(7, "queue", "q")]
        bench.keeper.take_look("7")

    bench.on_read = look
    bench.keeper.read_soon()
    assert await bench.keeper.run_once() < 0.1
    assert bench.acknowledged() == [""]
    await bench.keeper.run_once()
    assert bench.acknowledged() == ["", "7"]


async def test_a_look_from_before_a_read_is_followed_by_one_more_at_most(bench: Paused) -> None:
    bench.listed = [paused(7, "queue", "q")]

    def look() -> None:
        bench.on_read = lambda: None
        bench.clock.advance(0.01)
        bench.keeper.take_look("")  # asked for before the pause was there, answered late

    bench.on_read = look
    while await bench.keeper.run_once() < 0.1:
        bench.clock.advance(0.001)
    assert bench.store.verbs().count("pauses") == 2
    assert bench.acknowledged() == ["7"]


async def test_an_acknowledgement_that_fails_is_made_again(bench: Paused) -> None:
    await bench.keeper.run_once()
    real, bench.listed = bench.acknowledge_pauses, [paused(7, "queue", "q")]

    async def fails(me: WorkerRef, version: str) -> None:
        raise OSError("no")

    bench.store.acknowledge_pauses = fails  # type: ignore[attr-defined]
    bench.keeper.read_soon()
    with pytest.raises(OSError, match="no"):
        await bench.keeper.run_once()
    bench.store.acknowledge_pauses = real  # type: ignore[attr-defined]
    await bench.keeper.run_once()
    assert bench.acknowledged() == ["", "7"]
