"""Connects a command with its runner: ``outlast checkpoint`` and ``outlast report``.

A Unix socket, named in the command's environment, exists while the command runs. Requests take the
way of every checkpoint and report, fenced by the attempt's token. They have to name it, so that a
process left behind by an earlier attempt learns that it is too late. The caller's user is checked
before the first byte is read: only the runner's own user is served, within limits of connections,
bytes and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any, Self

import msgspec

from outlast.base.clock import SYSTEM
from outlast.client.attempt import Attempt
from outlast.errors import BadArguments, LostLease, StoreUnavailable, UsageError, text_of

SOCKET_VARIABLE, TOKEN_VARIABLE = "OUTLAST_SOCKET", "OUTLAST_TOKEN"
CHECKPOINT_MAX = 100_000  # bytes: the environment of the next attempt can hold that many
REQUEST_MAX = 1 << 20  # bytes of a line
REQUEST_SECONDS = 10.0  # for a line to arrive
CALLERS_MAX = 32  # at once


def check_checkpoint(value: str) -> None:
    """Raise UsageError for a text that the environment of the next attempt cannot hold."""
    if len(value.encode()) > CHECKPOINT_MAX:
        raise UsageError(f"a checkpoint has at most {CHECKPOINT_MAX:,} bytes: keep more in a file")
    if "\0" in value:
        raise UsageError("a checkpoint cannot hold a NUL")


class CheckpointRequest(msgspec.Struct, frozen=True, tag=True):
    """Save this text."""

    token: int
    value: str


class ReportRequest(msgspec.Struct, frozen=True, tag=True):
    """Report the progress of the command."""

    token: int
    fraction: float | None = None
    message: str | None = None
    stage: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """The result: empty, or the name of an error and its message."""

    error: str | None = None
    message: str = ""


_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (LostLease, BadArguments, UsageError, StoreUnavailable)
}
_NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_STRANGER = Reply("UsageError", "only processes of the runner's own user are served")
_CROWD = Reply("StoreUnavailable", f"{CALLERS_MAX} other requests are under way: ask again")
_requests: msgspec.json.Decoder[CheckpointRequest | ReportRequest] = msgspec.json.Decoder(
    CheckpointRequest | ReportRequest
)


class ControlSocket:
    """The runner's side: ``async with ControlSocket(attempt)``; commands use ``address``."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._folder: str | None = None
        self._server: asyncio.AbstractServer | None = None
        self._callers = 0
        self.address = ""

    async def __aenter__(self) -> Self:
        if sys.platform.startswith("linux"):  # a name without a file leaves nothing behind
            self.address = f"@outlast-{os.getpid()}-{int(SYSTEM.random() * 16**12):012x}"
        else:
            self._folder = tempfile.mkdtemp(prefix="outlast-")
            self.address = os.path.join(self._folder, "control")
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: _Caller(asyncio.StreamReader(REQUEST_MAX), self._serve, self._refusal),
            path=_path(self.address),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _refusal(self, peer: Any) -> Reply | None:
        """Return the reply to a caller that is not served, before anything is read from it."""
        if not _same_user(peer):
            return _STRANGER
        return _CROWD if self._callers >= CALLERS_MAX else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                line = await reader.readline()
            reply = await self._reply(line)
            writer.write(_line(reply))
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
        except (OSError, ValueError):  # the caller went away or is slow, or its line is too long
            return
        finally:
            self._callers -= 1
            writer.close()

    async def _reply(self, line: bytes) -> Reply:
        attempt = self._attempt
        try:
            request = _requests.decode(line)
        except _NOT_UNDERSTOOD as error:
            return Reply("UsageError", f"not understood: {text_of(error)}")
        try:
            if request.token != attempt.token:
                raise LostLease(f"token {request.token} is not the current one of this runner")
            if isinstance(request, ReportRequest):
                attempt.report(request.fraction, request.message, stage=request.stage)
            else:
                check_checkpoint(request.value)
                await attempt.save(request.value)
        except Exception as error:
            kind = next((name for name, one in _ERRORS.items() if isinstance(error, one)), None)
            return Reply(kind or "StoreUnavailable", text_of(error))
        return Reply()


class _Caller(asyncio.StreamReaderProtocol):
    """One connection. If ``connection_made`` closes it, nothing is read from it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
        refusal: Callable[[Any], Reply | None],
    ) -> None:
        super().__init__(reader, serve)
        self._refusal = refusal

    def connection_made(self, transport: Any) -> None:
        refusal = self._refusal(transport.get_extra_info("socket"))
        if refusal is None:
            super().connection_made(transport)
            return
        transport.write(_line(refusal))
        transport.close()


def _line(reply: Reply) -> bytes:
    return msgspec.json.encode(reply) + b"\n"


def ask(address: str, request: CheckpointRequest | ReportRequest) -> None:
    """Send a request from inside a command; return once it is done. Nothing is sent to another
    user, who may have bound the name after its runner has ended. Raises LostLease, UsageError,
    BadArguments or StoreUnavailable."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(_path(address))
            if not _same_user(client):
                raise StoreUnavailable("the runner of this command is gone: another user answers")
            with contextlib.suppress(BrokenPipeError):  # refused already: the reply says why
                client.sendall(msgspec.json.encode(request) + b"\n")
            with client.makefile("rb") as answer:
                line = answer.readline(REQUEST_MAX)
    except OSError as error:
        raise StoreUnavailable(f"the runner of this command is gone: {text_of(error)}") from error
    if not line:
        raise StoreUnavailable("the runner of this command has not answered")
    try:
        reply = msgspec.json.decode(line, type=Reply)
    except _NOT_UNDERSTOOD as error:
        raise StoreUnavailable(f"the runner's answer cannot be read: {text_of(error)}") from error
    if reply.error is not None:
        raise _ERRORS.get(reply.error, StoreUnavailable)(reply.message)


def _path(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address


def _same_user(peer: Any) -> bool:
    """Whether the other side belongs to this user, or to root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", packed)
    return uid in {os.geteuid(), 0}
