"""What pages show first, and in which words: what is wrong is seen, and nothing else shouts."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from harness.stores import opened
from outlast.errors import NotPermitted, SchemaMismatch, StoreCorrupt, StoreUnavailable
from outlast.model.job import Policy
from outlast.web.problem import problem_of
from outlast.web.render import quiet_zero, sentence
from outlast.web.site import COLOURS
from tests.conformance.kit import TASK, Hands, enqueued, job
from tests.web.kit import let_in, page_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from outlast.store.protocol import Store


@pytest.fixture
async def sqlite_store(sqlite_url: str) -> AsyncIterator[Store]:
    """An empty store."""
    async with opened(sqlite_url) as store:
        yield store


async def test_many_findings_of_one_kind_are_one_card_with_a_link(sqlite_store: Store) -> None:
    hands = await Hands.on(sqlite_store)
    await sqlite_store.announce(hands.me, [TASK], {})
    await enqueued(sqlite_store, *[job(task=f"unknown.{number}") for number in range(7)])
    async with page_on(sqlite_store.url) as page:
        for path in ("/", "/system"):
            text = await page.see(path)
            (card,) = re.findall(r'id="finding-unservable-\d+">(.*?)</li>', text, re.DOTALL)
            assert card.count('class="said"') == 3
            assert "4 more like these" in card
            assert all(f"unknown.{number}" in card for number in range(7))
            assert 'href="./queues">Queues</a>' in card


async def test_a_job_that_runs_past_its_timeout_does_not_look_well(sqlite_store: Store) -> None:
    (number,) = await enqueued(sqlite_store, job(policy=Policy(timeout=1e-6)))
    hands = await Hands.on(sqlite_store)
    await hands.claim_one()
    async with page_on(sqlite_store.url) as page:
        text = await page.see(f"/jobs/{number}")
    assert 'class="why care"' in text
    assert '<span class="chip care">overdue</span></h1>' in text


async def test_a_tenant_without_dead_jobs_is_not_told_of_a_filter(sqlite_store: Store) -> None:
    async with page_on(sqlite_store.url, let_in(tenant="acme")) as page:
        assert "No job is dead." in await page.see("/dead")


async def test_an_empty_list_says_what_would_fill_it(sqlite_store: Store) -> None:
    async with page_on(sqlite_store.url) as page:
        for path in ("/", "/jobs", "/queues"):
            assert "<code>outlast enqueue MODULE:APP TASK" in await page.see(path), path
        for path in ("/tasks", "/workers"):
            assert "<code>outlast worker MODULE:APP</code>" in await page.see(path), path


def test_times_and_commands_in_a_sentence_are_as_all_others_of_the_page() -> None:
    text = "paused (since 2026-11-22 21:05:00 UTC) by <b>: `outlast resume x`, "
    text += "2026-99-01 00:00:00 UTC"
    assert sentence(text, 1_795_392_000.0) == (
        'paused (since <time datetime="2026-11-22T21:05:00Z" title="2026-11-22 21:05:00 UTC">'
        "22 Nov 21:05</time>) by &lt;b&gt;: <code>outlast resume x</code>, 2026-99-01 00:00:00 UTC"
    )
    assert sentence("it was cut….", 0.0) == "it was cut…"


def test_a_zero_is_quiet_and_a_bound_of_zero_is_not() -> None:
    assert quiet_zero(0, False) == '<span class="none">0</span>'
    assert (quiet_zero(0, True), quiet_zero(1234, False)) == ("0+", "1,234")


async def test_a_database_of_another_program_is_not_called_silent(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE notes (text)")
    async with page_on(f"sqlite:///{file}") as page:
        answer = await page.get("/")
    assert answer.status_code == 503
    assert "<h1>The schema of the store does not fit</h1>" in answer.text
    assert "<code>outlast migrate</code>" in answer.text


def test_each_trouble_with_a_store_has_its_own_title() -> None:
    kinds = (StoreUnavailable, SchemaMismatch, NotPermitted, StoreCorrupt)
    problems = [problem_of(kind("x"), str) for kind in kinds]
    assert {one.status for one in problems} == {503}
    assert len({one.title for one in problems}) == len(kinds)


async def test_a_page_for_strangers_has_a_style_and_may_have_no_other(sqlite_url: str) -> None:
    async with page_on(sqlite_url, lambda _: None) as page:
        answer = await page.get("/")
    (style,) = re.findall("<style>(.*)</style>", answer.text)
    policy = answer.headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_the_name_of_a_place_can_be_read_on_each_of_its_colours() -> None:
    """White on it, at the least contrast that the rules for all readers (WCAG AA) ask for."""
    style = files("outlast.web").joinpath("static", "outlast.css").read_text()
    places = dict(re.findall(r"\.place-(\w+) { --place: (#\w{6}); }", style))
    assert sorted(places) == sorted(COLOURS)
    too_pale = {name for name, colour in places.items() if 1.05 / (luminance(colour) + 0.05) < 4.5}
    assert too_pale == set()


def luminance(colour: str) -> float:
    """Return how bright a colour ``#rrggbb`` is, as WCAG reckons it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
