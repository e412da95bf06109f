"""Limits on the page and in the API: shown, set, held and reset, each act recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.kit import Hands, enqueued
from tests.conformance.limits_kit import declare, limited, need
from tests.web.kit import let_in, page_on
from tests.web.test_api import read, refused, send

if TYPE_CHECKING:
    from outlast.store.protocol import Store

HOSTILE = "<script>alert(1)</script>"


async def test_a_limit_is_shown_set_held_and_reset(store: Store) -> None:
    hands = await Hands.on(store)
    await declare(store, "account", running=1, per="tenant")
    await enqueued(store, *[limited(need("account", HOSTILE))] * 3)
    await hands.claim()
    await hands.claim()
    async with page_on(store.url) as page:
        text = await page.see("/limits")
        assert "account" in text
        assert "1 at once, for each tenant" in text
        text = await page.see("/limits/limit", name="account")
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text
        await page.submit("/limits/set", name="account", running="3", key=HOSTILE)
        assert len(await hands.claim()) == 2
        await page.submit("/limits/hold", name="account", seconds="60")
        assert "Nothing under it starts" in await page.see("/limits/limit", name="account")
        await page.submit("/limits/reset", name="account")
        wrong = await page.submit("/limits/set", name="account", running="many")
        assert wrong.status_code == 400
        assert "running cannot be" in wrong.text
        unknown = await page.submit("/limits/hold", name="acount", seconds="1")
        assert unknown.status_code == 404
    acts = [(row.verb, row.target) for row in reversed(await store.inspector.actions())]
    assert acts == [
        ("set limit", f"account of {HOSTILE}"),
        ("hold limit for 60 s", "account"),
        ("reset limit", "account"),
    ]


async def test_jobs_that_wait_for_a_limit_are_listed(store: Store) -> None:
    hands = await Hands.on(store)
    await declare(store, "api", running=1)
    _, waits = await enqueued(store, *[limited(need("api"))] * 2)
    while await hands.claim():
        pass
    async with page_on(store.url) as page:
        (row,) = (await read(page, "/jobs", state="limited"))["jobs"]
        assert (row["id"], row["state"], row["phase"]) == (waits, "queued", "limited")
        assert (await read(page, "/jobs", state="throttled"))["jobs"] == []
        assert f">{waits}<" in await page.see("/jobs", state="limited")
        assert f">{waits}<" not in await page.see("/jobs", state="throttled")


async def test_programs_read_and_change_limits(store: Store) -> None:
    await declare(store, "api", running=5)
    async with page_on(store.url) as page:
        (row,) = (await read(page, "/limits"))["limits"]
        assert (row["name"], row["running"], row["used"]) == ("api", 5, 0)
        made = (await send(page, "/limits/api/set", rate="600/min", running=7)).json()["limit"]
        assert (made["running"], made["spacing"], made["burst"]) == (7, 0.1, 10.0)
        assert (await send(page, "/limits/api/hold", seconds=9)).json()["seconds"] == 9
        assert (await read(page, "/limits/api"))["limit"]["held_until"] > 0
        assert (await send(page, "/limits/api/reset")).json()["limit"]["running"] == 5
        await refused(await send(page, "/limits/none/reset"), 404, "no limit 'none'")
        await refused(await send(page, "/limits/api/set", rate="soon"), 400, "600/min")
        await refused(await send(page, "/limits/api/set"), 400, "say what to set")


async def test_changing_a_limit_is_a_right_of_its_own(store: Store) -> None:
    await declare(store, "api", running=5)
    async with page_on(store.url, let_in(can=["view", "pause", "bulk"])) as page:
        assert "Reset to the code" not in await page.see("/limits/limit", name="api")
        refusal = await page.submit("/limits/set", name="api", running="3")
        assert refusal.status_code == 403
