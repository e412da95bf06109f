"""Acts on all jobs of a filter of /jobs: as they were shown, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.insight import bulk
from outlast.model.job import Policy, State
from outlast.store.listing import DEAD_APART
from outlast.store.rows import JobFilter
from outlast.web.access import EVERYTHING, Right
from tests.conformance.kit import Hands, crashed, enqueued, eventually, job
from tests.web.kit import hidden_fields, let_in, page_on
from tests.web.test_dead import is_over

if TYPE_CHECKING:
    import pytest

    from outlast.store.protocol import Store

FINAL = Policy(retries=0)


async def states(store: Store) -> dict[int, State]:
    return {row.id: row.state for row in await store.inspector.jobs(JobFilter())}


async def deaths(store: Store, *args: str, queue: str = "mail") -> list[int]:
    ids = await enqueued(store, *[job(args=each, policy=FINAL, queue=queue) for each in args])
    hands = await Hands.on(store)
    await hands.hand_in(*[crashed(one) for one in await hands.claim()])
    return ids


async def test_all_jobs_of_a_filter_are_requeued_and_those_that_come_later_are_not(
    store: Store,
) -> None:
    ada, bob, later = await deaths(store, '["ada 1"]', '["ada 2"]', '["bob"]')
    query = {"state": "dead", "queue": "mail", "args": "ada", "error": "broke", "since": "2h"}
    async with page_on(store.url) as page:
        text = await page.see("/jobs", **query)
        assert "Requeue all that match…" in text
        assert "Cancel all that match…" not in text
        text = await page.see("/jobs/requeue", **query)
        assert "Requeue 2 jobs?" in text
        (newer,) = await deaths(store, '["ada 3"]')
        fields = hidden_fields(text)
        assert fields["expected"] == "2"
        started = await page.submit("/jobs/requeue", **fields, reason="mended")
        (row,) = await store.inspector.actions(1)
        assert started.headers["location"] == f"../actions/{row.id}"
        await eventually(lambda: is_over(store, row.id))
        assert (row.reason, row.expected) == ("mended", 2)
    assert await states(store) == {
        ada: State.QUEUED,
        bob: State.QUEUED,
        later: State.DEAD,
        newer: State.DEAD,
    }


async def test_a_preview_that_has_not_looked_at_all_jobs_sets_no_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at two jobs here, of which one matches; the beginning counts two that match."""
    monkeypatch.setattr(bulk, "PREVIEW_ROWS", 2 * DEAD_APART)

    async def die() -> list[int]:
        ids = await deaths(store, "[]", "[]", "[]")
        await deaths(store, "[]", queue="other")
        return ids

    async def all_requeued() -> bool:
        return all(
            state is State.QUEUED for one, state in (await states(store)).items() if one in ids
        )

    async with page_on(store.url) as page:
        ids = await die()
        asked: dict[str, Any] = {"verb": "requeue", "filter": {"queue": "mail"}}
        here = {"sec-fetch-site": "none"}
        seen = (await page.post("/api/v1/bulk", json=asked, headers=here)).json()
        shown = asked | {"expected": seen["count"], "up_to_id": ids[-1], "as_of": seen["as_of"]}
        bound = await page.post("/api/v1/bulk", json=shown, headers=here)
        assert (bound.status_code, await store.inspector.actions()) == (409, [])
        shown["at_least"] = seen["at_least"]
        begun = await page.post("/api/v1/bulk", json=shown, headers=here)
        assert begun.status_code == 202, begun.text
        await eventually(all_requeued)
        await store.cancel(ids)
        ids = await die()
        text = await page.see("/jobs/requeue", state="dead", queue="mail")
        assert "Requeue 1 job or more?" in text
        await page.submit("/jobs/requeue", **hidden_fields(text))
        await eventually(all_requeued)


async def test_what_is_not_meant_is_refused(store: Store) -> None:
    await deaths(store, "[]")
    before = await states(store)
    async with page_on(store.url) as page:
        shown = hidden_fields(await page.see("/jobs/discard", state="dead"))
        del shown["filter"]
        for form in (shown, shown | {"filter": "{"}, shown | {"filter": '{"odd": 1}'}):
            assert (await page.submit("/jobs/discard", **form)).status_code == 400, form
        for verb, phase in (
            ("discard", "queued"),
            ("discard", "odd"),
            ("cancel", "scheduled"),
            ("cancel", "silent"),
        ):
            answer = await page.get(f"/jobs/{verb}", params={"state": phase})
            assert answer.status_code == 400, phase
        for other in (None, "scheduled", "completed"):
            assert "all that match" not in await page.see("/jobs", state=other)
    async with page_on(store.url, let_in(EVERYTHING - {Right.DISCARD})) as page:
        text = await page.see("/jobs", state="dead")
        assert "Requeue all" in text
        assert "Discard all" not in text
    assert await states(store) == before
    assert await store.inspector.actions() == []
