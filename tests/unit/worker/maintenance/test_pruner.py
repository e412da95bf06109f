"""The pruner: its batches adapt to the store, so that other calls on its connection wait little."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import events
from outlast.errors import StoreUnavailable
from outlast.store.limits import LockHolder, Miscounted
from outlast.store.protocol import PRUNE_MAX
from outlast.worker.maintenance.pruner import (
    BATCH_SECONDS,
    FULL_LOOK_SECONDS,
    PRUNE_FIRST,
    PRUNE_SECONDS,
    Pruner,
)
from tests.manual_clock import ManualClock


class Rows:
    """A store of old rows, each of which takes some seconds to delete, as does each commit."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.left = 0
        self.wrong: list[Miscounted] = []
        self.inspector = self
        self.seconds = 0.0
        self.commit = 0.0
        self.looks: list[bool] = []  # of each batch: whether it went on where the last one stopped
        self.batches: list[int] = []
        self.space = PRUNE_MAX  # rows of a batch that a full disk has space for

    async def prune(self, *, limit: int, onward: bool, **_: Any) -> int:
        if limit > self.space:
            raise StoreUnavailable("the disk is full")
        gone = min(limit, self.left)
        self.left -= gone
        self.clock.advance(gone * self.seconds + self.commit)
        self.looks.append(onward)
        self.batches.append(limit)
        return gone

    async def lock_holders(self) -> list[LockHolder]:
        return []

    async def merge_minutes(self, limit: int) -> int:
        return 0

    async def recount_limits(self) -> list[Miscounted]:
        return self.wrong


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.rows = Rows(self.clock)
        self.peers = 1
        self.pruner = Pruner(
            self.rows,  # type: ignore[arg-type]
            keep_jobs=1.0,
            keep_workers=1.0,
            clock=self.clock,
            kind=self,  # type: ignore[arg-type]
        )

    async def prune_all(self, rows: int, seconds: float) -> None:
        """Prune until nothing is left: a number of rows that take some time each."""
        self.rows.left, self.rows.seconds = rows, seconds
        while await self.pruner.run_once() < PRUNE_SECONDS:
            pass
        assert self.rows.left == 0


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_batches_grow_while_the_store_is_quick(scene: Scene) -> None:
    await scene.prune_all(20_000, seconds=0.0)
    assert scene.rows.batches[0] == PRUNE_FIRST
    assert scene.rows.batches[-1] == PRUNE_MAX


async def test_batches_of_large_rows_shrink_until_they_are_quick(scene: Scene) -> None:
    await scene.prune_all(20_000, seconds=0.0)
    await scene.prune_all(2_000, seconds=0.05)
    assert scene.rows.batches[-1] * 0.05 <= 2 * BATCH_SECONDS
    await scene.prune_all(20_000, seconds=0.0)
    assert scene.rows.batches[-1] == PRUNE_MAX


async def test_a_single_very_slow_row_is_still_pruned(scene: Scene) -> None:
    await scene.prune_all(250, seconds=10.0)
    assert scene.rows.batches[-1] == 1


async def test_batches_grow_where_each_commit_is_slow_however_few_the_rows(scene: Scene) -> None:
    scene.rows.commit = 1.1 * BATCH_SECONDS
    await scene.prune_all(100_000, seconds=0.0)
    last = scene.rows.batches[-20:]
    assert sum(last) / len(last) >= PRUNE_MAX / 2
    assert max(scene.rows.batches) == PRUNE_MAX


async def test_batches_go_on_where_the_last_one_stopped_and_seldom_begin_again(
    scene: Scene,
) -> None:
    await scene.prune_all(20_000, seconds=0.0)
    assert scene.rows.looks == [False] + [True] * (len(scene.rows.looks) - 1)
    scene.clock.advance(FULL_LOOK_SECONDS)
    scene.rows.looks.clear()
    await scene.prune_all(3 * PRUNE_MAX, seconds=0.0)
    assert scene.rows.looks == [False, True, True, True]


async def test_a_look_from_the_oldest_that_fails_is_made_again(scene: Scene) -> None:
    scene.rows.left, scene.rows.space = 10, 0
    with pytest.raises(StoreUnavailable):
        await scene.pruner.run_once()
    scene.rows.space = PRUNE_MAX
    await scene.pruner.run_once()
    assert scene.rows.looks == [False]


async def test_a_batch_that_fails_is_tried_smaller_until_it_fits(scene: Scene) -> None:
    scene.rows.left, scene.rows.space = 100, 5
    for _ in range(5):  # 100, 50, 25, 12, 6
        with pytest.raises(StoreUnavailable):
            await scene.pruner.run_once()
    await scene.pruner.run_once()
    assert scene.rows.left == 97


@pytest.mark.parametrize("peers", [1, 3, 100])
async def test_many_workers_together_prune_as_often_as_three(scene: Scene, peers: int) -> None:
    scene.peers = peers
    pauses = [await scene.pruner.run_once() for _ in range(3_000)]
    each = sum(pauses) / len(scene.rows.batches)
    assert each == pytest.approx(PRUNE_SECONDS * max(1.0, peers / 3), rel=0.25)
    assert (len({*pauses}) > 1) is (peers > 3), "not all at once, if they started so"
    assert max(pauses) <= 1.5 * PRUNE_SECONDS, "the others may have left by then"


async def test_a_worker_that_has_drawn_the_lot_tries_until_it_has_pruned(scene: Scene) -> None:
    scene.peers, scene.rows.space = 100, 0
    with pytest.raises(StoreUnavailable):
        while True:
            await scene.pruner.run_once()
    for _ in range(20):
        with pytest.raises(StoreUnavailable):
            await scene.pruner.run_once()


async def test_a_permit_that_was_miscounted_is_reported() -> None:
    scene = Scene()
    scene.rows.wrong = [Miscounted(name="api", key="", counted=2, holders=1)]
    told: list[tuple[str, dict[str, Any]]] = []
    end = events.subscribe(lambda name, fields: told.append((name, dict(fields))))
    await scene.pruner.run_once()
    end()
    fields = {"limit": "api", "key": "", "counted": 2, "running": 1}
    assert told == [("limit_recounted", fields)]
