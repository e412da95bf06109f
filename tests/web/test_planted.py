"""A secret is planted wherever a store has room for one, and looked for in all that the page gives.

The addresses come from the application itself and from the links of its pages, so that a new one is
asked, too.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest

from harness.stores import opened
from outlast.store.values import Purpose
from outlast.web.access import EVERYTHING, Right
from outlast.web.application import ENDPOINTS
from outlast.web.problem import API
from tests.conformance import planted_kit
from tests.conformance.planted_kit import FORMS, PATTERN, ROLE, World, planted
from tests.web.kit import FORM, Page, let_in, page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store

PAGES_MAX = 400
BODIES: list[dict[str, Any]] = [{}, {"verb": "cancel"}, {"kind": "all"}, {"name": "nightly"}]


def addresses(world: World, method: str) -> list[str]:
    """Return the addresses of all endpoints, with each name that may stand in them."""
    found: list[str] = []
    for each in ENDPOINTS:
        urls = [each.path] if each.method == method else []
        while any("{" in url for url in urls):
            urls = [
                url[: where.start()] + name + url[where.end() :]
                for url in urls
                if (where := re.search(r"\{(\w+)(:\w+)?\}", url)) is not None
                for name in world.names[where[1]]
            ]
        found += urls
    return found


async def read_everything(page: Page, world: World) -> dict[str, str]:
    """Return what each address answers: those of the application, and all that pages link to; then
    what is said to those who act, with what the page would send and with nothing."""
    told: dict[str, str] = {}
    asked = [*addresses(world, "GET"), "/api/v1/scale?queue=default"]
    asked = [url for url in asked if "{" not in url]
    while asked and len(told) < PAGES_MAX:
        url = asked.pop(0)
        if url in told:
            continue
        answer = await page.get(url)
        told[url] = answer.text.replace("<wbr>", "") + str(answer.headers)
        if "html" in answer.headers.get("content-type", ""):
            links = re.findall(r'href="([^"#]+)"', answer.text)
            here = [urljoin(f"http://localhost{url}", html.unescape(link)) for link in links]
            local = [link.removeprefix("http://localhost") for link in here]
            asked += [one for one in local if one.startswith("/") and "/static/" not in one]
    assert len(told) < PAGES_MAX, "a page links to pages without end"
    for url in addresses(world, "POST"):
        for body in BODIES:
            sent: dict[str, Any] = {"json": body} if url.startswith(API) else {"data": body}
            answer = await page.post(url, headers=FORM, **sent)
            assert not answer.is_server_error, (url, answer.text)
            told[f"POST {url} {body}"] = answer.text.replace("<wbr>", "") + str(answer.headers)
    return told


role = planted_kit.role
REFUSED = "this role lacks a privilege"


@pytest.mark.slow_but("view")
@pytest.mark.parametrize("purpose", [None, *Purpose])
async def test_an_address_answers_or_names_the_missing_privilege(
    pg_url: str, role: str, purpose: Purpose | None
) -> None:
    async with opened(pg_url) as store:
        world = await planted(store)
        if purpose is not None:
            await store.grant(ROLE, purpose)
    done, wrong = set(), []
    async with page_on(role) as page:
        asked: list[tuple[str, str, dict[str, Any]]] = [
            ("GET", url, {}) for url in addresses(world, "GET")
        ]
        asked += [("POST", url, body) for url in addresses(world, "POST") for body in BODIES]
        for method, url, body in asked:
            sent: dict[str, Any] = {"json" if url.startswith(API) else "data": body}
            answer = await page.request(method, url, headers=FORM, **sent)
            done |= {(method, answer.status_code)}
            is_clear = answer.status_code == 503 and REFUSED in answer.text
            wrong += [(url, answer.text)] if answer.is_server_error and not is_clear else []
    assert wrong == []
    reads = purpose in {Purpose.VIEW, Purpose.WORKER}
    assert (("GET", 503) in done, ("POST", 503) in done) == (not reads, purpose != Purpose.WORKER)


def leaks(told: dict[str, str], world: World) -> list[tuple[str, str]]:
    """Return which secrets stand where."""
    return [(place, url) for url, text in told.items() for place in world.secrets.found(text)]


async def test_the_page_shows_all_that_is_planted_where_nothing_is_hidden(store: Store) -> None:
    """So it would be found where it must not be."""
    world = await planted(store)
    async with page_on(store.url) as page:
        told = await read_everything(page, world)
    whole = "\n".join(told.values())
    shown = world.secrets.found(whole, whole=True)
    shown |= world.secrets.found(whole) & {"log in pieces"}
    assert set(world.secrets.by_place) - shown == set()


@pytest.mark.slow_on("postgres")  # what hides a text has rows, and knows no store
@pytest.mark.slow_but("JSON")
@pytest.mark.parametrize("form", FORMS)
async def test_no_byte_of_the_page_or_its_api_holds_what_is_hidden(store: Store, form: str) -> None:
    world = await planted(store, FORMS[form])
    async with page_on(store.url, hide=PATTERN) as page:
        assert leaks(await read_everything(page, world), world) == []


@pytest.mark.slow_on("postgres")
@pytest.mark.slow_but("JSON")
@pytest.mark.parametrize("form", ["JSON", "Python", "quoted"])
async def test_no_byte_of_the_page_or_its_api_holds_a_value_under_a_hidden_key(
    store: Store, form: str
) -> None:
    world = await planted(store, FORMS[form])
    async with page_on(store.url, hide_keys=["token"]) as page:
        assert leaks(await read_everything(page, world), world) == []


async def test_no_byte_of_the_page_or_its_api_holds_a_payload_without_its_right(
    store: Store,
) -> None:
    world = await planted(store)
    async with page_on(store.url, let_in(EVERYTHING - {Right.PAYLOAD})) as page:
        found = leaks(await read_everything(page, world), world)
    assert [one for one in found if one[0] in world.payloads] == []
