"""Who may come in by a password, and what guesses cost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from outlast.base import passwords
from outlast.base.passwords import PasswordHash, hash_password
from outlast.web.sign_in import WAITING_MAX, WRONG_SECONDS, PasswordUsers
from tests.manual_clock import ManualClock
from tests.web.kit import client_of

if TYPE_CHECKING:
    from pathlib import Path

IN, OUT, BUSY = 404, 401, 503  # of an address that does not exist
ADA, WRONG = ("ada", "se:cret"), ("ada", "wrong")


class Hasty(ManualClock):
    """A clock that goes on by itself when someone sleeps."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(passwords.COST, "n", 16)
    made = tmp_path / "users"
    made.touch(0o600)
    lines = [f"{user}:{hash_password(it)}" for user, it in (ADA, ("bob", "other"))]
    made.write_text("\n".join(["# operators", *lines, ""]))
    return made


async def try_in(users: PasswordUsers, login: tuple[str, str]) -> int:
    async with client_of(users) as browser:
        return (await browser.get("/none", auth=login)).status_code


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the passwords that were hashed."""
    seen: list[str] = []
    digest = passwords._digest

    def note(password: str, salt: bytes) -> bytes:
        seen.append(password)
        return digest(password, salt)

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
    async with client_of(PasswordUsers(file, clock=Hasty())) as browser:
        answer = await browser.get("/none", auth=login) if login else await browser.get("/none")
    assert answer.status_code == status
    assert ("www-authenticate" in answer.headers) is (status == OUT)


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic YWRh", "Bearer YWRhOnNlOmNyZXQ=", "Basic /////w=="]
)
async def test_a_broken_login_is_a_stranger_s(header: str, file: Path) -> None:
    async with client_of(PasswordUsers(file, clock=Hasty())) as browser:
        answer = await browser.get("/none", headers={"authorization": header})
    assert answer.status_code == OUT


async def test_a_right_password_is_checked_once_and_a_wrong_one_each_time(
    file: Path, checked: list[str]
) -> None:
    users = PasswordUsers(file, clock=Hasty())
    assert await asyncio.gather(*(try_in(users, ADA) for _ in range(10))) == [IN] * 10
    assert checked == ["se:cret"]
    assert [await try_in(users, WRONG) for _ in range(2)] == [OUT, OUT]
    assert [await try_in(users, ("eve", "wrong")) for _ in range(2)] == [OUT, OUT]
    assert checked == ["se:cret", *["wrong"] * 4], "a name that is not there takes as long"
    assert await try_in(users, ("bob", "se:cret")) == OUT, "what is known, is known of its user"


async def test_no_other_site_has_a_browser_try_a_password(file: Path, checked: list[str]) -> None:
    """Passwords go along with what a page of another site asks for."""
    image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    async with client_of(PasswordUsers(file)) as browser:
        answer = await browser.get("/none", auth=ADA, headers=image)
    assert (answer.status_code, checked) == (403, [])


async def test_the_check_after_a_wrong_password_waits_a_second(
    file: Path, checked: list[str]
) -> None:
    clock = ManualClock()
    users = PasswordUsers(file, clock=clock)
    assert await try_in(users, ADA) == IN
    wrong = asyncio.ensure_future(try_in(users, WRONG))
    async with asyncio.timeout(60):
        while not clock.sleepers:
            await asyncio.sleep(0)
    bob = asyncio.ensure_future(try_in(users, ("bob", "other")))
    assert await try_in(users, ADA) == IN, "who has been in does not wait"
    assert checked == ["se:cret", "wrong"]
    clock.advance(WRONG_SECONDS)
    assert (await wrong, await bob) == (OUT, IN)
    assert checked == ["se:cret", "wrong", "other"]


async def test_a_flood_is_checked_one_by_one_and_holds_up_no_other_answer(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = PasswordUsers(file, clock=Hasty())
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
    flood = [asyncio.ensure_future(try_in(users, WRONG)) for _ in range(WAITING_MAX + 5)]
    try:
        async with asyncio.timeout(60):
            while sum(one.done() for one in flood) < 5:
                await asyncio.sleep(0)
            assert await try_in(users, ADA) == IN
    finally:
        gate.set()
    assert sorted(await asyncio.gather(*flood)) == [OUT] * WAITING_MAX + [BUSY] * 5
    assert most == 1


async def test_a_guess_goes_on_when_its_request_is_cancelled_and_the_next_one_waits_for_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a server that ends a request when its client leaves."""
    begun, gate = threading.Event(), threading.Event()

    def check(_: PasswordHash, __: str) -> bool:
        begun.set()
        assert gate.wait(60)
        return False

    users = PasswordUsers(file, clock=Hasty())
    monkeypatch.setattr(PasswordHash, "is_of", check)
    guess = asyncio.ensure_future(try_in(users, WRONG))
    assert await asyncio.to_thread(begun.wait, 60)
    guess.cancel()
    await asyncio.wait([guess])
    assert users._turn.locked()
    assert users._waiting == 1
    gate.set()
    assert await try_in(users, WRONG) == OUT
    assert users._waiting == 0
