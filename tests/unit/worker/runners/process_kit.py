"""A runner as its worker sees it, with a small real process in its place."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from outlast.base.clock import SYSTEM
from outlast.runner.protocol import RunnerSettings
from outlast.runner.tether import groups_of
from outlast.worker.runners.process import Death, RunnerOwner, RunnerProcess

SECONDS = 60.0

HEAD = """
import os, signal, socket, subprocess, sys, threading
sock = socket.socket(fileno=int(sys.argv[1]))
stacks = int(sys.argv[2])
sock.recv(int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big"), socket.MSG_WAITALL)  # Configure
def frame(body):
    sock.sendall(len(body).to_bytes(4, "big") + body)
HELLO = bytes([0x94, 0xa5]) + b"Hello" + bytes([0x90, 0xc0, 0xa1]) + b"3"
"""

SETTINGS = RunnerSettings(app="", stacks=-1, concurrency=1, store_id="", url="")


class Child(RunnerProcess):
    """Runs a few lines of Python instead of a runner."""

    def __init__(self, code: str, stage: Stage) -> None:
        owner = RunnerOwner(stage.take_frames, stage.take_death, stage.fail)
        super().__init__(SETTINGS, owner, clock=SYSTEM, output=stage.write)
        self._code = HEAD + code

    def _spawn(self, sock: int, stacks: int, output: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", self._code, str(sock), str(stacks)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(sock, stacks),
            start_new_session=True,
        )
        self.pid = self._process.pid


class Stage:
    """Starts children, and records their frames and exits."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.output = bytearray()
        self.failures: list[BaseException] = []
        self.children: list[Child] = []
        self.died: asyncio.Queue[Death] = asyncio.Queue()
        self.heard = asyncio.Event()
        self.at_death: list[bool] = []

    def take_frames(self, runner: RunnerProcess, frames: Iterable[Any]) -> None:
        for frame in frames:
            self.frames.append(frame)
            self.heard.set()

    def take_death(self, runner: RunnerProcess, death: Death) -> None:
        self.at_death.append(not groups_of({runner.pid}))
        self.died.put_nowait(death)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def write(self, pid: int, data: bytes, token: int | None = None) -> None:
        self.output.extend(data)

    async def start(self, code: str) -> Child:
        child = Child(code, self)
        await child.start()
        self.children.append(child)
        return child

    async def death(self) -> Death:
        async with asyncio.timeout(SECONDS):
            return await self.died.get()

    async def greeted(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.heard.wait()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    for child in made.children:
        if child._process.returncode is None:
            child.kill()
            await made.death()
    assert made.failures == []
