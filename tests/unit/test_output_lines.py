"""What runners write, cut into lines: each runner's own, whole, and none without bound."""

from __future__ import annotations

from outlast.worker.output import LINE_BYTES_MAX, Lines


def test_each_runner_s_lines_are_put_together_apart():
    told: list[tuple[int, str]] = []
    lines = Lines(lambda pid, text: told.append((pid, text)))
    lines.write(1, b"one half")
    lines.write(2, b"other\nrest of ")
    lines.write(1, b", other half\n\n\xff")
    lines.write(2, b"2\n")
    assert told == [(2, "other"), (1, "one half, other half"), (1, ""), (2, "rest of 2")]
    lines.write(1, b"\n")
    assert told[-1] == (1, "\ufffd")


def test_a_line_without_an_end_comes_in_pieces():
    told: list[str] = []
    lines = Lines(lambda _, text: told.append(text))
    for _ in range(3):
        lines.write(1, b"x" * LINE_BYTES_MAX)
    assert told == ["x" * LINE_BYTES_MAX * 2]
