"""A schedule as programs see it, also where its row holds what Outlast has not written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.insight.schedules import (
    falling_into_changes,
    schedule_document,
    schedule_of,
    schedules_document,
)
from outlast.store.schedules import ScheduleRow

NOW = 1_893_456_000.0  # 2030-01-01
NIGHTLY = '{"cron":"30 2 * * *","zone":"Europe/Berlin"}'


def row(**fields: object) -> ScheduleRow:
    values = {
        "name": "nightly", "call": '{"task":"report"}', "spec": NIGHTLY, "overlap": "skip",
        "catch_up": "last", "grace": 86_400.0, "origin": "run_time", "version": "v", "revision": 1,
        "paused": False, "declared": True, "declared_at": None, "since": NOW, "next_tick": NOW,
    }  # fmt: skip
    return ScheduleRow(**(values | fields))  # type: ignore[arg-type]


def test_the_next_tick_is_the_first_that_is_not_accounted_for() -> None:
    shown = schedule_of(row())
    assert shown.next_tick is not None
    assert (shown.next_tick.isoformat(), shown.state) == ("2030-01-01T01:30:00+00:00", "active")
    for fields, state in (
        ({"paused": True}, "paused"),
        ({"declared": False}, "undeclared"),
        ({"spec": '{"cron":"30 2 * * *","zone":"Mars/Olympus"}'}, "malformed"),
        ({"spec": "{"}, "malformed"),
        ({"call": "[]"}, "malformed"),
    ):
        shown = schedule_of(row(**fields))
        assert (shown.state, shown.next_tick) == (state, None)


def test_what_cannot_be_read_is_null_and_the_rest_is_shown() -> None:
    broken_spec, broken_call = row(spec="{"), row(call="[]")
    (shown,) = schedules_document([broken_spec])["schedules"]
    assert {shown[name] for name in ("cron", "every", "zone", "jitter")} == {None}
    assert (shown["task"], shown["queue"], shown["args"]) == ("report", "default", {})
    assert shown["malformed"].startswith("its spec cannot be read: ")
    shown = schedule_document(broken_call)
    assert (shown["task"], shown["queue"], shown["args"]) == (None, None, None)
    assert (shown["cron"], shown["zone"], shown["jitter"]) == ("30 2 * * *", "Europe/Berlin", 0)
    assert shown["malformed"].startswith("its call cannot be read: ")
    both = schedule_of(row(spec="{", call="[]")).malformed
    assert both is not None
    assert "its spec" in both
    assert "its call" in both


def test_changes_of_the_clocks_are_told_by_date() -> None:
    often = row(spec='{"cron":"*/30 2 * * *","zone":"Europe/Berlin"}', name="often")
    ((name, told),) = falling_into_changes([row(), often, row(spec="{")], NOW)
    assert name == "often"
    assert told == (
        "cron '*/30 2 * * *' in Europe/Berlin: on 2030-03-31 it skips 02:00, 02:30;"
        " on 2030-10-27 it repeats 02:00, 02:30"
    )


TEXTS = st.text(max_size=20)
SPECS = st.sampled_from([NIGHTLY, '{"every":1}', '{"every":0}', "null", ""]) | TEXTS


@pytest.mark.slow
@given(
    spec=SPECS,
    call=st.sampled_from(['{"task":"a","args":"{"}', '{"task":1}']) | TEXTS,
    name=TEXTS,
    overlap=TEXTS,
    since=st.floats(),
    last_tick=st.none() | st.floats(allow_nan=False),
)
def test_no_row_fails_who_reads_it(**fields: object) -> None:
    one = row(**fields)
    json.dumps([schedules_document([one]), schedule_document(one)])
    list(falling_into_changes([one], NOW))
