"""The door between a command and its runner: ``outlast checkpoint`` and ``outlast report``.

A Unix socket, named in the command's environment, for as long as the command runs. What comes in
takes the way of every checkpoint and report: by the runner to the worker, fenced by the token of
the attempt. A request has to name that token, so that a process which an earlier attempt has left
behind is told that it is too late. Only processes of the same user are served.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import sys
import tempfile
from typing import Any, Self

import msgspec

from outlast.attempt import Attempt
from outlast.clock import SYSTEM
from outlast.errors import BadArguments, LostLease, StoreUnavailable, UsageError

SOCKET_VARIABLE, TOKEN_VARIABLE = "OUTLAST_SOCKET", "OUTLAST_TOKEN"
CHECKPOINT_MAX = 100_000  # bytes: what the environment of the next attempt can hold
REQUEST_MAX = 1 << 20  # bytes of a line


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Save this text."""

    token: int
    value: str


class Report(msgspec.Struct, frozen=True, tag=True):
    """Tell people how far the command is."""

    token: int
    fraction: float | None = None
    message: str | None = None
    stage: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """What came of it: nothing to say, or the name of an error and its message."""

    error: str | None = None
    message: str = ""


_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (LostLease, BadArguments, UsageError, StoreUnavailable)
}
_STRANGER = Reply("UsageError", "only processes of the runner's own user are served")
_requests: msgspec.json.Decoder[Checkpoint | Report] = msgspec.json.Decoder(Checkpoint | Report)


class Door:
    """The runner's side: ``async with Door(attempt) as door``; ``address`` is for the command."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._folder: str | None = None
        self._server: asyncio.AbstractServer | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        if sys.platform.startswith("linux"):  # a name without a file: nothing is left behind
            self.address = f"@outlast-{os.getpid()}-{int(SYSTEM.random() * 16**12):012x}"
        else:
            self._folder = tempfile.mkdtemp(prefix="outlast-")
            self.address = os.path.join(self._folder, "door")
        self._server = await asyncio.start_unix_server(
            self._serve, path=_path(self.address), limit=REQUEST_MAX
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            same = _same_user(writer.get_extra_info("socket"))
            reply = await self._replied(line) if same else _STRANGER
            writer.write(msgspec.json.encode(reply) + b"\n")
            await writer.drain()
        except (OSError, ValueError):  # it went away, or its line is too long
            return
        finally:
            writer.close()

    async def _replied(self, line: bytes) -> Reply:
        try:
            await self._done(_requests.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Reply("UsageError", f"not understood: {error}")
        except Exception as error:
            kind = next((name for name, one in _ERRORS.items() if isinstance(error, one)), None)
            return Reply(kind or "StoreUnavailable", str(error))
        return Reply()

    async def _done(self, request: Checkpoint | Report) -> None:
        attempt = self._attempt
        if request.token != attempt.token:
            raise LostLease(f"token {request.token} is not the current one of this runner")
        if isinstance(request, Report):
            attempt.report(request.fraction, request.message, stage=request.stage)
        else:
            await attempt.save(request.value)


def ask(address: str, request: Checkpoint | Report) -> None:
    """Send a request from inside of a command; return once it is done.

    Raises LostLease, UsageError, BadArguments or StoreUnavailable.
    """
    try:
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(_path(address))
            door.sendall(msgspec.json.encode(request) + b"\n")
            with door.makefile("rb") as answer:
                line = answer.readline(REQUEST_MAX)
    except OSError as error:
        raise StoreUnavailable(f"the runner of this command is gone: {error}") from error
    if not line:
        raise StoreUnavailable("the runner of this command has not answered")
    reply = msgspec.json.decode(line, type=Reply)
    if reply.error is not None:
        raise _ERRORS.get(reply.error, StoreUnavailable)(reply.message)


def _path(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address


def _same_user(peer: Any) -> bool:
    """Whether the other side is of this user, or root. A socket in a folder of this user's own is
    out of the reach of others already."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", packed)
    return uid in {os.geteuid(), 0}
