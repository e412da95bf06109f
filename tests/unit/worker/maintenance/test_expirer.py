"""Who ends jobs that have expired: exchanges that claim, and else the expirer."""

from __future__ import annotations

from outlast.worker.maintenance.pruner import EXPIRE_SECONDS, Expirer
from tests.manual_clock import ManualClock


class Rows:
    """A store that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    claimed_at = float("-inf")
    peers = 1

    async def expire(self) -> int:
        self.asked += 1
        return 0


async def test_it_asks_only_where_no_claim_has_done_so_lately() -> None:
    clock, rows = ManualClock(boot=0.0), Rows()
    expirer = Expirer(rows, rows, clock, rows)  # type: ignore[arg-type]
    assert await expirer.run_once() == EXPIRE_SECONDS
    assert rows.asked == 1, "it has not claimed yet"
    for _ in range(5):
        clock.advance(EXPIRE_SECONDS)
        rows.claimed_at = clock.boot() - 4.0
        assert await expirer.run_once() == EXPIRE_SECONDS - 4.0
    assert rows.asked == 1
    clock.advance(EXPIRE_SECONDS - 4.0)
    await expirer.run_once()
    assert rows.asked == 2


async def test_workers_of_a_kind_together_ask_as_often_as_few_do() -> None:
    clock, rows = ManualClock(boot=0.0), Rows()
    rows.peers = 100
    expirer = Expirer(rows, rows, clock, rows)  # type: ignore[arg-type]
    for _ in range(1_000):
        assert await expirer.run_once() == EXPIRE_SECONDS
        clock.advance(EXPIRE_SECONDS)
    assert 60 <= rows.asked <= 140, "each asks every tenth time"
