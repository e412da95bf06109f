"""Frames between a worker and a runner, in both directions, read by the production code."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import socket
import threading
from collections.abc import Iterable
from typing import Any, get_args
from unittest import mock

import msgspec
from hypothesis import strategies as st

from outlast.errors import StoreUnavailable
from outlast.runner import channel as runner
from outlast.runner.channel import Channel
from outlast.runner.protocol import (
    FRAME_MAX,
    PREFIX_BYTES,
    Configure,
    FrameError,
    Ping,
    Pong,
    Quit,
    Run,
    RunnerSettings,
    Saved,
    Stop,
    ToRunner,
    ToWorker,
    pack,
)
from outlast.store.values import StepFound
from outlast.worker.runners.process import Death, Pipe, RunnerOwner, RunnerProcess
from tests.fuzz.kit import SECONDS, Fuzzer, json_values, quiet
from tests.manual_clock import ManualClock
from tests.unit.worker.runners.pool_kit import Bench, shared
from tests.unit.worker.runners.test_hostile_runner import busy, frames, numbers, texts
from tests.unit.worker.worker_kit import claimed

LENGTHS = [0, 1, 2, 3, 100, FRAME_MAX, FRAME_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1]
# msgpack that names a size, or a depth, that does not follow
HEADS = [
    *(bytes([kind]) + b"\xff" * 4 for kind in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF)),
    *(bytes([kind]) + b"\x0f\xff\xff\xff" for kind in (0xC6, 0xDB, 0xDD, 0xDF)),
    b"\x91" * 30_000,
    b"\x81\xa1a" * 20_000,
    b"\xc1",
]
TAGS = [frame.__name__ for frame in (*get_args(ToRunner), *get_args(ToWorker))]
SETTINGS = RunnerSettings(app="a:b", stacks=-1, concurrency=1, store_id="", url="sqlite:///x.db")


def _is_packable(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return False
    return True


attempts = st.builds(
    claimed,
    st.integers(0, 2**64 - 1),
    task=texts,
    args=texts,
    number=numbers,
    checkpoint=st.none() | texts,
    malformed=st.none() | texts,
)
to_runner: st.SearchStrategy[ToRunner] = st.one_of(
    st.builds(Run, numbers, st.lists(attempts, max_size=3)),
    st.builds(Stop, numbers, texts),
    st.builds(Saved, st.integers(-1, 3), texts),
    st.builds(Ping, numbers),
    st.just(Quit()),
    st.builds(Configure, st.builds(msgspec.structs.replace, st.just(SETTINGS), app=texts)),
)
odd_bodies = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(HEADS),
    st.builds(
        lambda tag, rest: msgspec.msgpack.encode([tag, *rest]),
        st.sampled_from(TAGS),
        st.lists(json_values.filter(_is_packable), max_size=4),
    ),
    st.builds(
        lambda tag, head: b"\x94" + msgspec.msgpack.encode(tag) + head,
        st.sampled_from(TAGS),
        st.sampled_from(HEADS),
    ),
)


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


@st.composite
def streams(draw: st.DrawFn, sound: st.SearchStrategy[Any]) -> list[bytes]:
    """A few frames, most of them sound: damaged, doubled, in any order; cut up anywhere."""
    whole = st.builds(pack, sound)
    one = st.one_of(whole, whole, whole, st.builds(_framed, odd_bodies))
    pieces = draw(st.lists(one, max_size=5))
    for _ in range(draw(st.integers(0, 3)) if pieces else 0):
        at = draw(st.integers(0, len(pieces) - 1))
        pieces[at] = _damaged(draw, pieces[at])
    if draw(st.booleans()):
        pieces = draw(st.permutations(pieces))
    data = b"".join(pieces)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=5)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _damaged(draw: st.DrawFn, piece: bytes) -> bytes:
    at = draw(st.integers(0, max(0, len(piece) - 1)))
    how = draw(st.sampled_from(["flip", "cut", "double", "length", "insert"]))
    if how == "flip" and piece:
        return piece[:at] + bytes([piece[at] ^ draw(st.integers(1, 255))]) + piece[at + 1 :]
    if how == "cut":
        return piece[:at]
    if how == "double":
        return piece * 2
    if how == "length":
        return draw(st.sampled_from(LENGTHS)).to_bytes(PREFIX_BYTES, "big") + piece[PREFIX_BYTES:]
    return piece[:at] + draw(st.binary(max_size=5) | st.sampled_from(HEADS)) + piece[at:]


# --- what a worker reads


class Reader(RunnerProcess):
    """The worker's end of a runner that has no process; what it says is said by ``fake``."""

    def __init__(self, fake: Any) -> None:
        self.heard: list[ToWorker] = []
        self._fake = fake
        owner = RunnerOwner(self.take_frames, self.take_death, self.fail)
        super().__init__(SETTINGS, owner, clock=ManualClock(boot=0.0), output=lambda *_: None)
        read, self._write = os.pipe()
        self._output = Pipe(read, lambda data: None)

    def take_frames(self, _: RunnerProcess, frames: Iterable[ToWorker]) -> None:
        """Have the fake runner say them."""
        for frame in frames:
            self.heard.append(frame)
            self._fake.says(frame)

    def take_death(self, runner: RunnerProcess, death: Death) -> None:
        """It has no process, so it does not die."""

    def fail(self, error: BaseException) -> None:
        """Nor can this happen."""

    def kill(self, reason: str | None = None) -> None:
        """Note why."""
        self.note_kill_reason(reason)

    def close(self) -> None:
        """Close its pipe."""
        self._output.close()
        os.close(self._write)


def a_worker_reads(chunks: list[bytes]) -> None:
    """Each attempt keeps its one end; after a bad frame no other is read, and the runner ends."""
    asyncio.run(_a_worker_reads(chunks))


async def _a_worker_reads(chunks: list[bytes]) -> None:
    bench = await Bench().ready()
    bench.place(shared(1), shared(2), shared(3), shared(4))
    fake = busy(bench)
    held, others = bench.in_flight.held(), bench.in_flight.held() - fake.tokens
    reader = Reader(fake)
    for chunk in chunks:
        reader._on_data(chunk)
        assert len(reader._unpacker._buffer) <= sum(map(len, chunks))
        bench.pool.starter.make_requests(0)
        bench.pool.control.look_at_loops([])
    _is_as_told(reader, reader.heard)
    reader.close()
    assert bench.in_flight.held() == held
    assert others <= set(bench.in_flight.running), "of another runner"
    fake.dies(signal="SIGKILL")
    assert sorted(each.token for each in bench.ends()) == sorted(held - others)


def _is_as_told(reader: Reader, heard: list[ToWorker]) -> None:
    count = len(heard)
    waits = bool(reader._unpacker._buffer)
    reader._on_data(b"" if waits else pack(Pong(7)))
    if reader._complaint is None:
        assert waits or heard[count:] == [Pong(7)]
        assert reader.kill_reason is None
        return
    assert len(heard) == count, "after a bad frame nothing can be trusted"
    assert reader.kill_reason == "bad_frame"
    assert not re.match(r"[A-Z]\w*\(", reader._complaint), f"not a FrameError: {reader._complaint}"


# --- what a runner reads


def a_runner_reads(chunks: list[bytes]) -> None:
    """It ends with the worker's end of the socket, and reads only frames until then."""
    worker, own = socket.socketpair()
    ended: queue.Queue[None] = queue.Queue()
    heard: list[ToRunner] = []

    def end() -> None:
        own.shutdown(socket.SHUT_RDWR)  # what is still being sent must not wait
        ended.put(None)

    patch = mock.patch.object(runner, "end_with_worker", end)
    patch.start()  # stopped only after its thread has ended, which would end this process
    with worker, own, quiet():
        channel = Channel(own)
        waiting = channel.save(1, 1, "1", again=False)
        channel.start(heard.append)
        worker.settimeout(SECONDS)
        _send(worker, [pack(Ping(7)), *chunks])
        ended.get(timeout=SECONDS)
    patch.stop()
    assert heard[0] == Ping(7)
    assert all(isinstance(frame, ToRunner) and not isinstance(frame, Saved) for frame in heard)
    if waiting.done() and not isinstance(waiting.exception(), StoreUnavailable):
        assert isinstance(waiting.result(), StepFound)


def a_runner_is_configured(chunks: list[bytes]) -> None:
    """Its settings, or FrameError; of what comes after the first frame nothing is read."""
    worker, own = socket.socketpair()
    data = b"".join(chunks)
    worker.settimeout(SECONDS)
    own.settimeout(SECONDS)
    sender = threading.Thread(target=_send, args=(worker, [data]))
    sender.start()
    try:
        with mock.patch.object(runner, "end_with_worker") as gone:
            settings = Channel(own).read_settings()
        assert isinstance(settings, RunnerSettings)
        size = int.from_bytes(data[:PREFIX_BYTES], "big")
        assert _rest(own) == data[PREFIX_BYTES + size :]
    except FrameError:
        assert gone.call_count <= 1
    finally:
        own.close()
        sender.join()
        worker.close()


def _send(sock: socket.socket, chunks: list[bytes]) -> None:
    try:
        for chunk in chunks:
            sock.sendall(chunk)
        sock.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        return


def _rest(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


FUZZERS = [
    Fuzzer("frames to a worker", streams(frames), a_worker_reads, few=60),
    Fuzzer("frames to a runner", streams(to_runner), a_runner_reads, few=60),
    Fuzzer("settings of a runner", streams(to_runner), a_runner_is_configured, few=25),
]
