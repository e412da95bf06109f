"""Hosts, sites and headers: what no page of another origin can do."""

from __future__ import annotations

import asyncio
import html
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from outlast.errors import ConfigError
from outlast.model.job import State
from outlast.web import Access, dashboard
from outlast.web.application import application_of
from outlast.web.security import HEADERS
from outlast.web.site import Site
from tests.cases import each_case
from tests.conformance.kit import enqueued
from tests.web.kit import let_in, page_on

if TYPE_CHECKING:
    from starlette.requests import Request

    from outlast.store.protocol import Store

SAME = {"sec-fetch-site": "same-origin"}


async def test_each_answer_says_what_the_browser_may_do_with_it(store: Store) -> None:
    async with page_on(store.url) as page:
        for path in ("/", "/jobs", "/odd", "/jobs/17"):
            answer = await page.get(path)
            assert HEADERS.items() <= dict(answer.headers).items(), path
            assert "access-control-allow-origin" not in answer.headers
        style = await page.get(page_style(await page.see("/jobs")))
        assert "immutable" in style.headers["cache-control"]
        assert style.headers["content-security-policy"] == HEADERS["content-security-policy"]


def page_style(text: str) -> str:
    """Return the address of the stylesheet of a page of the first level."""
    return "/" + text.partition('rel="stylesheet" href="./')[2].partition('"')[0]


SENT: list[tuple[dict[str, str] | list[tuple[str, str]], int]] = [
    (SAME, 303),
    ({"sec-fetch-site": "none"}, 303),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, 403),
    ({"origin": "http://localhost"}, 303),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://[::1"}, 403),
    ({"origin": "http://[x]"}, 403),
    ([("origin", "http://localhost"), ("origin", "http://evil.example")], 403),
    ([("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], 403),
    ({}, 403),
]


async def test_what_changes_something_comes_from_this_page(store: Store) -> None:
    async with page_on(store.url) as page:
        for headers, status in SENT:
            (number,) = await enqueued(store)
            answer = await page.post(f"/jobs/{number}/cancel", headers=headers)
            assert answer.status_code == status, headers
            row = await store.inspector.job(number)
            assert row is not None
            assert (row.state is State.CANCELLED) is (status == 303), headers


READ: list[tuple[dict[str, str] | list[tuple[str, str]], int]] = [
    ({}, 200),
    (SAME, 200),
    ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
    (
        {
            "sec-fetch-site": "cross-site",
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
        },
        200,
    ),
    (
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        403,
    ),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, 403),
    (
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "document"},
        403,
    ),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, 403),
    ([("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], 403),
    ({"origin": "http://localhost"}, 200),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
]


async def test_another_site_can_open_a_page_and_ask_for_nothing_else(store: Store) -> None:
    """HTTP Basic goes along with an image: what is not read by that site costs memory and time."""
    (number,) = await enqueued(store)
    async with page_on(store.url) as page:
        style = page_style(await page.see("/jobs"))
        paths = [f"/jobs/{number}", f"/api/v1/jobs/{number}", style]
        for path in paths:
            for headers, status in READ:
                for method in ("GET", "HEAD", "OPTIONS"):
                    answer = await page.request(method, path, headers=headers)
                    assert (answer.status_code == 403) is (status == 403), (method, path, headers)


async def test_what_a_browser_may_say_of_its_page_is_enough_for_its_own_forms(store: Store) -> None:
    """With no-referrer it says null. tests/browser asks a real one."""
    async with page_on(store.url) as page:
        answer = await page.get("/queues")
    assert answer.headers["referrer-policy"] == "same-origin"


async def test_a_refused_form_is_told_what_was_compared(store: Store) -> None:
    """As behind a proxy that sends its own name for the page."""
    async with page_on(store.url) as page:
        headers = {"origin": "http://jobs.example:8410", "host": "127.0.0.1:8010"}
        answer = await page.post("/pause", headers=headers)
        for said in ("http://jobs.example:8410", "127.0.0.1:8010", "$http_host"):
            assert said in answer.text


async def test_a_page_that_has_not_changed_is_not_sent_again(store: Store) -> None:
    async with page_on(store.url) as page:
        tag = (await page.get("/jobs")).headers["etag"]
        sent = {tag: 304, f"W/{tag}": 304, f'"other", W/{tag}': 304, '"other"': 200, "": 200}
        for known, status in sent.items():
            answer = await page.get("/jobs", headers={"if-none-match": known})
            assert answer.status_code == status, known


HOSTS = {
    "localhost": 200,
    "localhost:8010": 200,
    "127.0.0.1:8010": 200,
    "[::1]:8010": 200,
    "jobs.example.org": 200,
    "JOBS.example.org.:443": 200,
    "evil.example": 421,
    "": 421,
    "localhost.evil.example": 421,
}


async def test_the_page_is_known_by_its_names_alone(store: Store) -> None:
    async with page_on(store.url, hosts=["jobs.example.org"]) as page:
        told = {
            host: (await page.get("/jobs", headers={"host": host})).status_code for host in HOSTS
        }
    assert told == HOSTS


async def test_a_host_that_is_there_twice_is_none_that_is_known(store: Store) -> None:
    async with page_on(store.url) as page:
        twice = [("host", "localhost"), ("host", "evil.example")]
        assert (await page.get("/jobs", headers=twice)).status_code == 421
    async with page_on(store.url, hosts=["*"]) as page:
        nameless = {"host": "", "origin": "null"}
        assert (await page.post("/pause", headers=nameless)).status_code == 403


async def test_a_number_of_any_length_is_refused_by_all_addresses(store: Store) -> None:
    """Python reads none of more than 4300 digits, and Starlette reads before anyone is asked."""
    long = ["1" + "0" * 5_000, "0" * 19 + "1" + "9" * 5_000]
    lists = [
        "/jobs?before=",
        "/jobs?rows=",
        "/deaths?worker=",
        "/actions?job=",
        "/api/v1/jobs?limit=",
    ]
    one = ["/jobs/", "/workers/", "/actions/", "/api/v1/jobs/", "/api/v1/actions/"]
    async with page_on(store.url) as page:
        for number in long:
            for path in (*lists, *one):
                answer = await page.get(path + number)
                assert answer.status_code == (400 if path in lists else 404), path
        assert (await page.get("/api/v1/jobs/9223372036854775808")).status_code in {400, 404}


async def test_any_host_will_do_where_that_is_asked_for(store: Store) -> None:
    async with page_on(store.url, hosts=["*"]) as page:
        assert (await page.get("/jobs", headers={"host": "any.example"})).status_code == 200


async def test_links_are_relative_so_any_prefix_will_do(store: Store) -> None:
    (number,) = await enqueued(store)
    async with page_on(store.url) as page:
        assert f'href="./jobs/{number}"' in await page.see("/jobs")
        assert 'href="../jobs"' in await page.see(f"/jobs/{number}")
        assert 'href="../../jobs"' in await page.see(f"/jobs/{number}/cancel")


@each_case("prefix", ["/shop/jobs", "shop/jobs/"])
async def test_a_proxy_that_cannot_strip_a_path_asks_below_a_prefix(
    store: Store, prefix: str
) -> None:
    (number,) = await enqueued(store)
    async with page_on(store.url, prefix=prefix) as page:
        assert f'href="./jobs/{number}"' in await page.see("/shop/jobs/jobs")
        cancelled = await page.submit(f"/shop/jobs/jobs/{number}/cancel")
        assert (cancelled.status_code, cancelled.headers["location"]) == (
            303,
            f"../../jobs/{number}?done=cancelled",
        )
        read = await page.get(f"/shop/jobs/api/v1/jobs/{number}")
        assert read.json()["state"] == "cancelled"
        first = await page.get("/shop/jobs")
        assert (first.status_code, first.headers["location"]) == (307, "jobs/")
        assert (await page.get("/jobs")).status_code == 404
        missing = await page.get("/shop/jobs/none")
        assert "There is nothing at /none." in html.unescape(missing.text)


async def test_a_form_has_a_bound(store: Store) -> None:
    (number,) = await enqueued(store)
    async with page_on(store.url) as page:
        large = await page.submit(f"/jobs/{number}/cancel", reason="x" * 70_000)
        many = await page.submit(f"/jobs/{number}/cancel", **{f"f{n}": "x" for n in range(200)})
    assert (large.status_code, many.status_code) == (413, 400)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="write a path, such as /jobs"):
        Site("sqlite:///x.db", let_in(), prefix="https://example.org/jobs")
    for settings in ({"colour": "pink"}, {"hide": "("}):
        with pytest.raises(ConfigError):
            dashboard("sqlite:///x.db", access=let_in(), **settings)  # type: ignore[arg-type]
    for odd in ({"user": ""}, {"user": None}, {"tenant": ""}, {"tenant": 7}):
        with pytest.raises(ConfigError, match="must be a name"):
            Access(**{"user": "ada", "can": ["view"], **odd})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rights are"):
        Access("ada", can=["veiw"])
    assert Access("ada", can="view").may("view")
    assert not Access("ada", can=["cancel"]).may("cancel"), "nothing without view"


async def test_where_access_fails_nothing_is_shown(store: Store) -> None:
    def fail(request: Request) -> Access:
        raise RuntimeError("4711")

    async def fail_late(request: Request) -> Access:
        await asyncio.sleep(0)
        raise RuntimeError("4711")

    judges: list[Any] = [fail, fail_late, lambda _: True, lambda _: {"user": "ada"}]
    for judge in judges:
        site = Site(store.url, judge)
        shown = httpx.ASGITransport(application_of(site), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=shown, base_url="http://localhost") as browser:
            for path in ("/jobs", "/api/v1/jobs", "/events?topics=stats"):
                answer = await browser.get(path)
                assert (answer.status_code, answer.text) == (500, "Internal Server Error")
                assert answer.headers["cache-control"] == "no-store"
        await site.close()
