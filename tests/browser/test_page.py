"""The page in a real browser: it complains of nothing, and everyone can use it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.by import By

from harness.browser import ELSEWHERE
from harness.page import serving
from outlast.store import open_store
from outlast.store.logs import JobLog, LogLine
from outlast.web.render import NAVIGATION
from tests.browser.kit import LOOKS, is_too_wide, serious, shows
from tests.cli.rows import populated
from tests.conformance.kit import Hands, enqueued, job

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from harness.browser import Browser
    from outlast.store.protocol import Store
    from outlast.store.values import Claimed


def on(url: str, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
    """Do something to a store, from plain code."""

    async def there() -> Any:
        store = open_store(url)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(there())


def empty(url: str) -> None:
    """Make a store without jobs."""
    on(url, lambda store: store.inspector.counts())


def test_no_page_makes_the_browser_complain_and_axe_finds_nothing_serious(
    browser: Browser, sqlite_url: str
) -> None:
    ids = populated(sqlite_url)
    paths = [entry.path.removeprefix("/") for entry in NAVIGATION]
    paths += ["jobs?state=dead", "none", f"jobs/{ids['dead']}/discard", "queues/queue?name=default"]
    paths += ["jobs/requeue?state=dead&error=a&since=2h", f"jobs/{ids['dead']}/logs"]
    paths += [f"jobs/{number}" for number in ids.values()]
    with serving(sqlite_url, name="production", colour="red") as address:
        for path in paths:
            browser.open(address + path)
            for look in LOOKS:
                browser.look_like(**look)
                assert serious(browser) == [], (path, look)
                assert not is_too_wide(browser), (path, look)
            missing = [one for one in browser.complaints() if "404" not in one or path != "none"]
            assert missing == [], path


def test_the_menu_is_one_row_on_a_phone_and_shows_the_page_that_is_open(
    browser: Browser, sqlite_url: str
) -> None:
    empty(sqlite_url)
    browser.look_like(width=390)
    with serving(sqlite_url) as address:
        browser.open(f"{address}system")
        tops = browser.run(
            "return [...document.querySelectorAll('.top nav a')]"
            ".map((one) => one.getBoundingClientRect().top)"
        )
        assert len(tops) > 1
        assert len(set(tops)) == 1
        seen = browser.run(
            "const box = document.querySelector('nav [aria-current]').getBoundingClientRect();"
            "return box.left >= 0 && box.right <= innerWidth"
        )
        assert seen
        assert not is_too_wide(browser)


def test_a_name_piled_high_with_accents_stays_in_its_row(browser: Browser, sqlite_url: str) -> None:
    on(sqlite_url, lambda store: enqueued(store, job(task="z" + "\u0300" * 40), job()))
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs")
        clipped = browser.run(
            "return [...document.querySelectorAll('tbody td')]"
            ".map((one) => getComputedStyle(one).overflowY)"
        )
        assert set(clipped) == {"clip"}


def test_an_empty_store_has_pages_too(browser: Browser, sqlite_url: str) -> None:
    empty(sqlite_url)
    with serving(sqlite_url) as address:
        for entry in NAVIGATION:
            browser.open(address + entry.path.removeprefix("/"))
            assert entry.title in browser.text("nav a[aria-current]")
            assert serious(browser) == [], entry
            assert not is_too_wide(browser), entry
        assert browser.complaints() == []


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no script"])
def test_a_job_is_cancelled_by_links_and_forms_alone_below_any_prefix(
    browser: Browser, sqlite_url: str, javascript: bool
) -> None:
    on(sqlite_url, lambda store: enqueued(store, job(queue="mail")))
    with serving(sqlite_url, prefix="/a/b") as address:
        browser.look_like(javascript=javascript)
        browser.open(address)
        click(browser, "tbody th a")
        assert browser.driver.current_url == f"{address}queues/queue?name=mail"
        click(browser, ".acts a")
        assert browser.driver.current_url == f"{address}jobs?queue=mail"
        click(browser, "tbody a.id")
        click(browser, ".acts a")
        assert browser.driver.current_url == f"{address}jobs/1/cancel"
        click(browser, ".acts button")
        assert browser.driver.current_url == f"{address}jobs/1?done=cancelled"
        assert "It is cancelled." in browser.driver.page_source
        click(browser, ".acts button")
        assert browser.driver.current_url == f"{address}jobs/1?done=requeued"
        assert browser.complaints() == []


def test_a_button_works_over_plain_http_under_any_name(browser: Browser, sqlite_url: str) -> None:
    """There a browser sends no Sec-Fetch-Site, but an Origin alone."""
    empty(sqlite_url)
    with serving(sqlite_url, hosts=[ELSEWHERE]) as address:
        browser.open(f"{address}queues".replace("127.0.0.1", ELSEWHERE))
        browser.driver.find_element(By.CSS_SELECTOR, "details:has(form) summary").click()
        browser.driver.find_element(By.CSS_SELECTOR, "form[action$='/pause'] button").click()
        browser.wait(lambda each: not shows("Pause all queues")(each), "the answer")
        assert "From another site" not in browser.text()
    assert on(sqlite_url, lambda store: store.inspector.pauses())


def click(browser: Browser, selector: str) -> None:
    """Click on the first element of a selector, and wait for the page that it leads to."""
    before = browser.driver.current_url
    browser.driver.find_element(By.CSS_SELECTOR, selector).click()
    browser.wait(lambda each: each.driver.current_url != before, selector)


def test_times_are_the_reader_s_and_utc_on_hover(browser: Browser, sqlite_url: str) -> None:
    on(sqlite_url, enqueued)
    with serving(sqlite_url) as address:
        shown = {}
        for zone in ("Asia/Tokyo", "America/New_York"):
            browser.look_like(zone=zone)
            browser.open(f"{address}jobs")
            assert browser.text("#zone") == zone
            shown[zone] = browser.text("tbody time")
            hover = browser.driver.find_element(By.CSS_SELECTOR, "tbody time").get_attribute(
                "title"
            )
            assert "UTC" in str(hover)
        assert len(set(shown.values())) == 2


# -- live


COUNT_LOOKS = """
const select = getSelection.bind(window);
window.looks = 0;
window.getSelection = () => { window.looks += 1; return select(); };
"""


def test_an_open_page_follows_the_store_and_keeps_what_the_reader_does(
    browser: Browser, sqlite_url: str
) -> None:
    """A selection holds the page as it is, also while the script looks again."""
    number = populated(sqlite_url)["dead"]
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs/{number}")
        browser.run("window.same = true; document.querySelector('details').open = false")
        selected = browser.run(
            "getSelection().selectAllChildren(document.querySelector('.lead'));"
            "return getSelection().toString()"
        )
        on(sqlite_url, lambda store: store.requeue([number]))
        browser.run(COUNT_LOOKS)
        browser.wait(lambda each: each.run("return window.looks"), "a look of the script")
        assert browser.run("return getSelection().toString()") == selected
        assert "dead" in browser.text("h1")
        browser.run("getSelection().removeAllRanges()")
        browser.wait(lambda each: "dead" not in each.text("h1"), "the requeued job")
        assert browser.run("return window.same"), "no reload"
        assert browser.run("return document.querySelector('details').open") is False
        assert browser.complaints() == []


def test_a_list_gets_new_jobs_without_a_reload(browser: Browser, sqlite_url: str) -> None:
    empty(sqlite_url)
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs")
        browser.run("window.same = true")
        on(sqlite_url, lambda store: enqueued(store, job(task="brand.new")))
        browser.wait(shows("brand.new"), "the new job")
        assert browser.run("return window.same")


def test_what_a_running_job_prints_appears_without_a_reload_its_end_in_view(
    browser: Browser, sqlite_url: str
) -> None:
    async def start(store: Store) -> Claimed:
        await enqueued(store)
        return await (await Hands.on(store)).claim_one()

    claimed = on(sqlite_url, start)
    lines = [LogLine(1e9 + n, f"line {n}.") for n in range(200)]
    log = JobLog(claimed.job_id, claimed.token, claimed.number, lines)
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs/{claimed.job_id}")
        browser.run("window.same = true")
        on(sqlite_url, lambda store: store.keep_logs([log]))
        browser.wait(shows("line 199."), "the lines")
        assert browser.run("return window.same")
        text, box = browser.run(
            "return ['.log pre', '.log'].map(one => document.querySelector(one)"
            ".getBoundingClientRect().toJSON())"
        )
        assert text["height"] > box["height"], "not all of them fit"
        assert text["bottom"] <= box["bottom"] + 1
        assert browser.complaints() == []


def test_a_page_whose_store_is_away_stays_as_it_was_and_goes_on_with_it(
    browser: Browser, sqlite_url: str, tmp_path: Path
) -> None:
    number = populated(sqlite_url)["dead"]
    file, away = tmp_path / "outlast.db", tmp_path / "away.db"
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs/{number}")
        browser.run("window.same = true")
        file.rename(away)
        browser.wait(lambda each: "this is how it was" in each.text("#live"), "the trouble")
        assert "dead" in browser.text("h1")
        away.rename(file)
        on(sqlite_url, lambda store: store.requeue([number]))
        browser.wait(lambda each: "dead" not in each.text("h1"), "the requeued job")
        browser.wait(lambda each: each.text("#live") == "", "all is well")
        assert browser.run("return window.same")


def test_a_page_that_gets_another_page_instead_says_so_and_goes_on(
    browser: Browser, sqlite_url: str
) -> None:
    """As from a proxy, of a site that asks its users to sign in, or after too many passwords."""
    empty(sqlite_url)
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs")
        browser.run("window.ask = window.fetch")
        for status, kind in [(200, "text/html"), (429, "text/html"), (502, "text/plain")]:
            browser.run(
                "const [status, kind] = arguments; window.fetch = async () => new Response("
                "'<title>Log in</title><main>', {status, headers: {'content-type': kind}})",
                status,
                kind,
            )
            browser.wait(lambda each: "this is how it was" in each.text("#live"), "the trouble")
            assert "Jobs" in browser.text("h1")
            browser.run("window.fetch = window.ask")
            browser.wait(lambda each: each.text("#live") == "", "all is well")


def test_a_page_that_gets_no_answer_at_all_asks_again(browser: Browser, sqlite_url: str) -> None:
    """As through a proxy that has lost its server. The page gives up after a moment here."""
    empty(sqlite_url)
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs")
        browser.run(
            "const [ask, after] = [window.fetch, AbortSignal.timeout];"
            "AbortSignal.timeout = () => after.call(AbortSignal, 1);"
            "window.fetch = (_, {signal}) => new Promise((_, fail) => {"
            "  window.fetch = ask; AbortSignal.timeout = after;"
            "  signal?.addEventListener('abort', () => fail(signal.reason)); })"
        )
        browser.wait(lambda each: "No answer" in each.text("#live"), "the trouble")
        browser.wait(lambda each: each.text("#live") == "", "all is well")


def test_a_page_that_was_opened_while_the_store_was_away_comes_by_itself(
    browser: Browser, sqlite_url: str
) -> None:
    with serving(sqlite_url) as address:
        browser.open(f"{address}jobs")
        assert "The store does not answer" in browser.text("h1")
        assert serious(browser) == []
        empty(sqlite_url)
        browser.wait(shows("No job is stored"), "the store")
