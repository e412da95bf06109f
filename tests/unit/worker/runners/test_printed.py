"""The attempt of a line of output: by the token in the line, or because it was alone."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.crash import OUTPUT_LINES_MAX
from outlast.runner.printing import HEAD, PIECE_MAX, Tagged
from outlast.worker.runners.output import NOT_KNOWN, Printed
from tests.manual_clock import ManualClock
from tests.unit.interruptions_kit import call_at_each_line


class Pipe:
    """A runner's end of the pipe, with the streams on it, and what comes out."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.token: int | None = None
        self.stream = Tagged(self.write, lambda: self.token)

    def say(self, token: int | None, data: bytes) -> None:
        self.token = token
        self.stream.write(data)

    def came(self) -> bytes:
        try:
            return os.read(self.read, 1 << 16)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.read)
    os.close(made.write)


@pytest.fixture
def tokens() -> set[int]:
    return {7, 8}


@pytest.fixture
def printed(tokens: set[int]) -> Printed:
    return Printed(lambda: tokens, ManualClock(boot=100.0))


def taken(printed: Printed, data: bytes) -> list[tuple[int | None, bytes]]:
    return list(printed.take(data))


def test_lines_of_attempts_that_share_a_runner_are_told_apart(pipe, printed):
    pipe.say(7, b"half of ")
    pipe.say(8, b"one of 8\n")
    pipe.say(7, b"one of 7\nand ")
    assert taken(printed, pipe.came()) == [(8, b"one of 8\n"), (7, b"half of one of 7\n")]
    pipe.stream.flush()
    assert taken(printed, pipe.came()) == [(7, b"and ")]
    assert printed.lines_of(7, since=0.0) == ["half of one of 7", "and "]
    assert printed.lines_of(8, since=0.0) == ["one of 8"]


def test_output_that_bypasses_python_is_of_the_only_attempt(printed, tokens):
    tokens.discard(8)
    assert taken(printed, b"raw\n") == [(7, b"raw\n")]
    assert printed.lines_of(7, since=0.0) == ["raw"]


def test_output_beside_other_attempts_is_reported_as_unattributed(pipe, printed):
    pipe.say(7, b"its own\n")
    taken(printed, pipe.came())
    assert taken(printed, b"raw\n") == [(None, b"raw\n")]
    assert printed.lines_of(7, since=0.0) == ["its own", NOT_KNOWN, "raw"]
    assert printed.lines_of(8, since=0.0) == [NOT_KNOWN, "raw"]
    assert printed.lines_of(8, since=101.0) == [], "the line is older than that attempt"


def test_a_report_keeps_lines_of_both_kinds_within_its_limit(pipe, printed):
    for number in range(80):
        pipe.say(7, b"own %d\n" % number)
    taken(printed, pipe.came())
    taken(printed, b"".join(b"raw %d\n" % number for number in range(80)))
    lines = printed.lines_of(7, since=0.0)
    assert len(lines) == OUTPUT_LINES_MAX
    at = lines.index(NOT_KNOWN)
    assert (lines[at - 1], lines[-1]) == ("own 79", "raw 79")
    assert at == OUTPUT_LINES_MAX // 2


def test_output_of_an_ended_attempts_thread_is_no_other_attempts(pipe, printed, tokens):
    tokens -= {8}
    pipe.say(8, b"late\n")
    assert taken(printed, pipe.came()) == [(None, b"late\n")]
    assert printed.lines_of(7, since=0.0) == []


def test_an_ended_attempt_is_forgotten_and_its_last_line_terminated(pipe, printed):
    pipe.say(7, b"no end")
    pipe.say(8, b"an end\n")
    pipe.stream.flush()
    taken(printed, pipe.came())
    assert printed.forget([7, 8, 9]) == [7]
    assert printed.lines_of(7, since=0.0) == []


def test_a_long_line_is_written_in_atomic_pieces(pipe, printed):
    line = b"x" * (3 * PIECE_MAX) + b"\n"
    pipe.say(7, line)
    data = pipe.came()
    assert data.count(b"\x1eoutlast") == 4
    assert len(HEAD % (2**63 - 1, PIECE_MAX)) + PIECE_MAX <= 4096
    assert b"".join(text for _, text in taken(printed, data)) == line


def test_a_signal_handler_may_print_in_the_middle_of_a_print(pipe, printed):
    """Of the same thread: it cannot wait for the end of that, and nothing of either is lost."""
    pipe.token = 7
    lines = call_at_each_line(lambda: pipe.stream.write(b"t.\nt"), lambda: pipe.stream.write(b"h"))
    pipe.stream.flush()
    text = b"".join(text for _, text in taken(printed, pipe.came()))
    assert lines > 5
    assert (text.count(b"t"), text.count(b"h")) == (2 * (lines + 1), lines)


def test_without_an_attempt_bytes_are_written_unchanged(pipe):
    pipe.say(None, b"of the application")
    assert pipe.came() == b"of the application"


def test_no_head_is_written_to_a_redirected_descriptor(tmp_path, pipe):
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    os.dup2(file, pipe.write)
    os.close(file)
    pipe.say(7, b"line\n")
    assert (tmp_path / "file").read_bytes() == b"line\n"


def test_a_task_that_closes_the_stream_does_not_close_it_for_others(pipe, printed):
    text = io.TextIOWrapper(pipe.stream, "utf-8", write_through=True)
    pipe.token = 7
    text.write("no end")
    text.close()
    pipe.token = 8
    text.write("next\n")
    assert taken(printed, pipe.came()) == [(7, b"no end"), (8, b"next\n")]


@given(
    st.lists(st.tuples(st.sampled_from([None, 7, 8]), st.binary(max_size=300)), max_size=20),
    st.integers(1, 50),
)
def test_output_split_anywhere_is_complete_and_attributed(said, size):
    """Also of bytes that look like a head none is lost."""
    wire = b"".join(
        data if token is None else HEAD % (token, len(data)) + data for token, data in said
    )
    printed = Printed(lambda: {7, 8}, ManualClock(boot=0.0))
    parts = [
        part for at in range(0, len(wire), size) for part in printed.take(wire[at : at + size])
    ]
    for token in (7, 8):
        spoken = b"".join(data for whose, data in said if whose == token)
        heard = b"".join(text for whose, text in parts if whose == token)
        assert heard == spoken
