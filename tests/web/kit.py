"""What the tests of the page share: a page on a store, and a client that asks it."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.requests import Request

from outlast.web.access import EVERYTHING, Access, Judge
from outlast.web.application import application_of
from outlast.web.session import Users
from outlast.web.site import Site

FORM = {"sec-fetch-site": "same-origin"}


def let_in(can: Iterable[str] = EVERYTHING, tenant: str | None = None) -> Judge:
    """Return a judge that lets everyone in as Ada."""

    def judge(request: Request) -> Access | None:
        return Access("ada", can=can, tenant=tenant)

    return judge


def hidden_fields(text: str) -> dict[str, str]:
    """Return what the form of a page sends besides what a person writes."""
    found = re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', text)
    return {name: html.unescape(value) for name, value in found}


class Page(httpx.AsyncClient):
    """A client of the page. ``site`` is the page itself."""

    def __init__(self, site: Site, prefix: str = "") -> None:
        super().__init__(
            transport=httpx.ASGITransport(application_of(site), root_path=prefix),
            base_url="http://localhost",
        )
        self.site = site

    async def see(self, path: str, **query: Any) -> str:
        """Return a page that has to be there, without the marks where names may break."""
        answer = await self.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text.replace("<wbr>", "")

    async def submit(self, path: str, **fields: str) -> httpx.Response:
        """Send a form as a page of ours does."""
        return await self.post(path, data=fields, headers=FORM)


def client_of(
    users: Users, peer: str = "127.0.0.1", port: int = 1, at: str = "localhost:8010"
) -> httpx.AsyncClient:
    """Return a client of a page on no store: who comes in gets an error of the store."""
    site = Site("sqlite:////none/none.db", users.judge, refuse=users.refuse)
    transport = httpx.ASGITransport(application_of(site), client=(peer, port))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{at}")


@asynccontextmanager
async def page_on(url: str, judge: Judge | None = None, **settings: Any) -> AsyncIterator[Page]:
    """Give a client of a page on this store; its connections are closed at the end."""
    site = Site(url, judge or let_in(), **settings)
    async with Page(site) as page:
        try:
            yield page
        finally:
            await site.close()
