"""Who may come in by a password, and what guesses cost."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from outlast.base import passwords
from outlast.base.passwords import Cost, PasswordHash, hash_password
from outlast.web.sign_in import (
    ADDRESS_SECONDS,
    ADDRESS_TRIES,
    NAME_TRIES,
    WAITING_MAX,
    Guesses,
    PasswordUsers,
    origin_of,
)
from tests.manual_clock import ManualClock
from tests.web.kit import client_of

if TYPE_CHECKING:
    from pathlib import Path

CHEAP = Cost(4, 8, 1)
IN, OUT, EARLY = 404, 401, 429  # of an address that does not exist
ADA, WRONG = ("ada", "se:cret"), ("ada", "wrong")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "users"
    made.touch(0o600)
    lines = [f"{user}:{hash_password(it, CHEAP)}" for user, it in (ADA, ("bob", "other"))]
    made.write_text("\n".join(["# operators", *lines, ""]))
    return made


async def try_in(
    users: PasswordUsers, login: tuple[str, str], peer: str = "192.0.2.1", **headers: str
) -> int:
    async with client_of(users, peer) as browser:
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        return (await browser.get("/none", auth=login, headers=given)).status_code


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the passwords that were hashed."""
    seen: list[str] = []
    digest = passwords._digest

    def note(password: str, salt: bytes, cost: Cost) -> bytes:
        seen.append(password)
        return digest(password, salt, cost)

    monkeypatch.setattr(passwords, "_digest", note)
    return seen


@pytest.mark.parametrize(
    ("login", "status"),
    [
        (ADA, IN),
        (("ada", "secret"), OUT),
        (("ada", ""), OUT),
        (("eve", "se:cret"), OUT),
        (("", ""), OUT),
        (None, OUT),
    ],
    ids=str,
)
async def test_a_password_of_the_file_lets_in(
    login: tuple[str, str] | None, status: int, file: Path
) -> None:
    async with client_of(PasswordUsers(file)) as browser:
        answer = await browser.get("/none", auth=login) if login else await browser.get("/none")
    assert answer.status_code == status
    assert ("www-authenticate" in answer.headers) is (status == OUT)


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic YWRh", "Bearer YWRhOnNlOmNyZXQ=", "Basic /////w=="]
)
async def test_a_broken_login_is_a_stranger_s(header: str, file: Path) -> None:
    async with client_of(PasswordUsers(file)) as browser:
        answer = await browser.get("/none", headers={"authorization": header})
    assert answer.status_code == OUT


async def test_a_right_password_is_checked_once_and_a_wrong_one_each_time(
    file: Path, checked: list[str]
) -> None:
    users = PasswordUsers(file, clock=ManualClock())
    assert await asyncio.gather(*(try_in(users, ADA) for _ in range(10))) == [IN] * 10
    assert checked == ["se:cret"]
    assert [await try_in(users, WRONG) for _ in range(2)] == [OUT, OUT]
    assert [await try_in(users, ("eve", "wrong")) for _ in range(2)] == [OUT, OUT]
    assert checked == ["se:cret", *["wrong"] * 4], "a name that is not there takes as long"
    assert await try_in(users, ("bob", "se:cret")) == OUT, "what is known, is known of its user"


async def test_guesses_of_an_address_wait_and_what_waits_is_not_checked(
    file: Path, checked: list[str]
) -> None:
    clock = ManualClock()
    users = PasswordUsers(file, clock=clock)
    tried = [await try_in(users, WRONG) for _ in range(ADDRESS_TRIES + 3)]
    assert tried == [OUT] * ADDRESS_TRIES + [EARLY] * 3
    assert len(checked) == ADDRESS_TRIES
    assert await try_in(users, ("bob", "other")) == EARLY
    assert await try_in(users, ADA, "192.0.2.2") == IN, "another address is not held up"
    assert await try_in(users, ADA) == IN, "nor is who has been in"
    async with client_of(users, "192.0.2.1") as browser:
        answer = await browser.get("/api/v1/me", auth=WRONG)
    assert answer.json()["error"]["retry_after"] == int(answer.headers["retry-after"]) > 0
    clock.advance(ADDRESS_SECONDS)
    assert await try_in(users, ("bob", "other")) == IN, "the wait is not made longer by guesses"


async def test_guesses_of_a_name_wait_wherever_they_come_from(
    file: Path, checked: list[str]
) -> None:
    users = PasswordUsers(file, clock=ManualClock())
    strangers = [f"198.51.100.{number}" for number in range(NAME_TRIES)]
    assert [await try_in(users, WRONG, one) for one in strangers] == [OUT] * NAME_TRIES
    assert await try_in(users, WRONG, strangers[0]) == EARLY, "all names of its address wait"
    assert await try_in(users, ("eve", "wrong"), strangers[0]) == OUT
    assert await try_in(users, ADA, "192.0.2.9") == IN, "an address that has not failed"


async def test_a_proxy_names_the_address(file: Path) -> None:
    clock, near = ManualClock(), [ip_network("10.0.0.0/8")]
    users = PasswordUsers(file, near, clock=clock)

    async def through(address: str, peer: str = "10.0.0.1") -> int:
        return await try_in(users, WRONG, peer, x_forwarded_for=address)

    spoofed = [await through(f"1.1.1.{n}, 192.0.2.1, 10.0.0.2") for n in range(ADDRESS_TRIES + 1)]
    assert spoofed[-2:] == [OUT, EARLY], "what the client has written does not count"
    assert await through("192.0.2.2") == OUT
    direct = [await through(f"1.1.1.{n}", "192.0.2.3") for n in range(ADDRESS_TRIES + 1)]
    assert direct[-1] == EARLY, "nor does it from elsewhere than a proxy"


async def test_a_flood_is_checked_one_by_one_and_holds_up_no_other_answer(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = PasswordUsers(file, clock=ManualClock())
    assert await try_in(users, ADA) == IN
    at_once, most, gate = 0, 0, threading.Event()

    def check(_: PasswordHash, __: str) -> bool:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        assert gate.wait(60)
        at_once -= 1
        return False

    monkeypatch.setattr(PasswordHash, "is_of", check)
    flood = [
        asyncio.ensure_future(try_in(users, WRONG, f"2001:db8:{n:x}::1"))
        for n in range(WAITING_MAX + 5)
    ]
    try:
        async with asyncio.timeout(60):
            while sum(one.done() for one in flood) < 5:
                await asyncio.sleep(0)
            assert await try_in(users, ADA) == IN
    finally:
        gate.set()
    assert sorted(await asyncio.gather(*flood)) == [OUT] * WAITING_MAX + [503] * 5
    assert most == 1


async def test_a_guess_whose_request_is_cancelled_counts_and_the_next_one_waits_for_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a server that ends a request when its client leaves."""
    users, begun, gate = (
        PasswordUsers(file, clock=ManualClock()),
        threading.Event(),
        asyncio.Event(),
    )

    def check(_: PasswordHash, __: str) -> bool:
        begun.set()
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
        return False

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(PasswordHash, "is_of", check)
    for _ in range(ADDRESS_TRIES):
        begun.clear()
        guess = asyncio.ensure_future(try_in(users, WRONG))
        assert await asyncio.to_thread(begun.wait, 60)
        guess.cancel()
        await asyncio.wait([guess])
        assert users._turn.locked()
        gate.set()
        async with users._turn:
            gate.clear()
    assert await try_in(users, WRONG) == EARLY


def test_memory_is_bounded_and_addresses_of_one_network_are_one() -> None:
    guesses = Guesses(ManualClock())
    for number in range(ADDRESS_TRIES):
        guesses.count("ada", f"2001:db8:0:{number:x}::1")
    assert guesses.wait("ada", "2001:db8::ffff%eth0") > 0
    assert guesses.wait("ada", "2001:db8:1::1") == 0
    for number in range(20_000):
        guesses.count(f"n{number}", f"host {number}")
    assert len(guesses._names._paid_at) == len(guesses._addresses._paid_at) == 4096
    assert guesses.wait("ada", "2001:db8::ffff") > 0, "a flood pushes nothing out"


def test_an_address_in_either_writing_is_the_same() -> None:
    assert origin_of("::ffff:192.0.2.1") == origin_of("192.0.2.1") == "192.0.2.1"
    assert origin_of("") == ""
    assert origin_of("unix") == "unix"
