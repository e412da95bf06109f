"""The other pages in a real browser, full of hostile names, and without a script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from selenium.webdriver.common.by import By

from harness.page import serving
from outlast.web.render import NAVIGATION
from tests.browser.kit import LOOKS, broken_headers, hidden_columns, is_too_wide, serious
from tests.browser.test_page import click
from tests.web.filled_kit import NAMES, make_flow, make_store

if TYPE_CHECKING:
    from harness.browser import Browser

OTHERS = [entry.path.removeprefix("/") for entry in NAVIGATION[2:]]  # test_page.py has the first
LONG = "y" * 200  # without a place to break it
WAITING = len(NAMES) * 10 + 4  # a job of that name that waits: of each name there are ten jobs
DEEPER = [
    "dead/group",
    "queues/queue",
    "tasks/task",
    "workers/",
    "schedules/schedule",
    "limits/limit",
]


def test_no_page_makes_the_browser_complain_and_axe_finds_nothing_serious(
    browser: Browser, sqlite_url: str
) -> None:
    make_store(sqlite_url, [*NAMES, LONG])
    with serving(sqlite_url) as address:
        links: list[str] = []
        for path in OTHERS:
            check(browser, address + path)
            links += browser.run("return [...document.querySelectorAll('main a')].map(a => a.href)")
        for part in DEEPER:
            found = [link for link in links if re.match(re.escape(address + part), link)]
            for link in {found[0], next((link for link in found if LONG in link), found[0])}:
                check(browser, link)
        check(browser, f"{address}jobs/{WAITING}")
        check(browser, f"{address}flows/{make_flow(sqlite_url, [*NAMES, LONG])}")


def check(browser: Browser, address: str) -> None:
    """Open a page in two of the looks, and find nothing wrong with it."""
    browser.open(address)
    for look in (LOOKS[0], LOOKS[-1]):
        browser.look_like(**look)
        assert serious(browser) == [], (address, look)
        assert not is_too_wide(browser), (address, look)
        assert hidden_columns(browser) == [], (address, look)
        assert broken_headers(browser) == [], (address, look)
        assert browser.run("return document.querySelectorAll('h1').length") == 1, address
    browser.look_like(width=768)
    assert hidden_columns(browser) == [], address
    assert browser.complaints() == [], address
    assert "stolen" not in browser.driver.title


def test_a_queue_is_paused_and_resumed_without_a_script(browser: Browser, sqlite_url: str) -> None:
    make_store(sqlite_url)
    with serving(sqlite_url, prefix="/a/b") as address:
        browser.look_like(javascript=False)
        browser.open(f"{address}queues")
        click(browser, "tbody th a")
        paused = browser.driver.current_url
        browser.driver.find_element(By.CSS_SELECTOR, "summary").click()
        browser.driver.find_element(By.CSS_SELECTOR, "details input[name=reason]").send_keys("why")
        browser.driver.find_element(By.CSS_SELECTOR, "details button").click()
        browser.wait(lambda each: "has been paused" in each.driver.page_source, "the pause")
        assert browser.driver.current_url == paused
        assert browser.driver.page_source.count(": why.") == 1
        browser.driver.find_element(By.CSS_SELECTOR, ".banner button").click()
        browser.wait(lambda each: "has been paused" not in each.driver.page_source, "the end of it")
        browser.open(f"{address}actions")
        assert "why" in browser.driver.page_source
        assert browser.complaints() == []
