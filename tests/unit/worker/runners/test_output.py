"""The output of runners, cut into lines: separate for each runner, whole, and bounded."""

from __future__ import annotations

from outlast.worker.runners.output import PASSED_BYTES_MAX, JobName, Lines


def find_no_job(token: int) -> None:
    """No token is known."""


def test_lines_are_assembled_for_each_runner_separately():
    told: list[tuple[int, str]] = []
    lines = Lines(lambda pid, text, _: told.append((pid, text)), find_no_job)
    lines.write(1, b"one half")
    lines.write(2, b"other\nrest of ")
    lines.write(1, b", other half\n\n\xff")
    lines.write(2, b"2\n")
    assert told == [(2, "other"), (1, "one half, other half"), (1, ""), (2, "rest of 2")]
    lines.write(1, b"\n")
    assert told[-1] == (1, "\ufffd")


def test_a_line_without_an_end_comes_in_pieces():
    told: list[str] = []
    lines = Lines(lambda _pid, text, _job: told.append(text), find_no_job)
    for _ in range(3):
        lines.write(1, b"x" * PASSED_BYTES_MAX)
    lines.write(1, b"\n")
    assert told == ["x" * PASSED_BYTES_MAX] * 3


def test_a_line_has_its_job_where_that_is_known():
    told: list[tuple[str, JobName | None]] = []
    lines = Lines(lambda _pid, text, job: told.append((text, job)), {7: (70, "mail")}.get)
    lines.write(1, b"half of ", 7)
    lines.write(1, b"unattributed\n")
    lines.write(1, b"its line\n", 7)
    lines.write(1, b"of an attempt that has ended\n", 8)
    assert told == [
        ("unattributed", None),
        ("half of its line", (70, "mail")),
        ("of an attempt that has ended", None),
    ]
