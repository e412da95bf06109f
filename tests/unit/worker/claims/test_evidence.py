"""What a worker adds to the end of an attempt: its own evidence, bounded and redacted."""

from __future__ import annotations

import platform
from importlib import metadata

import pytest

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import Save
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import claimed, crash, new_ledger


@pytest.fixture
def clock():
    return ManualClock(boot=0.0)


@pytest.fixture
def ledger(clock):
    return new_ledger(clock)


def test_a_crash_report_gets_the_workers_evidence(ledger, clock):
    (running,) = ledger.claim([claimed(7)])
    running.pid = 4242
    ledger.note_save(Save(7, 7, 1, '{"n":1}'))
    clock.advance(3.0)
    ledger.note_progress(7, Progress(0.5, message="half"))
    ledger.end(7, crash(message="a\x00b"))
    (end,) = ledger.take(1)
    assert end.pid == 4242
    assert end.crash is not None
    assert (end.crash.worker, end.crash.host, end.crash.pid) == ("w1", "h1", 4242)
    assert end.crash.progress == Progress(0.5, message="half")
    assert end.crash.checkpoint_age_seconds == 3.0
    assert end.message == end.crash.message == "a\ufffdb"


def test_a_completion_is_not_a_crash_and_its_message_is_bounded(ledger):
    ledger.claim([claimed(7)])
    ledger.end(7, Outcome(kind=OutcomeKind.COMPLETED, message="x" * 10_000))
    (end,) = ledger.take(1)
    assert end.crash is None
    assert len(end.message) <= 2_000


def test_a_forged_crash_report_is_bounded(ledger):
    ledger.claim([claimed(1)])
    report = Crash(kind=CrashKind.ERROR, output=["x" * 100_000] * 100, stacks="\x00" * 100_000)
    ledger.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=report))
    (end,) = ledger.take(1)
    assert end.crash is not None
    assert len(end.crash.output) == 50
    assert len(end.crash.stacks or "") <= 16_384


def test_a_redact_pattern_applies_to_every_text_of_a_report():
    ledger = new_ledger(redact=[r"s3cr\w+", r"(?i)TOKEN=\S+"])
    ledger.claim([claimed(1)])
    text = "the s3cret and token=abc"
    report = Crash(
        kind=CrashKind.ERROR,
        message=text,
        exception=text,
        traceback=text,
        stacks=text,
        output=[text, "plain"],
    )
    ledger.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=report, message=text))
    (end,) = ledger.take(1)
    hidden = "the [redacted] and [redacted]"
    assert end.crash is not None
    assert end.message == end.crash.message == end.crash.exception == hidden
    assert end.crash.traceback == end.crash.stacks == hidden
    assert end.crash.output == [hidden, "plain"]


def test_a_text_is_redacted_before_it_is_cut():
    """A secret that is cut in the middle would no longer match."""
    ledger = new_ledger(redact=["BEGINk*END"])
    ledger.claim([claimed(1)])
    report = Crash(kind=CrashKind.ERROR, stacks="x" * 8187 + "BEGIN" + "k" * 20_000 + "END")
    ledger.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=report))
    (end,) = ledger.take(1)
    assert end.crash is not None
    assert end.crash.stacks == "x" * 8187 + "[redacted]"


def test_the_message_of_an_end_without_a_report_is_redacted_too():
    ledger = new_ledger(redact=["s3cret"])
    ledger.claim([claimed(1)])
    ledger.end(1, Outcome(kind=OutcomeKind.CANCELLED, message="Cancel('s3cret')"))
    assert ledger.take(1)[0].message == "Cancel('[redacted]')"


def test_the_report_has_the_release_of_the_runner_else_that_of_the_worker():
    ledger = new_ledger(release="worker-7")
    (running,) = ledger.claim([claimed(1)])
    running.release, running.python = "runner-8", "3.99"
    ledger.claim([claimed(2)])
    for token in (1, 2):
        ledger.end(token, crash())
    first, second = [end.crash for end in ledger.take(2)]
    assert first is not None
    assert second is not None
    assert (first.release, first.python) == ("runner-8", "3.99")
    assert (second.release, second.python) == ("worker-7", platform.python_version())
    assert first.outlast == metadata.version("outlast")


def test_a_redact_pattern_applies_to_progress():
    ledger = new_ledger(redact=["s3cret"])
    ledger.claim([claimed(1)])
    told = Progress(0.5, "with s3cret", "and s3cret", waits_for=7)
    hidden = Progress(0.5, "with [redacted]", "and [redacted]", waits_for=7)
    assert ledger.note_progress(1, told) == hidden
    assert ledger.note_progress(1, Progress(0.6)) == Progress(0.6)
    ledger.note_progress(1, told)
    crash = Crash(kind=CrashKind.ERROR, message="it broke")
    ledger.end(1, Outcome(kind=OutcomeKind.CRASHED, crash=crash))
    (end,) = ledger.take(1)
    assert end.crash is not None
    assert end.crash.progress == hidden


def test_passwords_in_urls_are_hidden_in_progress():
    ledger = new_ledger()
    ledger.claim([claimed(1)])
    text = "to postgresql://app:s3cret@db/shop, then"
    hidden = "to postgresql://app:***@db/shop, then"
    assert ledger.note_progress(1, Progress(stage=text, message=text)) == Progress(
        stage=hidden, message=hidden
    )
