"""Who may come in by ``outlast web``."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from outlast.web import session
from outlast.web.problem import API
from outlast.web.session import LinkSessions, ProxyUsers, uid_of
from tests.cases import each_case
from tests.web.kit import client_of

if TYPE_CHECKING:
    pass


IN, OUT = 404, 401  # of an address that does not exist
KEPT = 5  # sessions, instead of a hundred


async def test_a_link_works_once_and_leaves_a_session_in_that_browser() -> None:
    users, used = LinkSessions(), []
    users.on_used = lambda: used.append(users.token)
    first = users.token
    async with client_of(users) as one, client_of(users) as other:
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


async def test_a_program_that_has_no_session_is_told_how_to_sign_in() -> None:
    async with client_of(LinkSessions()) as program:
        answer = await program.get(f"{API}/jobs")
    assert answer.status_code == OUT
    assert "--password-file" in answer.json()["error"]["message"]


@each_case(
    ("peer", "headers", "status"),
    [
        ("10.1.2.3", {"x-user": "ada"}, IN),
        ("10.1.2.3", {}, OUT),
        ("10.1.2.3", {"x-user": " "}, OUT),
        ("192.0.2.1", {"x-user": "ada"}, OUT),
        ("unix", {"x-user": "ada"}, OUT),
        ("10.1.2.3", [("x-user", "eve"), ("x-user", "ada")], OUT),
    ],
)
async def test_the_header_of_a_proxy_counts_from_its_network_alone(
    peer: str, headers: dict[str, str] | list[tuple[str, str]], status: int
) -> None:
    users = ProxyUsers("x-user", [ip_network("10.0.0.0/8")])
    async with client_of(users, peer) as browser:
        assert (await browser.get("/none", headers=headers)).status_code == status


@each_case("shown", [[], ["wrong"], ["secret", "secret"], ["secret"]])
async def test_a_header_counts_with_the_secret_of_the_proxy_alone(shown: list[str]) -> None:
    users = ProxyUsers("x-user", [ip_network("127.0.0.0/8")], "secret")
    headers = [("x-user", "ada"), *(("x-outlast-proxy", each) for each in shown)]
    async with client_of(users) as browser:
        answer = await browser.get("/none", headers=headers)
    assert answer.status_code == (IN if shown == ["secret"] else OUT)


CONNECTS = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket() as connected:
    connected.connect(("127.0.0.1", int(sys.argv[1])))
    print(connected.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def connected_by(user: int, server: socket.socket) -> Iterator[int]:
    """Hold a connection of a user's process to a server; give its port."""
    words = [sys.executable, "-ISc", CONNECTS, str(server.getsockname()[1]), str(user)]
    with subprocess.Popen(
        words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


@each_case("peer", ["127.0.0.1", "::1"])
def test_the_kernel_names_the_user_of_a_local_connection(peer: str) -> None:
    """Also where a server of both families sees an address of IPv4."""
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection((peer, server.getsockname()[1])) as mine,
    ):
        seen = server.accept()[0]
        with seen:
            ends = seen.getpeername()[:2], seen.getsockname()[:2]
            assert uid_of(*ends) == os.getuid()
            assert uid_of(mine.getsockname()[:2], ends[1]) == os.getuid()
            assert uid_of(ends[0], (peer, 1)) is None, "another connection of that port"
    assert uid_of(("192.0.2.1", 1), ("::1", 1)) is uid_of(("unix", 1), None) is None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to play two users")
async def test_a_cookie_is_worth_nothing_to_another_user_of_this_machine() -> None:
    users, eve = LinkSessions(), 40_002
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        connected_by(os.getuid(), server) as ours,
        connected_by(eve, server) as hers,
    ):
        at = f"127.0.0.1:{server.getsockname()[1]}"
        async with client_of(users, port=ours, at=at) as browser:
            answer = await browser.get("/", params={"token": users.token})
            cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
            assert (await browser.get("/none")).status_code == IN
        for peer, port in (("127.0.0.1", hers), ("192.0.2.1", ours)):
            async with client_of(users, peer, port, at) as other:
                assert (await other.get("/none", headers=cookie)).status_code == OUT


async def test_a_long_quoted_cookie_is_read_at_once() -> None:
    """Python's own reader would take longer than the deadline of this test."""
    users = LinkSessions()
    async with client_of(users) as browser:
        long = {"cookie": 'outlast-8010="' + r"\a" * 400_000 + '"'}
        assert (await browser.get("/none", headers=long)).status_code == OUT
        await browser.get("/", params={"token": users.token})
        assert (await browser.get("/none")).status_code == IN


async def test_a_session_ends_with_the_process_or_after_as_many_newer_ones_as_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "SESSIONS_MAX", KEPT)
    users = LinkSessions()
    async with client_of(users) as browser, client_of(users) as others:
        await browser.get("/", params={"token": users.token})
        for count in range(KEPT):
            assert (await browser.get("/none")).status_code == IN, count
            others.cookies.clear()
            await others.get("/", params={"token": users.token})
        assert (await browser.get("/none")).status_code == OUT
        await browser.get("/", params={"token": users.token})
        cookies = browser.cookies
    async with client_of(LinkSessions()) as again:
        again.cookies = cookies
        assert (await again.get("/none")).status_code == OUT
