"""The output of runners, cut into lines: separate for each runner, whole, and bounded."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from outlast.worker.runners.output import PASSED_BYTES_MAX, QUEUE_BYTES_MAX, JobName, Lines, Output
from outlast.worker.runners.process import READ_BYTES
from tests.waiting import until


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


def test_output_that_is_not_read_is_held_up_to_a_number_of_bytes():
    reads, writes = os.pipe()
    os.set_blocking(writes, False)  # as another process may do to a terminal
    chunk = b"x" * READ_BYTES
    with closing(Output(writes)) as output:
        for _ in range(2 * QUEUE_BYTES_MAX // READ_BYTES):
            output.write(1, chunk)
        assert output.dropped >= QUEUE_BYTES_MAX // READ_BYTES
        size = (2 * QUEUE_BYTES_MAX // READ_BYTES - output.dropped) * READ_BYTES
        while size:
            size -= len(os.read(reads, size))
        while output.dropped:  # there is space again
            output.dropped = 0
            output.write(1, b"last\n")
        assert os.read(reads, 10) == b"last\n"
    os.close(reads)
    os.close(writes)


def test_output_is_written_again_after_a_time_in_which_it_could_not_be(tmp_path: Path):
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writes = os.open(pipe, os.O_WRONLY)
    os.close(reader)
    with closing(Output(writes)) as output:
        output.write(1, b"lost\n")
        until(lambda: output.dropped, "the loss of a chunk")
        with pipe.open("rb") as stream:
            output.write(1, b"read\n")
            assert stream.readline() == b"read\n"
    os.close(writes)


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
