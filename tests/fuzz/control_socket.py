"""The control socket of a command, with real connections; and the answers to its callers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any
from unittest import mock

import msgspec
from hypothesis import strategies as st

from outlast.errors import BadArguments, LostLease, StoreUnavailable, UsageError
from outlast.model.crash import Progress
from outlast.runner.shell import control_socket
from outlast.runner.shell.control_socket import (
    CheckpointRequest,
    ControlSocket,
    Reply,
    ReportRequest,
    ask,
)
from tests.fuzz.kit import BOMBS, SECONDS, Fuzzer, damaged, json_values
from tests.unit.client.test_attempt import FakeLink, attempt_of

TOKEN = 70
LINE_MAX = 50_000  # bytes, in place of REQUEST_MAX: more would stay resident after C frees it
SOUND = ReportRequest(TOKEN, 0.471147114711)
DOCUMENTED = (LostLease, UsageError, BadArguments, StoreUnavailable)


class Caller(msgspec.Struct, frozen=True):
    """One connection: what it sends, piece by piece, and how it leaves."""

    pieces: list[bytes]
    leaves: str


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"null"


tokens = st.just(TOKEN) | st.integers(-(2**70), 2**70) | json_values
requests = st.one_of(
    st.builds(
        lambda token, value: _json(CheckpointRequest(token, value)), tokens, st.text(max_size=20)
    ),
    st.builds(
        lambda *fields: _json(ReportRequest(*fields)),
        tokens,
        st.none() | st.floats() | json_values,
        st.none() | st.text(max_size=20),
        st.none() | json_values,
    ),
    st.builds(
        lambda kind, more: _json({"type": kind, **more}),
        st.sampled_from(["Checkpoint", "Report", "Drop", ""]),
        st.dictionaries(st.sampled_from(["token", "value", "fraction", "x"]), json_values),
    ),
    st.sampled_from([one.encode("utf-8", "replace") for one in BOMBS]),
    st.builds(
        lambda bomb: b'{"type":"Report","token":70,"x":' + bomb.encode("utf-8", "replace") + b"}",
        st.sampled_from(BOMBS),
    ),
)
pieces = st.one_of(
    damaged(requests.map(lambda one: one + b"\n"), most=2),
    damaged(requests.map(lambda one: one + b"\n"), most=0),
    st.binary(max_size=30),
    st.builds(
        lambda byte, count: byte * count,
        st.sampled_from([b"x", b"\0", b"\n", b"\xff", b"["]),
        st.sampled_from([1, 1_000, LINE_MAX + 1, 3 * LINE_MAX]),
    ),
)
callers = st.builds(
    Caller,
    st.lists(pieces, max_size=4),
    st.sampled_from(["waits for an answer", "hangs up", "half closes", "resets", "stays"]),
)


def a_command_calls(all_callers: list[Caller]) -> None:
    """Callers get a documented answer or none; the next sound request is done."""
    with mock.patch.object(control_socket, "REQUEST_MAX", LINE_MAX):
        asyncio.run(_a_command_calls(all_callers))


async def _a_command_calls(all_callers: list[Caller]) -> None:
    trouble: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
    link = FakeLink()
    async with (
        asyncio.timeout(SECONDS),
        ControlSocket(attempt_of(link, max_payload=1000)) as opened,
    ):
        calls = [_call(opened.address, each) for each in all_callers]
        stay = [writer for writer in await asyncio.gather(*calls) if writer is not None]
        for writer in stay:
            writer.close()
        while opened._callers:
            await asyncio.sleep(0)
        await asyncio.to_thread(ask, opened.address, SOUND)
        assert Progress(fraction=SOUND.fraction) in link.reports
    assert trouble == []


async def _call(address: str, caller: Caller) -> asyncio.StreamWriter | None:
    reader, writer = await asyncio.open_unix_connection(control_socket._path(address))
    with contextlib.suppress(ConnectionError):
        for piece in caller.pieces:
            writer.write(piece)
            await writer.drain()
        if caller.leaves == "half closes":
            writer.write_eof()
        if caller.leaves == "half closes" or (
            caller.leaves == "waits for an answer" and b"\n" in b"".join(caller.pieces)
        ):
            _is_documented(await reader.read(1 << 20))
    if caller.leaves == "stays":
        return writer
    if caller.leaves == "resets":
        writer.transport.abort()
    else:
        writer.close()
    return None


def _is_documented(answer: bytes) -> None:
    if answer:
        reply = msgspec.json.decode(answer, type=Reply)
        assert reply.error is None or reply.error in control_socket._ERRORS


# --- the other end: the answers that a command reads

answers = st.one_of(
    st.builds(
        lambda error, message: _json({"error": error, "message": message}) + b"\n",
        st.sampled_from([None, *control_socket._ERRORS, "Exception"]) | json_values,
        st.text(max_size=20) | json_values,
    ),
    st.builds(lambda one: _json(one) + b"\n", json_values),
    st.binary(max_size=50),
    st.sampled_from([one.encode("utf-8", "replace") + b"\n" for one in BOMBS]),
    st.sampled_from([b"", b"\n", b"x" * (control_socket.REQUEST_MAX + 2)]),
)


def a_command_is_answered(answer: bytes) -> None:
    """Any request is carried out or raises a documented error."""
    name = f"@outlast-fuzz-{threading.get_native_id()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(control_socket._path(name))
        server.listen()
        thread = threading.Thread(target=_answer, args=(server, answer))
        thread.start()
        try:
            ask(name, ReportRequest(TOKEN, 0.5))
        except DOCUMENTED:
            pass
        finally:
            thread.join()


def _answer(server: socket.socket, answer: bytes) -> None:
    caller, _ = server.accept()
    with caller, contextlib.suppress(ConnectionError):
        caller.settimeout(SECONDS)
        caller.recv(1 << 16)
        caller.sendall(answer)


FUZZERS = [
    Fuzzer("calls of the control socket", st.lists(callers, max_size=6), a_command_calls, few=20),
    Fuzzer("answers of the control socket", answers, a_command_is_answered, few=40),
]
