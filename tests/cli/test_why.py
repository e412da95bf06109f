"""``outlast why``: a job's position in sentences, on both stores."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.conftest import Filled, Outlast
from tests.cli.rows import opened
from tests.conformance.kit import Hands, enqueued, job
from tests.unit.insight.rows_kit import names

NAMES = names("schema id task queue state position sentences moves schedule tick")


@pytest.mark.on_both_stores
def test_each_kind_of_job_is_explained(filled: Filled) -> None:
    positions = {
        name: filled("why", number, "--json").json() for name, number in filled.ids.items()
    }
    assert {name: one["position"] for name, one in positions.items()} == {
        "completed": "completed",
        "dead": "dead",
        "running": "running",
        "retrying": "retrying",
        "scheduled": "scheduled",
        "queued": "in_line",
        "unservable": "unservable",
        "cancelled": "cancelled",
        "suspect": "suspect",
    }
    for name, document in positions.items():
        assert set(document) == NAMES
        assert (document["schema"], document["id"]) == (1, filled.ids[name])
        assert document["sentences"]
        assert document["moves"]
    assert "mailbox unknown" in " ".join(positions["dead"]["sentences"])
    assert "commit 400 of 1000" in " ".join(positions["running"]["sentences"])


def test_people_read_sentences_and_what_would_move_it(rows: Filled) -> None:
    said = rows("why", rows.ids["unservable"])
    assert said.code == 0, said.err
    first, _, sentence, move = said.out.splitlines()
    assert first == f"job {rows.ids['unservable']}: unservable"
    assert sentence == "No live worker knows the task 'old.name'; alive: worker host-1."
    assert move.startswith("-> Start a worker whose application has the task 'old.name'")


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
