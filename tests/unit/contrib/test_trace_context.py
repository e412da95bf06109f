"""The context of a trace in the notes of a job."""

from __future__ import annotations

import json

from outlast.contrib.trace_context import SentBy, note_context, read_context
from tests.cases import each_case

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIER = {"traceparent": PARENT, "tracestate": "a=b"}


def test_a_context_that_is_there_stays() -> None:
    meta = json.dumps({"otel": CARRIER})
    assert note_context(meta, SentBy({"traceparent": "another"}, 1.0)) == meta


@each_case(
    "meta",
    [
        None, "{}", "[]", "no json", '{"otel": 7}', '{"otel": {}}', '{"otel": {"sent": 1}}', "null",
        f'{{"traceparent": "{PARENT}"}}',
    ],
)  # fmt: skip
def test_other_notes_are_no_context(meta: str | None) -> None:
    assert read_context(meta) is None


@each_case("sent", ['"soon"', "null", "[1]", "1e308"])
def test_a_time_that_makes_no_sense_makes_no_child(sent: str) -> None:
    sent_by = read_context(f'{{"otel": {{"traceparent": "{PARENT}", "sent": {sent}}}}}')
    assert sent_by is not None
    assert not sent_by.is_fresh(1_000.0)
