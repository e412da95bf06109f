"""The worker's log writer: it never blocks, and reports how much it had to drop."""

from __future__ import annotations

import os
import re
import select
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from outlast.cli import logs
from outlast.cli.logs import GATHER_SECONDS, OUTPUT_BYTES_MAX, ROUTINE_MAX, LogWriter, Thinned
from outlast.worker.runners.process import READ_BYTES
from tests.manual_clock import ManualClock
from tests.waiting import until


def rendered(entry: object) -> str:
    return str(entry["event"] if isinstance(entry, dict) else entry)


def with_entries(entry: Mapping[str, object]) -> str:
    return f"{entry['event']} {entry.get('entries', '')}"


def all_of(fd: int) -> str:
    with os.fdopen(fd, "rb") as stream:
        return stream.read().decode()


def test_entries_are_written_in_order() -> None:
    read, write = os.pipe()
    writer = LogWriter(rendered, write)
    for number in range(100):
        writer.put({"event": f"event {number}"})
    writer.put("a text as it stands\n")
    wanted = [*(f"event {number}\n" for number in range(100)), "a text as it stands\n"]
    with os.fdopen(read) as stream:
        assert [stream.readline() for _ in wanted] == wanted
    writer.close(seconds=60)
    os.close(write)
    assert not writer._thread.is_alive(), "it waits for an entry that never comes"


def test_a_full_pipe_drops_entries_and_never_blocks() -> None:
    read, write = os.pipe()
    writer = LogWriter(rendered, write, most=10)
    for _ in range(200):
        writer.put({"event": "x" * 4096})  # a pipe takes 64 KiB
    assert writer.dropped > 0
    writer.close(seconds=0.05)
    os.close(read)
    os.close(write)


def test_the_number_of_dropped_entries_is_logged_later() -> None:
    read, write = os.pipe()
    writer = LogWriter(with_entries, write, most=10)
    for _ in range(200):
        writer.put({"event": "x" * 4096})
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(all_of(read)))
    reader.start()
    writer.close(seconds=60)
    os.close(write)
    reader.join(60)
    assert writer.dropped == 0
    told = [line.split() for line in got[0].splitlines() if line.startswith("log_dropped")]
    written = sum(line.startswith("x") for line in got[0].splitlines())
    assert sum(int(count) for _, count in told) + written == 200


def test_entries_are_written_again_after_a_time_in_which_they_could_not_be(tmp_path: Path) -> None:
    """As where the disk was full, or the reader of a named pipe was restarted."""
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write = os.open(pipe, os.O_WRONLY)
    os.close(reader)
    writer = LogWriter(with_entries, write)
    writer.put({"event": "this is lost"})
    until(lambda: writer.dropped, "the loss of an entry")
    with pipe.open("rb") as stream:
        writer.put({"event": "this is read"})
        writer.close(seconds=60)
        os.close(write)
        assert stream.read() == b"this is read \nlog_dropped 1\n"


def test_output_that_is_not_read_is_held_up_to_a_number_of_bytes() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)  # as another process may do to a terminal
    writer = LogWriter(with_entries, writes)
    chunks = 2 * OUTPUT_BYTES_MAX // READ_BYTES
    for _ in range(chunks):
        writer.write(1, b"x" * READ_BYTES)
    assert writer.dropped >= OUTPUT_BYTES_MAX // READ_BYTES
    writer.put("an entry has a place of its own\n")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(all_of(reads)))
    reader.start()
    writer.close(seconds=60)
    os.close(writes)
    reader.join(60)
    assert "an entry has a place of its own\n" in got[0]
    told = re.findall(r"log_dropped (\d+)", got[0])
    assert sum(map(int, told)) * READ_BYTES + got[0].count("x") == chunks * READ_BYTES


def test_starts_and_ends_wait_for_company_and_all_else_is_written_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "GATHER_SECONDS", 3600.0)
    reads, writes = os.pipe()
    writer = LogWriter(rendered, writes)
    with os.fdopen(reads) as stream:
        for urgent in [
            lambda: writer.put({"event": "it"}),
            lambda: writer.put("it\n"),
            lambda: writer.write(1, b"it\n"),
        ]:
            writer.put({"event": "attempt_started"})
            urgent()
            assert [stream.readline() for _ in range(2)] == ["attempt_started\n", "it\n"]
        writer._hurry.clear()  # which an urgent entry may set after it was written
        writer.put({"event": "attempt_started"})
        assert not select.select([stream], [], [], GATHER_SECONDS)[0], "it does not wait"
        writer.close(seconds=60)
        os.close(writes)
        assert stream.read() == "attempt_started\n"


def test_an_entry_that_cannot_be_rendered_is_reported() -> None:
    read, write = os.pipe()
    writer = LogWriter(lambda entry: f"{1 / 0}", write)
    writer.put({"event": "x"})
    writer.put("the next\n")
    writer.close()
    os.close(write)
    assert all_of(read) == (
        "outlast: an entry of the log cannot be shown: division by zero\nthe next\n"
    )


def test_routine_events_beyond_the_limit_are_counted_not_logged() -> None:
    clock, written = ManualClock(boot=0.0), []
    thinned = Thinned(lambda name, _: written.append(name), clock)
    with capture_logs() as counted:
        for _ in range(ROUTINE_MAX + 7):
            thinned("attempt_ended", {})
            thinned("attempt_refused", {})
            thinned("job_dead", {})
        thinned("attempt_failed", {})
        clock.advance(1.0)
        thinned("attempt_started", {})
    assert written.count("attempt_ended") == ROUTINE_MAX
    assert written.count("attempt_refused") == ROUTINE_MAX + 7, "only routine events are thinned"
    assert written.count("job_dead") == ROUTINE_MAX + 7, "alarms depend on it"
    assert written.count("attempt_failed") == 1, (
        "failures are logged, however many successes there are"
    )
    assert written[-1] == "attempt_started"
    assert [(each["event"], each["entries"]) for each in counted] == [("log_thinned", 7)]


def test_thin_returns_how_many_of_the_events_to_emit() -> None:
    clock, written = ManualClock(boot=0.0), []
    thinned = Thinned(lambda name, _: written.append(name), clock)
    with capture_logs() as counted:
        room = thinned.thin("attempt_ended", ROUTINE_MAX + 7)
        for _ in range(room):
            thinned("attempt_ended", {})
        assert thinned.thin("attempt_started", 3) == 0
        assert thinned.thin("runner_died", 3) == 3, "only routine events are thinned"
        clock.advance(1.0)
        assert thinned.thin("attempt_started", 3) == 3
    assert len(written) == room == ROUTINE_MAX
    assert [(each["event"], each["entries"]) for each in counted] == [("log_thinned", 10)]
