"""What jobs print, on their pages: bounded, attempt by attempt, behind its right, and live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.model.lifecycle import OutcomeKind
from outlast.store.logs import JobLog, LogLine
from outlast.web.job import LINES_SHOWN
from outlast.web.problem import API
from tests.conformance.kit import Hands, ended, enqueued
from tests.web.kit import page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store
    from outlast.store.values import Claimed


async def keep(store: Store, claimed: Claimed, *texts: str, dropped: int = 0) -> None:
    lines = [LogLine(1e9 + n, text) for n, text in enumerate(texts)]
    log = JobLog(claimed.job_id, claimed.token, claimed.number, lines, dropped)
    assert await store.keep_logs([log]) == {claimed.token}


async def test_the_last_lines_of_the_newest_attempt_are_shown_the_others_behind_a_link(
    store: Store,
) -> None:
    (number,) = await enqueued(store)
    hands = await Hands.on(store)
    first = await hands.claim_one()
    await keep(store, first, "of the first", "<b>\x1b[31m")
    await hands.hand_in(ended(first, OutcomeKind.RELEASED))
    second = await hands.claim_one()
    count = LINES_SHOWN + 3
    await keep(store, second, *(f"line {n}." for n in range(count)), dropped=7)
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{number}")
        assert f"line {count - 1}." in text
        assert "line 3." in text
        assert "line 2." not in text
        assert "10 lines were printed before these" in text
        assert "also of 1 earlier attempt" in text
        assert "of the first" not in text
        whole = await page.see(f"/jobs/{number}/logs")
        assert "line 0." in whole
        assert "7 lines were printed before these, and are not kept" in whole
        early = await page.see(f"/jobs/{number}/logs", attempt=first.token)
        assert "of the first" in early
        assert "&lt;b&gt;\\x1b[31m" in early
        gone = await page.see(f"/jobs/{number}/logs", attempt=99_999)
        assert "The output of that attempt has been deleted." in gone
        document = (await page.get(f"{API}/jobs/{number}/logs")).json()
        assert [one["dropped"] for one in document["attempts"]] == [0, 7]
        assert document["attempts"][0]["lines"][0] == {"at": 1e9, "text": "of the first"}


async def test_what_is_to_be_hidden_is_hidden_also_over_several_lines(store: Store) -> None:
    (number,) = await enqueued(store)
    await keep(store, await (await Hands.on(store)).claim_one(), "key BEGIN", "secret", "END ok")
    async with page_on(store.url, hide=r"(?s)BEGIN.*END") as page:
        for path in (f"/jobs/{number}", f"/jobs/{number}/logs", f"{API}/jobs/{number}/logs"):
            text = await page.see(path)
            assert "secret" not in text, path
            assert "▒▒▒" in text, path
