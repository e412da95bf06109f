"""A runner that its worker kills, for a reason of its own or for a frame that cannot be read."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from outlast.runner.protocol import STACKS_SIGNAL, Hello, pack
from outlast.worker.runners import process as module
from outlast.worker.runners.process import STACKS_SECONDS, RunnerProcess
from tests.manual_clock import ManualClock
from tests.unit.worker.runners import process_kit
from tests.unit.worker.runners.process_kit import Stage
from tests.unit.worker.worker_kit import heard
from tests.unkillable import held_at_its_exit

stage = process_kit.stage


async def test_a_kill_takes_the_whole_group_and_its_first_reason_stays(stage):
    child = await stage.start(
        "subprocess.Popen([sys.executable, '-S', '-c', 'import signal; signal.pause()']); "
        "frame(HELLO); signal.pause()"
    )
    await stage.greeted()
    child.kill("timeout")
    child.kill("drain")
    assert (await stage.death()).signal == "SIGKILL"
    assert child.kill_reason == "timeout"
    assert stage.at_death == [True]


async def test_a_kill_after_the_death_is_not_its_reason(stage):
    """A runner that died by itself must not count as killed by its worker."""
    child = await stage.start("signal.pause()")
    empty_session = child._empty_session

    async def meanwhile() -> None:
        child.kill("drain")
        await empty_session()

    child._empty_session = meanwhile
    os.kill(child.pid, signal.SIGSEGV)
    assert (await stage.death()).signal == "SIGSEGV"
    assert child.kill_reason is None


@pytest.mark.parametrize(
    "send",
    [
        "frame(bytes([0xc1]))",
        "frame(b'')",
        "sock.sendall((2**32 - 1).to_bytes(4, 'big'))",
        "frame(bytes([0x92, 0xa7]) + b'Explode' + bytes([1]))",
    ],
    ids=["malformed", "empty", "oversized", "unknown"],
)
async def test_a_bad_frame_ends_the_runner_and_later_frames_are_ignored(stage, send):
    child = await stage.start(f"frame(HELLO); {send}; frame(HELLO); signal.pause()")
    death = await stage.death()
    assert (death.signal, child.kill_reason) == ("SIGKILL", "bad_frame")
    assert "frame" in (death.complaint or "")
    assert stage.frames == [Hello([], None, "3")]


async def test_after_a_bad_frame_nothing_can_be_trusted(stage):
    child = await stage.start("signal.pause()")
    child._on_data(bytes(4))  # a frame without a message
    child._on_data(pack(Hello([], None, "3")))
    await stage.death()
    assert stage.frames == []


async def test_any_frame_that_cannot_be_handled_ends_the_runner(stage, monkeypatch):
    """A runner that ignores the end of its socket would hold its attempts."""

    def fails(runner: RunnerProcess, frames: Any) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(Stage, "take_frames", staticmethod(fails))
    child = await stage.start("frame(HELLO); signal.pause()")
    death = await stage.death()
    assert (death.signal, child.kill_reason) == ("SIGKILL", "bad_frame")
    assert death.complaint == "ValueError('no such thing')"


async def test_a_runner_that_may_not_be_signalled_is_killed_all_the_same(stage, monkeypatch):
    child = await stage.start("frame(HELLO); signal.pause()")
    await stage.greeted()

    def refuses(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuses)
    await child.kill_with_stacks()
    assert (await stage.death()).signal == "SIGKILL"


async def test_a_kill_with_stacks_asks_for_them_first(stage):
    child = await stage.start(
        "import faulthandler; faulthandler.register(signal.SIGRTMIN + 7, file=stacks); "
        "frame(HELLO); threading.Event().wait()"
    )
    await stage.greeted()
    child.kill_reason = "timeout"
    await child.kill_with_stacks()
    death = await stage.death()
    assert death.signal == "SIGKILL"
    assert "most recent call first" in death.stacks


async def test_a_group_that_cannot_be_killed_is_reported_and_not_waited_for(stage, monkeypatch):
    monkeypatch.setattr(module, "GROUP_EMPTY_SECONDS", 0.1)
    child = await stage.start(
        "left = subprocess.Popen([sys.executable, '-S', '-c', 'import signal; signal.pause()'])\n"
        "print(left.pid, flush=True)\nsys.stdin.read() or signal.pause()"
    )
    while not stage.output.endswith(b"\n"):
        await asyncio.sleep(0.01)
    with heard() as names, held_at_its_exit(int(stage.output)):
        child.kill()
        assert (await stage.death()).signal == "SIGKILL"
        assert stage.at_death == [False]
    assert names == ["runner_unkillable"]


async def test_stacks_that_are_asked_for_again_soon_are_asked_for_once(stage, monkeypatch):
    """As for each attempt of a runner whose time is over: they would come many times over."""
    child = await stage.start("frame(HELLO); threading.Event().wait()")
    await stage.greeted()
    clock, signals = ManualClock(), []
    monkeypatch.setattr(child, "_clock", clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *sent: signals.append(sent))
        for seconds in (2 * STACKS_SECONDS, 0, STACKS_SECONDS):
            clock.advance(seconds)
            child._stacks.extend(b"old")
            child.ask_stacks()
    assert signals == [(child.pid, STACKS_SIGNAL)] * 2
    assert child._stacks == b""
