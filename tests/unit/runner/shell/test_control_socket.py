"""The control socket between a command and its runner: which callers are served, and how."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from outlast.errors import BadArguments, LostLease, StoreUnavailable, UsageError
from outlast.model.crash import Progress
from outlast.runner.shell import control_socket as module
from outlast.runner.shell.control_socket import CheckpointRequest, ControlSocket, ReportRequest, ask
from outlast.store.values import Answer
from tests.unit.client.test_attempt import FakeLink, attempt_of

TOKEN = 70
SECONDS = 60.0


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture(params=["a name", "a file"])
async def door(request, link, monkeypatch) -> AsyncIterator[ControlSocket]:
    if request.param == "a file":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif not sys.platform.startswith("linux"):
        pytest.skip("only Linux has sockets without a file")
    async with ControlSocket(attempt_of(link, max_payload=1000)) as opened:
        yield opened


async def say(door: ControlSocket, request: CheckpointRequest | ReportRequest) -> None:
    await asyncio.to_thread(ask, door.address, request)


async def test_a_checkpoint_is_saved_and_a_report_is_passed_on(door, link):
    await say(door, CheckpointRequest(TOKEN, "page 4"))
    await say(door, ReportRequest(TOKEN, 0.5, "half", "render"))
    assert link.saves == [(1, TOKEN, 1, '"page 4"', False)]
    assert link.reports == [Progress(fraction=0.5, message="half", stage="render")]


async def test_a_request_with_another_token_is_too_late(door, link):
    for request in (CheckpointRequest(TOKEN - 1, "x"), ReportRequest(TOKEN - 1, 0.5)):
        with pytest.raises(LostLease, match="not the current one"):
            await say(door, request)
    assert (link.saves, link.reports) == ([], [])


async def test_a_refusal_of_the_store_is_answered(door, link):
    link.answer = Answer.REFUSED
    with pytest.raises(LostLease, match="token 70"):
        await say(door, CheckpointRequest(TOKEN, "x"))
    link.answer = Answer.BUSY
    with pytest.raises(StoreUnavailable, match="locked"):
        await say(door, CheckpointRequest(TOKEN, "x"))
    with pytest.raises(BadArguments, match="1000 are allowed"):
        await say(door, CheckpointRequest(TOKEN, "x" * 2000))


async def test_connecting_to_a_closed_socket_says_that_the_runner_is_gone(link):
    async with ControlSocket(attempt_of(link)) as door:
        address = door.address
    with pytest.raises(StoreUnavailable, match="is gone"):
        await asyncio.to_thread(ask, address, CheckpointRequest(TOKEN, "x"))


async def test_a_socket_file_is_removed_with_its_socket(link, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    async with ControlSocket(attempt_of(link)) as door:
        folder = Path(door.address).parent
        assert folder.stat().st_mode & 0o077 == 0, "others cannot even list it"
    assert not folder.exists()


DEEP = b'{"type":"Report","token":70,"x":' + b"[" * 5_000 + b"\n"


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[]\n", b'{"type":"Drop"}\n', b"\xff\n", b"\n", DEEP]
)
async def test_a_malformed_request_is_answered_and_the_next_one_served(door, link, line):
    assert b"not understood" in await asyncio.to_thread(exchange, door.address, line)
    await say(door, ReportRequest(TOKEN, 1.0))
    assert len(link.reports) == 1


async def test_an_endless_line_is_cut_off(door, link):
    assert await asyncio.to_thread(exchange, door.address, b"x" * (module.REQUEST_MAX * 2)) == b""
    await say(door, ReportRequest(TOKEN, 1.0))


async def test_other_users_are_not_served(door, link, monkeypatch):
    if not hasattr(socket, "SO_PEERCRED"):
        pytest.skip("the folder's mode is what keeps them out")
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    # the module's own: threads of this process unpack, too
    stranger = SimpleNamespace(calcsize=struct.calcsize, unpack=lambda *_: (1, 999, 999))
    monkeypatch.setattr(module, "struct", stranger)
    assert b"own user" in await asyncio.to_thread(exchange, door.address)
    assert link.saves == []


async def test_nothing_is_sent_to_another_user_who_has_taken_the_name(tmp_path, monkeypatch):
    """An abstract name is free once its runner has ended; a process that the command has left
    behind would send its checkpoint there, and be told that it is done."""
    if not hasattr(socket, "SO_PEERCRED"):
        pytest.skip("the folder's mode is what keeps them out")
    heard: list[bytes] = []

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.write(b'{"error":null,"message":""}\n')
        writer.close()

    address = str(tmp_path / "taken")
    async with await asyncio.start_unix_server(answers, address):
        stranger = SimpleNamespace(calcsize=struct.calcsize, unpack=lambda *_: (1, 999, 999))
        monkeypatch.setattr(module, "struct", stranger)
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
        with pytest.raises(StoreUnavailable, match="another user"):
            await asyncio.to_thread(ask, address, CheckpointRequest(TOKEN, "secret"))
        async with asyncio.timeout(25):
            while not heard:
                await asyncio.sleep(0.01)
    assert heard == [b""]


def exchange(address: str, sent: bytes = b"") -> bytes:
    """Send bytes, which may be no whole line; return what comes back, b"" at the end."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(SECONDS)
        door.connect(module._path(address))
        try:
            if sent:
                door.sendall(sent)
        except BrokenPipeError:  # refused before it was read
            pass
        with contextlib.suppress(ConnectionResetError):
            return door.recv(65_536)
        return b""


@pytest.mark.parametrize("answer", [b"nonsense\n", b"[]\n", b"[" * 5_000 + b"\n", b"\xff\n"])
async def test_a_malformed_answer_is_a_store_error(answer, tmp_path):
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    address = str(tmp_path / "door")
    async with await asyncio.start_unix_server(answers, address):
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await asyncio.to_thread(ask, address, ReportRequest(TOKEN, 1.0))


async def test_an_unexpected_error_is_answered_as_a_store_error(door, link, monkeypatch):
    monkeypatch.setattr(link, "save", lambda *_, again: 1 / 0)
    with pytest.raises(StoreUnavailable, match="division"):
        await say(door, CheckpointRequest(TOKEN, "x"))


def test_errors_map_to_their_names_on_the_wire():
    assert set(module._ERRORS) == {"LostLease", "UsageError", "BadArguments", "StoreUnavailable"}
    assert module._ERRORS["UsageError"] is UsageError


async def test_no_byte_of_another_user_is_read(door, monkeypatch):
    """Their connections, of two megabytes each, would exhaust the runner's memory."""
    monkeypatch.setattr(module, "_same_user", lambda peer: False)
    read: list[bytes] = []
    monkeypatch.setattr(module._Caller, "data_received", lambda self, data: read.append(data))
    for sent in (b"", b"x" * 50_000):
        assert b"own user" in await asyncio.to_thread(exchange, door.address, sent)
    assert read == []


async def test_a_silent_caller_is_disconnected(door, link, monkeypatch):
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.05)
    assert await asyncio.to_thread(exchange, door.address, b"half a li") == b""
    await say(door, ReportRequest(TOKEN, 1.0))


async def test_concurrent_callers_are_bounded_and_the_next_is_refused(door, link, monkeypatch):
    monkeypatch.setattr(module, "CALLERS_MAX", 2)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for each in waiting:
        each.connect(module._path(door.address))
    while door._callers < 2:
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="ask again"):
        await say(door, ReportRequest(TOKEN, 1.0))
    for each in waiting:
        each.close()
    while door._callers:
        await asyncio.sleep(0)
    await say(door, ReportRequest(TOKEN, 1.0))


@pytest.mark.parametrize(("value", "words"), [("a\0b", "NUL"), ("x" * 100_001, "100,000 bytes")])
async def test_what_the_next_environment_cannot_hold_is_refused_by_the_runner(
    link, monkeypatch, value, words
):
    """Otherwise the next attempts could not even be started."""
    async with ControlSocket(attempt_of(link)) as door:
        with pytest.raises(UsageError, match=words):
            await say(door, CheckpointRequest(TOKEN, value))
        await say(door, CheckpointRequest(TOKEN, "x" * 100_000))
    assert len(link.saves) == 1
