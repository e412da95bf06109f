"""The worker's log writer: it never blocks, and reports how much it had to drop."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from structlog.testing import capture_logs

from outlast.cli.logs import ROUTINE_MAX, LogWriter, Thinned
from tests.manual_clock import ManualClock
from tests.waiting import until


def rendered(entry: object) -> str:
    return str(entry["event"] if isinstance(entry, dict) else entry)


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
    writer = LogWriter(lambda entry: f"{entry['event']} {entry.get('entries', '')}", write, most=10)
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
    writer = LogWriter(lambda entry: f"{entry['event']} {entry.get('entries', '')}", write)
    writer.put({"event": "this is lost"})
    until(lambda: writer.dropped, "the loss of an entry")
    with pipe.open("rb") as stream:
        writer.put({"event": "this is read"})
        writer.close(seconds=60)
        os.close(write)
        assert stream.read() == b"this is read \nlog_dropped 1\n"


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
