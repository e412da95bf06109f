"""Frames: any split of the bytes gives the same messages, and a bad frame ends the reading."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import Policy
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner import protocol
from outlast.runner.protocol import (
    BATCH_BYTES,
    TO_RUNNER,
    TO_WORKER,
    ApplicationFailed,
    AttemptsEnded,
    End,
    FrameError,
    Hello,
    Quit,
    Reported,
    Run,
    Saved,
    SaveRequest,
    Stop,
    TaskInfo,
    ToRunner,
    ToWorker,
    Unpacker,
    in_batches,
    pack,
)
from outlast.store.values import Claimed
from outlast.worker.claims.in_flight import size_of_claimed
from tests.cases import each_case


def claimed(token: int = 1, args: str = "{}", checkpoint: str | None = None) -> Claimed:
    return Claimed(
        job_id=token,
        token=token,
        task="t",
        queue="q",
        args=args,
        number=1,
        failures=0,
        losses=0,
        policy=Policy(retries=1, timeout=3.5),
        checkpoint=checkpoint,
    )


CRASH = Crash(kind=CrashKind.ERROR, message="boom", output=["a", "b"], progress=Progress(0.5))
TO_RUNNER_FRAMES: list[ToRunner] = [
    Run(7, [claimed(1), claimed(2, '{"a":"ü"}', "[1]")]),
    Stop(2, "cancel"),
    Saved(1, "accepted"),
    Quit(),
]
TO_WORKER_FRAMES: list[ToWorker] = [
    Hello([TaskInfo("t", own_runner=True, requires=["gpu"])], None, "3.11"),
    ApplicationFailed("no module", ""),
    AttemptsEnded(
        [
            End(1, Outcome(kind=OutcomeKind.CRASHED, crash=CRASH)),
            End(2, Outcome(kind=OutcomeKind.COMPLETED, result="null"), completed_in=True),
        ]
    ),
    SaveRequest(1, 2, 3, '{"commit":400}'),
    Reported(2, Progress(fraction=0.1, stage="s", message="m")),
]


def raw(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


# ------------------------------------------------------------------------------ the stream


@given(st.lists(st.sampled_from(TO_RUNNER_FRAMES), max_size=8), st.data())
def test_frames_survive_any_split_of_their_bytes(frames, data):
    stream = b"".join(pack(frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    unpacker = Unpacker(TO_RUNNER)
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [frame for piece in pieces for frame in unpacker.feed(piece)] == frames


def test_frames_survive_byte_by_byte_in_both_directions():
    down, up = Unpacker(TO_RUNNER), Unpacker(TO_WORKER)
    stream = b"".join(pack(frame) for frame in TO_RUNNER_FRAMES)
    assert [f for byte in stream for f in down.feed(bytes([byte]))] == TO_RUNNER_FRAMES
    stream = b"".join(pack(frame) for frame in TO_WORKER_FRAMES)
    assert [f for byte in stream for f in up.feed(bytes([byte]))] == TO_WORKER_FRAMES


def test_half_a_frame_gives_nothing_until_the_rest_is_there():
    data = pack(Quit())
    unpacker = Unpacker(TO_RUNNER)
    assert list(unpacker.feed(data[:-1])) == []
    assert list(unpacker.feed(data[-1:])) == [Quit()]
    assert list(unpacker.feed(b"")) == []


def test_read_frames_are_not_kept():
    unpacker = Unpacker(TO_RUNNER)
    for _ in range(100):
        list(unpacker.feed(pack(Stop(1, "x" * 1000))))
    assert len(unpacker._buffer) == 0


def test_a_reader_that_stops_early_reads_the_rest_next_time():
    unpacker = Unpacker(TO_RUNNER)
    first = unpacker.feed(pack(Stop(1, "a")) + pack(Stop(2, "b")))
    assert next(first) == Stop(1, "a")
    del first
    assert list(unpacker.feed(b"")) == [Stop(2, "b")]


# ----------------------------------------------------------------------------- bad frames

MALFORMED = {
    "no msgpack": b"\xc1",
    "cut off": msgspec.msgpack.encode(["Stop", 1]),
    "no tag": msgspec.msgpack.encode([1, 2]),
    "no array": msgspec.msgpack.encode({"a": 1}),
    "nothing": b"",
    "an unknown tag": msgspec.msgpack.encode(["Explode", 1]),
    "of the other direction": pack(ApplicationFailed("a", "b"))[4:],
    "a wrong type": msgspec.msgpack.encode(["Stop", "one", "cancel"]),
    "more than one": msgspec.msgpack.encode(["Quit"]) * 2,
    "a lone surrogate": b"\x93\xa4Stop\x01\xa3\xed\xa0\x80",
    "too deep": b"\x94\xa4Stop\x01\xa1x" + b"\x91" * 100_000 + b"\x01",
}


@each_case("body", MALFORMED.values())
def test_a_malformed_frame_is_a_frame_error(body):
    with pytest.raises(FrameError, match="malformed"):
        list(Unpacker(TO_RUNNER).feed(raw(body)))


def test_the_frames_before_a_bad_one_are_still_read():
    frames = Unpacker(TO_RUNNER).feed(pack(Quit()) + raw(b"\xc1"))
    assert next(frames) == Quit()
    with pytest.raises(FrameError):
        next(frames)


def test_an_oversized_frame_is_refused_by_its_prefix_before_it_is_read():
    with pytest.raises(FrameError, match="above the limit"):
        list(Unpacker(TO_RUNNER, limit=100).feed((101).to_bytes(4, "big")))


def test_a_frame_of_just_the_limit_is_read():
    data = pack(Stop(1, "x" * 50))
    assert list(Unpacker(TO_RUNNER, limit=len(data) - 4).feed(data)) == [Stop(1, "x" * 50)]


def test_a_frame_above_the_limit_is_not_sent(monkeypatch):
    monkeypatch.setattr(protocol, "FRAME_MAX", 100)
    with pytest.raises(FrameError, match="above the limit of 100"):
        pack(Stop(1, "x" * 100))


# -------------------------------------------------------------------------------- batches

sizes = st.lists(st.integers(0, BATCH_BYTES + 1000) | st.integers(0, 100), max_size=12)


@given(sizes)
def test_batches_keep_the_order_and_lose_nothing_and_are_small_or_single(weights):
    attempts = [claimed(n, "x" * weight) for n, weight in enumerate(weights)]
    batches = list(in_batches(attempts))
    assert [each for batch in batches for each in batch] == attempts
    for batch in batches:
        assert len(batch) == 1 or sum(len(each.args) for each in batch) <= BATCH_BYTES


def test_small_attempts_go_together_and_checkpoints_count():
    small = [claimed(n) for n in range(500)]
    assert list(in_batches(small)) == [small]
    large = [claimed(n, checkpoint="x" * (BATCH_BYTES - 10)) for n in range(3)]
    assert list(in_batches(large)) == [[each] for each in large]
    assert list(in_batches([])) == []


def test_a_frame_is_closed_above_its_bytes_by_all_that_can_be_large():
    """A field that is counted in no bound of bytes takes the other jobs of its frame with it."""
    part = "x" * (BATCH_BYTES // 2 + 10)
    for fields in ({"args": part}, {"checkpoint": part}, {"results": (None, part)}):
        large = [msgspec.structs.replace(claimed(n), **fields) for n in range(3)]
        assert list(in_batches(large)) == [[each] for each in large]
        assert size_of_claimed(large) >= 3 * len(part)
