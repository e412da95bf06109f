"""Who may come in by ``outlast web``."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import httpx
import pytest

from outlast.web.application import application_of, make_site
from outlast.web.session import LinkSessions, ProxyUsers, Users

if TYPE_CHECKING:
    from pathlib import Path


def client(users: Users, tmp_path: Path, peer: str = "127.0.0.1") -> httpx.AsyncClient:
    """Return a client of a page on no store: who comes in gets an error of the store."""
    site = make_site(f"sqlite:///{tmp_path}/none.db", users.judge, refuse=users.refuse)
    transport = httpx.ASGITransport(application_of(site), client=(peer, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8010")


IN, OUT = 404, 401  # of an address that does not exist


async def test_a_link_works_once_and_leaves_a_session_in_that_browser(tmp_path: Path) -> None:
    users, used = LinkSessions(), []
    users.on_used = lambda: used.append(users.token)
    first = users.token
    async with client(users, tmp_path) as one, client(users, tmp_path) as other:
        assert (await one.get("/none")).status_code == OUT
        assert (await one.get("/none", params={"token": "wrong"})).status_code == OUT
        assert (await one.post("/none", params={"token": first})).status_code in {OUT, 403}
        answer = await one.get("/", params={"token": first})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"]
        assert all(word in cookie for word in ("outlast-8010=", "HttpOnly", "SameSite=strict"))
        assert (await one.get("/none")).status_code == IN
        assert (await other.get("/", params={"token": first})).status_code == OUT
        assert used == [users.token] != [first]
        assert (await other.get("/", params={"token": users.token})).status_code == 303
        assert (await one.get("/none")).status_code == IN, "the first session goes on"


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("10.1.2.3", {"x-user": "ada"}, IN),
        ("10.1.2.3", {}, OUT),
        ("10.1.2.3", {"x-user": " "}, OUT),
        ("192.0.2.1", {"x-user": "ada"}, OUT),
        ("unix", {"x-user": "ada"}, OUT),
        ("10.1.2.3", [("x-user", "eve"), ("x-user", "ada")], OUT),
    ],
    ids=str,
)
async def test_the_header_of_a_proxy_counts_from_its_network_alone(
    peer: str, headers: dict[str, str] | list[tuple[str, str]], status: int, tmp_path: Path
) -> None:
    users = ProxyUsers("x-user", [ip_network("10.0.0.0/8")])
    async with client(users, tmp_path, peer) as browser:
        assert (await browser.get("/none", headers=headers)).status_code == status
