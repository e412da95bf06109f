"""The context of a trace in the notes of a job."""

from __future__ import annotations

import json

from outlast.client.task_options import META_MAX
from outlast.contrib.trace_context import CHILD_SECONDS, SentBy, note_context, read_context
from tests.cases import each_case

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIER = {"traceparent": PARENT, "tracestate": "a=b"}


def test_a_context_lies_beside_what_the_caller_has_noted() -> None:
    meta = note_context('{"tenant": 7}', SentBy(CARRIER, 12.3456))
    assert meta is not None
    assert json.loads(meta) == {"tenant": 7, "otel": {**CARRIER, "sent": 12.346}}
    assert read_context(meta) == SentBy(CARRIER, 12.346)


def test_a_context_without_a_time_is_never_fresh() -> None:
    sent_by = read_context(note_context(None, SentBy(CARRIER)))
    assert sent_by == SentBy(CARRIER)
    assert not sent_by.is_fresh(12.0)


def test_it_is_fresh_for_a_minute_also_where_clocks_differ() -> None:
    sent_by = SentBy(CARRIER, 1_000.0)
    assert [sent_by.is_fresh(1_000.0 + each) for each in (0, 59, -59, CHILD_SECONDS, -61)] == [
        True, True, True, False, False,
    ]  # fmt: skip


@each_case(
    "meta",
    [json.dumps({"otel": CARRIER}), json.dumps({"traceparent": PARENT, "note": "x"})],
)
def test_a_context_that_is_there_stays(meta: str) -> None:
    assert note_context(meta, SentBy({"traceparent": "another"}, 1.0)) == meta


def test_another_producer_may_write_the_headers_of_w3c() -> None:
    meta = json.dumps({"traceparent": PARENT, "order": "7"})
    assert read_context(meta) == SentBy({"traceparent": PARENT})


def test_where_there_is_no_room_nothing_is_noted() -> None:
    meta = json.dumps({"note": "x" * (META_MAX - 40)})
    assert note_context(meta, SentBy(CARRIER, 1.0)) == meta


@each_case(
    "meta",
    [None, "{}", "[]", "no json", '{"otel": 7}', '{"otel": {}}', '{"otel": {"sent": 1}}', "null"],
)
def test_other_notes_are_no_context(meta: str | None) -> None:
    assert read_context(meta) is None


@each_case("sent", ['"soon"', "null", "[1]", "1e308"])
def test_a_time_that_makes_no_sense_makes_no_child(sent: str) -> None:
    sent_by = read_context(f'{{"otel": {{"traceparent": "{PARENT}", "sent": {sent}}}}}')
    assert sent_by is not None
    assert not sent_by.is_fresh(1_000.0)
