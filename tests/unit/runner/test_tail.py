"""The last lines of a stream, for any chunks."""

from __future__ import annotations

import pytest

from outlast.model.crash import OUTPUT_LINES_MAX
from outlast.runner.tail import LINE_BYTES_MAX, Tail


def tail_of(*chunks: bytes) -> list[str]:
    tail = Tail()
    for chunk in chunks:
        tail.add(chunk)
    return tail.lines()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"a"], ["a"]),
        ([b"a\n"], ["a"]),
        ([b"a\n\nb"], ["a", "", "b"]),
        ([b"one li", b"ne\ntw", b"o\n"], ["one line", "two"]),
        ([b"\r 1%", b"\r 2%", b"\r100%\n"], ["100%"]),
        ([b" 1%\r", b" 2%\r"], [" 2%"]),
        ([b"windows\r\n"], ["windows"]),
        ([b"\r\r\n"], [""]),
        ([b"\xff\xfeodd\n"], ["\ufffd\ufffdodd"]),
    ],
)
def test_lines_are_joined_from_any_pieces(chunks, lines):
    assert tail_of(*chunks) == lines


def test_the_last_lines_are_kept_of_many_in_one_chunk_or_in_several():
    last = [str(number) for number in range(1000)][-OUTPUT_LINES_MAX:]
    text = b"".join(b"%d\n" % number for number in range(1000))
    assert tail_of(text) == last
    assert tail_of(*(text[at : at + 7] for at in range(0, len(text), 7))) == last
    assert tail_of(text, b"more") == [*last[1:], "more"]


def test_an_endless_line_is_kept_up_to_a_limit():
    tail = Tail()
    for _ in range(100):
        tail.add(b"x" * LINE_BYTES_MAX)
    assert len(tail.partial) == LINE_BYTES_MAX
    tail.add(b"end\n")
    assert tail.lines()[0].endswith("xend")
    assert len(tail.lines()[0]) == LINE_BYTES_MAX
