"""A runner's end of the socket: saves are answered, and no input stops its reading thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import queue
import socket
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from outlast.base import forks
from outlast.base.clock import SYSTEM
from outlast.errors import UsageError
from outlast.model.crash import CrashKind, Progress
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner import channel as module
from outlast.runner import printing
from outlast.runner.channel import Channel
from outlast.runner.main import WorkerLink
from outlast.runner.printing import Tagged
from outlast.runner.protocol import (
    TO_WORKER,
    AttemptsEnded,
    Configure,
    End,
    FrameError,
    Quit,
    Reported,
    RunnerSettings,
    Saved,
    SaveRequest,
    Stop,
    ToRunner,
    ToWorker,
    Unpacker,
    pack,
)
from tests.unit.interruptions_kit import call_at_each_line

SECONDS = 60.0
REPORT = Reported(1, Progress(fraction=0.5))
SMALL = 2 * 2**20  # bytes


class Wire:
    """A channel, and the worker's end of its socket."""

    def __init__(self) -> None:
        self.worker, self.runner = socket.socketpair()
        self.worker.settimeout(SECONDS)
        self.channel = Channel(self.runner)
        self._unpacker = Unpacker(TO_WORKER)
        self._read: list[ToWorker] = []
        self.heard: queue.Queue[ToRunner] = queue.Queue()

    def listen(self) -> None:
        self.channel.start(self.heard.put)

    def tell(self, frame: ToRunner) -> None:
        self.worker.sendall(pack(frame))

    def told(self) -> ToWorker:
        while not self._read:
            self._read.extend(self._unpacker.feed(self.worker.recv(65536)))
        return self._read.pop(0)

    def close(self) -> None:
        self.worker.close()
        self.runner.close()


@pytest.fixture
def ended(monkeypatch) -> queue.Queue[int]:
    """Notes the end of the runner, instead of killing its process group."""
    ends: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(module, "end_with_worker", lambda: ends.put(1))
    return ends


@pytest.fixture
def wire(ended) -> Iterator[Wire]:
    wire = Wire()
    yield wire
    with contextlib.suppress(OSError):
        wire.worker.shutdown(socket.SHUT_RDWR)
    assert ended.get(timeout=SECONDS) == 1, "the reading thread has ended"
    wire.close()


@pytest.fixture
def settings() -> RunnerSettings:
    return RunnerSettings(app="", stacks=-1, concurrency=1, store_id="", url="")


@pytest.fixture
def listening(wire) -> Wire:
    wire.listen()
    return wire


def read_settings_from(data: bytes) -> RunnerSettings:
    """Return the settings that a runner reads from these bytes, allocating little memory."""
    worker, own = socket.socketpair()
    with worker, own:
        worker.sendall(data)
        worker.shutdown(socket.SHUT_WR)
        tracemalloc.start()
        try:
            return Channel(own).read_settings()
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < SMALL


def test_reading_settings_reads_nothing_beyond_them(ended, settings):
    worker, own = socket.socketpair()
    with worker, own:
        worker.sendall(pack(Configure(settings)) + pack(Quit()))
        assert Channel(own).read_settings() == settings
        assert own.recv(1_000) == pack(Quit())


@pytest.mark.parametrize("size", [100, 60 * 2**20, 2**32 - 1])
def test_settings_take_no_more_memory_than_their_bytes(ended, size):
    """A length of four bytes could claim four gigabytes."""
    with pytest.raises(FrameError):
        read_settings_from(size.to_bytes(4, "big") + b"x")
    assert ended.qsize() <= 1


def test_a_save_is_answered_by_its_number_in_any_order(listening):
    wire = listening
    first = wire.channel.save(token=5, number=1, value="1", again=False)
    second = wire.channel.save(token=5, number=2, value="2", again=False)
    assert wire.told() == SaveRequest(1, 5, 1, "1")
    assert wire.told() == SaveRequest(2, 5, 2, "2")
    wire.tell(Saved(2, "already"))
    wire.tell(Saved(1, "accepted"))
    answers = [each.result(SECONDS).answer for each in (first, second)]
    assert answers == ["accepted", "already"]


async def test_the_answer_to_a_cancelled_save_does_not_stop_the_reading(listening):
    """An attempt may be cancelled, or give up waiting, while its checkpoint is on its way."""
    wire = listening
    saving = asyncio.ensure_future(asyncio.wrap_future(wire.channel.save(5, 1, "1", again=False)))
    saving.cancel()
    await asyncio.wait([saving])
    wire.tell(Saved(1, "accepted"))
    wire.tell(Stop(5, "cancel"))
    assert wire.heard.get(timeout=SECONDS) == Stop(5, "cancel")


def test_a_signal_handler_may_send_in_the_middle_of_a_send(listening):
    """Of the same thread: it cannot wait for the end of that."""
    wire = listening
    lines = call_at_each_line(
        lambda: wire.channel.send(Reported(1, Progress(message="task"))),
        lambda: wire.channel.send(Reported(2, Progress(message="handler"))),
    )
    frames = [wire.told() for _ in range(2 * lines + 1)]
    tokens = Counter(frame.token for frame in frames if isinstance(frame, Reported))
    assert lines > 5
    assert tokens == {1: lines + 1, 2: lines}


def test_a_signal_handler_may_save_in_the_middle_of_a_save(listening):
    wire = listening
    lines = call_at_each_line(
        lambda: wire.channel.save(token=1, number=1, value="1", again=False),
        lambda: wire.channel.save(token=2, number=1, value="2", again=False),
    )
    frames = [wire.told() for _ in range(2 * lines + 1)]
    numbers = {frame.seq for frame in frames if isinstance(frame, SaveRequest)}
    assert len(numbers) == 2 * lines + 1


def test_a_forked_child_can_neither_save_nor_report(listening, monkeypatch):
    """It shares the socket: its frames would mix with those of the runner, whose thread reads the
    answers, so that a save in the child never returned."""
    says = "a child process of the task cannot save or report"
    with monkeypatch.context() as child:
        child.setattr(forks, "generation", forks.generation + 1)
        with pytest.raises(UsageError, match=says):
            listening.channel.save(1, 1, "3", again=False)
        with pytest.raises(UsageError, match=says):
            listening.channel.send(REPORT)
    listening.channel.save(1, 2, "4", again=False)
    assert listening.told() == SaveRequest(2, 1, 2, "4"), "of the child nothing was sent"


def test_an_answer_without_a_waiter_is_ignored(listening):
    wire = listening
    wire.tell(Saved(77, "accepted"))
    wire.tell(Quit())
    assert wire.heard.get(timeout=SECONDS) == Quit()


def test_the_end_of_the_socket_ends_the_runner(listening, ended):
    listening.worker.shutdown(socket.SHUT_RDWR)
    assert ended.get(timeout=SECONDS) == 1
    ended.put(1)


def test_a_frame_that_cannot_be_read_ends_the_runner(listening, ended, capsys):
    listening.worker.sendall(b"\x00\x00\x00\x01\xc1")
    assert ended.get(timeout=SECONDS) == 1
    assert "cannot be read" in capsys.readouterr().err
    ended.put(1)


def test_a_runner_whose_task_has_closed_the_socket_says_why_it_ends(ended, capsys):
    """The report had only a SIGKILL, as if memory had run out."""
    for each in (pair := socket.socketpair()):
        each.close()
    Channel(pair[0]).send(REPORT)
    assert ended.get(timeout=SECONDS) == 1
    assert capsys.readouterr().err.endswith("written: [Errno 9] Bad file descriptor\n")


def test_each_error_while_reading_ends_the_runner(wire, ended):
    """A live runner that reads nothing would hold its attempts forever."""

    def fails(frame: ToRunner) -> None:
        raise RuntimeError("the loop is closed")

    wire.channel.start(fails)
    wire.tell(Quit())
    assert ended.get(timeout=SECONDS) == 1
    ended.put(1)


def test_a_runner_whose_stderr_is_closed_ends_as_well(listening, ended, monkeypatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    listening.worker.sendall(b"\x00\x00\x00\x01\xc1")
    assert ended.get(timeout=SECONDS) == 1
    ended.put(1)


def test_a_runner_out_of_descriptors_kills_its_own_group(monkeypatch):
    killed: list[int] = []

    def fails(_: object) -> set[int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(module, "groups_of", fails)
    monkeypatch.setattr(module, "kill_group", killed.append)
    module.end_with_worker()
    assert killed == [os.getpgrp()]


COMPLETED = Outcome(kind=OutcomeKind.COMPLETED)


async def test_an_end_that_cannot_be_packed_is_still_reported(wire, settings, monkeypatch):
    """As if the application has used up its memory limit."""

    def packed(frame: ToWorker) -> bytes:
        if isinstance(frame, AttemptsEnded) and any(end.outcome.result for end in frame.ends):
            raise MemoryError
        return pack(frame)

    monkeypatch.setattr(module, "pack", packed)
    wire.listen()
    link = WorkerLink(wire.channel, settings, SYSTEM)
    link.report_end(End(1, Outcome(kind=OutcomeKind.COMPLETED, result="large")))
    link.report_end(End(2, COMPLETED))
    await asyncio.sleep(0)
    first, second = wire.told(), wire.told()
    assert isinstance(first, AttemptsEnded)
    assert [end.token for end in first.ends] == [1]
    crash = first.ends[0].outcome.crash
    assert crash is not None
    assert crash.kind is CrashKind.REJECTED_RESULT
    assert second == AttemptsEnded([End(2, COMPLETED)])


async def test_output_that_cannot_be_flushed_does_not_block_the_end(wire, settings, monkeypatch):
    """As if a task had replaced its stdout by a pipe that is not read."""
    read, write = os.pipe()
    stream = Tagged(write, lambda: 1)
    stream.write(b"half a line")
    os.close(read)
    monkeypatch.setattr(printing, "_streams", [stream])
    wire.listen()
    link = WorkerLink(wire.channel, settings, SYSTEM)
    link.report_end(End(1, COMPLETED))
    await asyncio.sleep(0)
    assert wire.told() == AttemptsEnded([End(1, COMPLETED)])
    os.close(write)


async def test_an_attempt_that_is_cancelled_with_the_loop_reports_no_end(wire, settings):
    """The loop's end cancels all tasks in no order: an attempt may hear of it first."""
    wire.listen()
    links: list[WorkerLink] = []

    async def serve() -> None:
        links.append(WorkerLink(wire.channel, settings, SYSTEM))
        await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await asyncio.sleep(0)
    links[0].report_end(End(1, COMPLETED))
    assert links[0].send_ends()
    serving.cancel()
    links[0].report_end(End(2, COMPLETED), is_last=True)
    assert not links[0].send_ends(), "so that no other attempt begins"
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    wire.channel.send(REPORT)
    assert wire.told() == AttemptsEnded([End(1, COMPLETED)])
    assert wire.told() == REPORT


async def test_a_link_that_was_closed_tells_no_end(wire, settings):
    """A group of tasks in the lifespan takes the cancellation of the task that serves back."""
    wire.listen()
    link = WorkerLink(wire.channel, settings, SYSTEM)
    link.close()
    link.report_end(End(1, COMPLETED), is_last=True)
    assert not link.send_ends()
    wire.channel.send(REPORT)
    assert wire.told() == REPORT
