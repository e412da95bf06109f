"""The last lines of a stream, for any chunks."""

from __future__ import annotations

from outlast.model.crash import OUTPUT_LINES_MAX, Crash, CrashKind, bound, hiding, redact
from outlast.runner.tail import LINE_BYTES_MAX, Tail
from tests.cases import each_case


def tail_of(*chunks: bytes) -> list[str]:
    tail = Tail()
    for chunk in chunks:
        tail.add(chunk)
    return tail.lines()


@each_case(
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


SECRET = "4111222233334444"
HIDE = hiding([r"\d{16}", r"token=\S+"])


@each_case(
    ("head", "filler", "foot"),
    [
        (f"note {SECRET} token=", "T", ""),
        (f"note {SECRET} ", "\N{GRINNING FACE}", "x" * 8),
        (f"{SECRET}\r", " ", ""),
        (f"{SECRET}\rtoken=", "T", "\r  "),
    ],
)
@each_case("end", [b"\n", b"\r\n", b""])
@each_case("size", [4_000, 100_000])
def test_a_report_holds_no_piece_of_a_secret_that_a_cut_went_through(head, filler, foot, end, size):
    least = (LINE_BYTES_MAX - len(head) - len(foot)) // len(filler.encode()) - 2
    for count in range(least, least + len(SECRET) + 8):
        data = f"{head}{filler * count}{foot}".encode() + end
        tail = tail_of(*(data[at : at + size] for at in range(0, len(data), size)))
        (shown,) = bound(redact(Crash(kind=CrashKind.ERROR, output=tail), HIDE)).output
        pieces = [SECRET[at : at + 5] for at in range(len(SECRET) - 4)]
        assert not [piece for piece in pieces if piece in shown]


def test_of_a_line_that_was_cut_its_end_is_reported():
    line = b"x" * 9_000 + b" token=abc the end"
    report = Crash(kind=CrashKind.ERROR, output=tail_of(line + b"\r\n"))
    (shown,) = bound(redact(report, HIDE)).output
    assert shown.endswith("xx [redacted] the end")
    assert len(shown) > 1_900
