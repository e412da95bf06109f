"""What a worker adds to the end of an attempt: its own evidence, bounded and redacted."""

from __future__ import annotations

import platform
from importlib import metadata

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import Save
from tests.unit.worker import worker_kit
from tests.unit.worker.worker_kit import claimed, crash, new_in_flight

clock, in_flight = worker_kit.clock, worker_kit.in_flight


def test_a_crash_report_gets_the_workers_evidence(in_flight, clock):
    (running,) = in_flight.claim([claimed(7)])
    running.pid = 4242
    in_flight.note_save(Save(7, 7, 1, '{"n":1}'))
    clock.advance(3.0)
    in_flight.note_progress(7, Progress(0.5, message="half"))
    in_flight.end(7, crash(message="a\x00b"))
    (end,) = in_flight.take(1)
    assert end.pid == 4242
    assert end.crash is not None
    assert (end.crash.worker, end.crash.host, end.crash.pid) == ("w1", "h1", 4242)
    assert end.crash.progress == Progress(0.5, message="half")
    assert end.crash.checkpoint_age_seconds == 3.0
    assert end.message == end.crash.message == "a\ufffdb"


def test_a_completion_is_not_a_crash_and_its_message_is_bounded(in_flight):
    in_flight.claim([claimed(7)])
    in_flight.end(7, Outcome(kind=OutcomeKind.COMPLETED, message="x" * 10_000))
    (end,) = in_flight.take(1)
    assert end.crash is None
    assert len(end.message) <= 2_000


def test_a_forged_crash_report_is_bounded(in_flight):
    in_flight.claim([claimed(1)])
    report = Crash(kind=CrashKind.ERROR, output=["x" * 100_000] * 100, stacks="\x00" * 100_000)
    in_flight.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=report))
    (end,) = in_flight.take(1)
    assert end.crash is not None
    assert len(end.crash.output) == 50
    assert len(end.crash.stacks or "") <= 16_384


def test_a_redact_pattern_applies_to_every_text_of_a_report():
    in_flight = new_in_flight(redact=[r"s3cr\w+", r"(?i)TOKEN=\S+"])
    in_flight.claim([claimed(1)])
    text = "the s3cret and token=abc"
    report = Crash(
        kind=CrashKind.ERROR,
        message=text,
        exception=text,
        traceback=text,
        stacks=text,
        output=[text, "plain"],
    )
    in_flight.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=report, message=text))
    (end,) = in_flight.take(1)
    hidden = "the [redacted] and [redacted]"
    assert end.crash is not None
    assert end.message == end.crash.message == end.crash.exception == hidden
    assert end.crash.traceback == end.crash.stacks == hidden
    assert end.crash.output == [hidden, "plain"]


def test_a_text_is_redacted_before_it_is_cut():
    """A secret that is cut in the middle would no longer match."""
    in_flight = new_in_flight(redact=["BEGINk*END"])
    in_flight.claim([claimed(1)])
    report = Crash(kind=CrashKind.ERROR, stacks="x" * 8187 + "BEGIN" + "k" * 20_000 + "END")
    in_flight.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=report))
    (end,) = in_flight.take(1)
    assert end.crash is not None
    assert end.crash.stacks == "x" * 8187 + "[redacted]"


def test_the_message_of_an_end_without_a_report_is_redacted_too():
    in_flight = new_in_flight(redact=["s3cret"])
    in_flight.claim([claimed(1)])
    in_flight.end(1, Outcome(kind=OutcomeKind.CANCELLED, message="Cancel('s3cret')"))
    assert in_flight.take(1)[0].message == "Cancel('[redacted]')"


def test_the_report_has_the_release_of_the_runner_else_that_of_the_worker():
    in_flight = new_in_flight(release="worker-7")
    (running,) = in_flight.claim([claimed(1)])
    running.release, running.python = "runner-8", "3.99"
    in_flight.claim([claimed(2)])
    for token in (1, 2):
        in_flight.end(token, crash())
    first, second = [end.crash for end in in_flight.take(2)]
    assert first is not None
    assert second is not None
    assert (first.release, first.python) == ("runner-8", "3.99")
    assert (second.release, second.python) == ("worker-7", platform.python_version())
    assert first.outlast == metadata.version("outlast")


def test_a_redact_pattern_applies_to_progress():
    in_flight = new_in_flight(redact=["s3cret"])
    in_flight.claim([claimed(1)])
    told = Progress(0.5, "with s3cret", "and s3cret", waits_for=7)
    hidden = Progress(0.5, "with [redacted]", "and [redacted]", waits_for=7)
    assert in_flight.note_progress(1, told) == hidden
    assert in_flight.note_progress(1, Progress(0.6)) == Progress(0.6)
    in_flight.note_progress(1, told)
    crash = Crash(kind=CrashKind.ERROR, message="it broke")
    in_flight.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=crash))
    (end,) = in_flight.take(1)
    assert end.crash is not None
    assert end.crash.progress == hidden


def test_passwords_in_urls_are_hidden_in_progress():
    in_flight = new_in_flight()
    in_flight.claim([claimed(1)])
    text = "to postgresql://app:s3cret@db/shop, then"
    hidden = "to postgresql://app:***@db/shop, then"
    assert in_flight.note_progress(1, Progress(stage=text, message=text)) == Progress(
        stage=hidden, message=hidden
    )
