"""Where a running job is, on its page and over the API: asked for, and shown to those who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.insight.hiding import HIDDEN
from outlast.store.stacks import Stack
from outlast.web.access import EVERYTHING, Right
from tests.conformance.kit import Hands, enqueued
from tests.web.kit import FORM, hidden_fields, let_in, page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store

BUTTON = "Show where it is"
WITHOUT = EVERYTHING - {Right.PAYLOAD}


async def test_a_click_asks_the_worker_and_its_answer_is_on_the_page(store: Store) -> None:
    hands = await Hands.on(store)
    (number,) = await enqueued(store)
    claimed = await hands.claim_one()
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{number}")
        assert BUTTON in text
        answer = await page.submit(f"/jobs/{number}/stack", **hidden_fields(text))
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            f"../../jobs/{number}?done=asked",
        )
        text = await page.see(f"/jobs/{number}", done="asked")
        assert "Its worker was asked for its stacks." in text
        assert "answers with its next heartbeat, every 1" in text
        (ask,) = (await store.heartbeat(hands.me)).stacks
        shown = Stack(token=ask.token, asked=ask.number, text="<b>a stack</b>", line="File x")
        await store.keep_stack(number, shown)
        page.site.reader.forget_all()
        text = await page.see(f"/jobs/{number}")
        assert "Where it is" in text
        assert "&lt;b&gt;a stack&lt;/b&gt;" in text
        assert "was asked <time" not in text
        assert "stack" in await page.see("/actions")
    assert claimed.token == ask.token


async def test_it_is_shown_to_those_who_see_payloads_and_covered(store: Store) -> None:
    hands = await Hands.on(store)
    (number,) = await enqueued(store)
    claimed = await hands.claim_one()
    secret = Stack(token=claimed.token, asked=1, text="top secret stack", line="secret line")
    await store.keep_stack(number, secret)
    async with page_on(store.url, let_in(WITHOUT)) as page:
        text = await page.see(f"/jobs/{number}")
        assert "secret" not in text
        assert BUTTON not in text
        document = (await page.get(f"/api/v1/jobs/{number}")).json()
        assert document["stack"] is None
        assert "stack" in document["hidden"]
    async with page_on(store.url, hide="secret") as page:
        text = await page.see(f"/jobs/{number}")
        assert HIDDEN in text
        assert "secret" not in text
        stack = (await page.get(f"/api/v1/jobs/{number}")).json()["stack"]
        assert (stack["text"], stack["line"]) == (HIDDEN, HIDDEN)
    async with page_on(store.url, read_only=True) as page:
        assert BUTTON not in await page.see(f"/jobs/{number}")


async def test_the_api_asks_and_says_what_is_wrong(store: Store) -> None:
    hands = await Hands.on(store)
    queued, other = await enqueued(store), await enqueued(store)
    claimed = await hands.claim_one()
    async with page_on(store.url) as page:
        url = f"/api/v1/jobs/{queued[0]}/stack"
        asked = (await page.post(url, json={"token": claimed.token}, headers=FORM)).json()
        (ask,) = (await store.heartbeat(hands.me)).stacks
        assert (asked["asked"], asked["token"], asked["worker"]) == (*ask, "w1")
        again = (await page.post(url, json={}, headers=FORM)).json()
        assert again["asked"] == asked["asked"]
        for address, sent, said in (
            (url, {"token": 999}, "a newer attempt"),
            (f"/api/v1/jobs/{other[0]}/stack", {}, "is queued, not running"),
        ):
            answer = await page.post(address, json=sent, headers=FORM)
            assert answer.status_code == 409
            assert said in answer.json()["error"]["message"]
        assert (await page.post("/api/v1/jobs/999/stack", json={}, headers=FORM)).status_code == 404
        await store.keep_stack(queued[0], Stack(token=ask.token, asked=ask.number, text="a stack"))
        page.site.reader.forget_all()
        document = (await page.get(f"/api/v1/jobs/{queued[0]}")).json()
        assert (document["stack"]["asked"], document["stack"]["text"]) == (ask.number, "a stack")
