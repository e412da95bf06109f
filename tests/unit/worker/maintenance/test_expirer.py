"""Who ends jobs that have expired: exchanges that claim, and else the expirer."""

from __future__ import annotations

from outlast.worker.maintenance.expirer import EXPIRE_SECONDS, Expirer
from tests.manual_clock import ManualClock


class Rows:
    """A store that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def expire(self) -> int:
        self.asked += 1
        return 0


async def test_it_asks_only_where_no_claim_has_done_so_lately() -> None:
    clock, rows, claimed_at = ManualClock(boot=0.0), Rows(), [float("-inf")]
    expirer = Expirer(rows, lambda: claimed_at[0], clock)  # type: ignore[arg-type]
    assert await expirer.run_once() == EXPIRE_SECONDS
    assert rows.asked == 1, "it has not claimed yet"
    for _ in range(5):
        clock.advance(EXPIRE_SECONDS)
        claimed_at[0] = clock.boot() - 4.0
        assert await expirer.run_once() == EXPIRE_SECONDS - 4.0
    assert rows.asked == 1
    clock.advance(EXPIRE_SECONDS - 4.0)
    await expirer.run_once()
    assert rows.asked == 2
