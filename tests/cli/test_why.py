"""``outlast why``: a job's position in sentences, on both stores."""

from __future__ import annotations

import asyncio

from tests.cli.conftest import Filled, Outlast
from tests.cli.rows import opened
from tests.conformance.kit import Hands, enqueued, job


def test_an_unknown_job_is_not_so(rows: Filled) -> None:
    rows("why", 999).refused(1, "there is no job 999")


async def abandoned(url: str) -> int:
    """Return a job whose worker was found gone, with two more that it ran, and one that waits."""
    async with opened(url) as store:
        hands = await Hands.on(store, "w-gone")
        mine, *_ = await enqueued(store, *[job() for _ in range(4)])
        await hands.claim(3)
        await hands.vanish()
        return mine


def test_why_says_that_no_worker_can_reclaim_an_orphan(outlast: Outlast, store_url: str) -> None:
    number = asyncio.run(abandoned(store_url))
    said = outlast("why", number, "--url", store_url)
    assert f"job {number}: orphaned" in said.out
    assert "on worker w-gone (h1), but that worker is lost" in said.out
    assert "there is none: start one" in said.out
    waiting = outlast("why", number + 3, "--url", store_url)
    assert f"job {number + 3}: no workers" in waiting.out
