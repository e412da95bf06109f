"""The search of /jobs: as on the command line, and nothing for those who may not see the texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outlast.insight.queries import SearchBounds
from outlast.model.job import Policy
from outlast.web.access import EVERYTHING, Right
from outlast.web.problem import API
from tests.conformance.kit import Hands, crashed, enqueued, job
from tests.web.kit import FORM, let_in, page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store


async def test_jobs_are_found_by_arguments_errors_and_time(store: Store) -> None:
    ada, bob = await enqueued(
        store, *[job(args=f'["{name}"]', policy=Policy(retries=0)) for name in ("ada", "bob")]
    )
    await (hands := await Hands.on(store)).hand_in(crashed(await hands.claim_one()))
    async with page_on(store.url) as page:
        for query, found in (
            ({"args": "ADA"}, {ada}),
            ({"args": '["'}, {ada, bob}),
            ({"error": "It Broke"}, {ada}),
            ({"error": "broke", "args": "bob"}, set()),
            ({"since": "2h", "state": "queued"}, {bob}),
        ):
            text = await page.see("/jobs", **query)
            assert {one for one in (ada, bob) if f'id="job-{one}"' in text} == found, query
            assert "data-live" not in text, "a search is not made again whenever a job ends"
        for wrong in ({"since": "soon"}, {"args": "a\x00"}, {"error": "x" * 2_000}):
            assert (await page.get("/jobs", params=wrong)).status_code == 400, wrong


async def test_a_search_says_how_far_back_it_has_looked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.web.jobs.BOUNDS", SearchBounds(looks=1, rows=2))
    ids = await enqueued(store, job(args='["rare"]'), *[job()] * 3)
    async with page_on(store.url) as page:
        text = await page.see("/jobs", args="rare")
        assert "No job was found." in text
        assert 'Searched back to <time datetime="' in text
        assert f"before={ids[2]}&amp;args=rare" in text
        assert f'id="job-{ids[0]}"' in await page.see("/jobs", args="rare", before=ids[2])


@pytest.mark.on_both_stores
async def test_a_search_tells_nothing_of_what_is_hidden(store: Store) -> None:
    """Letter by letter it would: whether a job is found says what it holds."""
    await enqueued(store, job(args='{"card": "4111"}'))
    preview = {"verb": "discard", "filter": {"error": "4"}}
    async with page_on(store.url, hide=r"\d{4}") as page:
        assert 'name="args"' not in await page.see("/jobs")
        for query in ({"args": "4"}, {"error": "4"}):
            for path in ("/jobs", "/jobs/cancel"):
                answer = await page.get(path, params=query)
                assert (answer.status_code, "hides parts" in answer.text) == (403, True)
        assert (await page.post(f"{API}/bulk", json=preview, headers=FORM)).status_code == 403
        assert 'id="job-' in await page.see("/jobs", since="1h")
    async with page_on(store.url, let_in(EVERYTHING - {Right.PAYLOAD})) as page:
        assert 'name="args"' not in await page.see("/jobs")
        assert (await page.get("/jobs", params={"args": "4"})).status_code == 403
        preview["filter"] = {"args": "4"}
        assert (await page.post(f"{API}/bulk", json=preview, headers=FORM)).status_code == 403
        order = {"filter": '{"args":"4"}', "up_to_id": "9", "as_of": "1e12", "expected": "9"}
        assert (await page.submit("/jobs/cancel", **order)).status_code == 403
        assert await page.see("/jobs", error="4")
