"""Crash reports: every store can hold all that a dying process leaves behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.crash import (
    ITEMS_MAX,
    LINE_MAX,
    NEIGHBOURS_MAX,
    OUTPUT_LINES_MAX,
    TEXT_MAX,
    Charge,
    Crash,
    CrashKind,
    MemoryEvidence,
    Progress,
    bound,
    charge_of,
    clean,
    hiding,
    redact,
)
from tests.cases import each_case

texts = st.text("ab\n\x00\ud800\udfff\x1bé😀", max_size=12)
long_texts = st.builds(str.__mul__, texts, st.sampled_from([0, 1, 1, 500, 5_000]))


def storable(text: str) -> bool:
    return "\x00" not in text and text.encode().decode() == text


# ----------------------------------------------------------------------------------- texts


@each_case(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a\x00b", "a\ufffdb"),
        ("a\ud800b", "a?b"),
        ("naïve 😀 \n\x1b[31m", "naïve 😀 \n\x1b[31m"),
    ],
)
def test_only_what_no_store_can_hold_is_replaced(text, cleaned):
    assert clean(text) == cleaned


def test_a_long_text_keeps_its_head_and_its_tail():
    text = clean("start" + "x" * 10_000 + "end", 100)
    assert len(text) <= 100
    assert text.startswith("start")
    assert text.endswith("end")
    assert " ... " in text


@given(long_texts, st.integers(7, 3_000))
def test_a_cleaned_text_can_be_stored_and_keeps_to_its_limit(text, limit):
    cleaned = clean(text, limit)
    assert storable(cleaned)
    assert len(cleaned) <= limit


@given(texts)
def test_cleaning_twice_changes_nothing_more(text):
    assert clean(clean(text)) == clean(text)


# --------------------------------------------------------------------------------- reports

optional = st.none() | long_texts
crashes = st.builds(
    Crash,
    kind=st.sampled_from(CrashKind),
    message=long_texts,
    exception=optional,
    traceback=optional,
    signal=optional,
    stacks=optional,
    output=st.builds(list.__mul__, st.lists(long_texts, max_size=3), st.sampled_from([1, 30])),
    progress=st.none() | st.builds(Progress, stage=optional, message=optional),
    memory=st.none() | st.builds(MemoryEvidence, source=long_texts, cgroup=optional),
    neighbours=st.sampled_from([[], [1, 2], list(range(1_000))]),
    worker=optional,
    host=optional,
    release=optional,
    python=optional,
)


def texts_of(crash: Crash) -> list[str]:
    plain = msgspec.to_builtins(crash)
    found = [value for value in plain.values() if isinstance(value, str)]
    for part in ("progress", "memory"):
        found += [value for value in plain.get(part, {}).values() if isinstance(value, str)]
    return found + list(plain.get("output", []))


@given(crashes)
def test_every_text_of_a_bounded_report_can_be_stored_and_is_within_its_limit(crash):
    report = bound(crash)
    assert all(storable(text) for text in texts_of(report))
    assert all(len(text) <= TEXT_MAX for text in texts_of(report))
    assert all(len(line) <= LINE_MAX for line in [report.message, *report.output])
    assert len(report.output) <= OUTPUT_LINES_MAX
    assert len(report.neighbours) <= NEIGHBOURS_MAX
    assert report.kind is crash.kind
    assert msgspec.json.decode(msgspec.json.encode(report), type=Crash) == report


@given(crashes)
def test_bounding_twice_changes_nothing_more(crash):
    assert bound(bound(crash)) == bound(crash)


def test_the_last_lines_of_output_are_kept():
    report = bound(Crash(kind=CrashKind.EXITED, output=[str(n) for n in range(80)]))
    assert report.output == [str(n) for n in range(30, 80)]


class Note(msgspec.Struct, frozen=True):
    text: str


class LaterCrash(Crash, frozen=True, kw_only=True):
    """A report of a later release: its new fields are cleaned by their types."""

    comment: str = ""
    advice: str | None = None
    lines: list[str] = []
    note: Note | None = None
    notes: list[Note] = []


LATER = LaterCrash(
    kind=CrashKind.ERROR,
    comment="token=1\x00" * 10_000,
    advice="token=1\ud800" * 10_000,
    lines=["token=1\x00" * 10_000] * 1_000,
    note=Note("token=1\x00" * 10_000),
    notes=[Note("token=1\x00" * 10_000)] * 1_000,
)


def texts_of_later(crash: LaterCrash) -> list[str]:
    assert crash.advice is not None
    assert crash.note is not None
    notes = [crash.note, *crash.notes]
    return [crash.comment, crash.advice, *crash.lines, *(note.text for note in notes)]


def test_a_new_field_of_a_report_is_bounded():
    report = bound(LATER)
    assert all(len(text) <= LINE_MAX for text in texts_of_later(report))
    assert all(storable(text) for text in texts_of_later(report))
    assert (len(report.lines), len(report.notes)) == (ITEMS_MAX, ITEMS_MAX)


def test_a_new_field_of_a_report_is_redacted():
    report = redact(LATER, hiding([r"token=\S"]))
    assert not any("token" in text for text in texts_of_later(report))
    assert all("[redacted]" in text for text in texts_of_later(report))


def test_a_new_field_of_a_type_without_a_rule_is_refused():
    class Odd(Crash, frozen=True, kw_only=True):
        environment: dict[str, str] = {}

    with pytest.raises(TypeError, match="no rule"):
        bound(Odd(kind=CrashKind.ERROR, environment={"token": "1"}))


def test_fields_that_user_code_cannot_write_are_not_redacted():
    values: dict[str, Any] = dict.fromkeys(
        ["worker", "host", "release", "python", "outlast", "signal"], "a"
    )
    written = Crash(
        kind=CrashKind.ERROR,
        message="a",
        exception="a",
        traceback="a",
        stacks="a",
        output=["a"],
        progress=Progress(stage="a", message="a"),
        **values,
    )
    report = redact(written, hiding(["a"]))
    assert {getattr(report, name) for name in values} == {"a"}
    assert texts_of(report).count("[redacted]") == 7


# -------------------------------------------------------------------------------- charges


def test_deaths_caused_by_the_worker_or_neighbours_are_losses_and_others_failures():
    losses = {kind for kind in CrashKind if charge_of(kind) is Charge.LOSS}
    free = {kind for kind in CrashKind if charge_of(kind) is Charge.NONE}
    assert losses == {CrashKind.LOST_WORKER, CrashKind.LOST_LEASE, CrashKind.BYSTANDER}
    assert free == {CrashKind.UNDECODABLE}
