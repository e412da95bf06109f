"""The page for Prometheus at ``outlast web``."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from outlast.store.protocol import Store
from outlast.web.access import Access
from tests.metrics.kit import value
from tests.web.kit import let_in, page_on


async def test_who_may_see_all_reads_the_metrics(store: Store, store_url: str) -> None:
    async with page_on(store_url) as page:
        answers = [await page.get("/metrics") for _ in range(3)]
        assert page.site.reader.looks == 1
    assert [answer.status_code for answer in answers] == [200] * 3
    assert answers[0].headers["content-type"].startswith("text/plain; version=")
    assert value(answers[0].text, "outlast_store_up") == 1


async def test_a_store_that_is_away_is_an_answer_too(store_url: str) -> None:
    async with page_on(f"{store_url}_is_not_there") as page:
        answer = await page.get("/metrics")
    assert answer.status_code == 200
    assert value(answer.text, "outlast_store_up") == 0


def refuse(request: Request) -> Access | None:
    return None


@pytest.mark.parametrize(("judge", "status"), [(let_in(tenant="acme"), 403), (refuse, 401)])
async def test_who_may_not_see_all_reads_none(store: Store, store_url: str, judge, status) -> None:
    async with page_on(store_url, judge) as page:
        answer = await page.get("/metrics")
    assert answer.status_code == status
    assert "outlast_jobs" not in answer.text
