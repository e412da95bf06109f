"""Values of subclasses of plain types are written as the plain ones: a template's safe text, a
test's frozen time, a number of another library."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import msgspec
import pytest

from outlast.base.config import check_job_key, check_key, check_name
from outlast.client import events, steps
from outlast.errors import BadArguments
from outlast.payload.codec import encode_result, to_json
from tests.cases import each_case


def of(kind: type) -> Any:
    """A subclass, which says other things than its value where it is asked."""
    return type(
        "Own", (kind,), {"__str__": lambda self: self, "__repr__": lambda _: "Own", "__slots__": ()}
    )


NOW = dt.datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=dt.timezone(dt.timedelta(hours=2)))
VALUES: list[Any] = [
    "text",
    7,
    2**80,
    0.25,
    b"bytes",
    decimal.Decimal("1.50"),
    uuid.UUID(int=7),
    dt.timedelta(days=1, microseconds=5),
    NOW,
    NOW.replace(tzinfo=None),
    NOW.date(),
    NOW.time(),
]


def made(value: Any) -> Any:
    """The same value of a subclass."""
    kind = of(type(value))
    if isinstance(value, dt.datetime):
        return kind.fromtimestamp(value.timestamp(), value.tzinfo)
    if isinstance(value, dt.time):
        return kind(value.hour, value.minute, value.second, value.microsecond)
    if isinstance(value, dt.date):
        return kind(value.year, value.month, value.day)
    if isinstance(value, dt.timedelta):
        return kind(days=value.days, microseconds=value.microseconds)
    return kind(int=7) if isinstance(value, uuid.UUID) else kind(value)


@each_case("value", VALUES)
def test_a_value_of_a_subclass_is_read_as_its_plain_type(value: Any) -> None:
    for whole in (lambda one: one, lambda one: [one], lambda one: {"a": {"b": one}}):
        text = to_json("it", whole(made(value)))
        kind = msgspec.json.decode(to_json("it", whole(value)))
        read = msgspec.json.decode(text, type=type(value)) if text[:1] not in b"[{" else None
        assert read in (None, value)
        assert type(msgspec.json.decode(text)) is type(kind)
    encode_result(made(value), type(value))


def test_a_number_of_a_subclass_is_checked_as_the_plain_one() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(BadArguments, match="NaN and infinities"):
            to_json("it", [of(float)(value), None])


def test_names_and_keys_are_plain_texts() -> None:
    own = of(str)("name")
    for checked in (check_name("it", own), check_key("it", own), check_job_key(own)):
        assert type(checked) is str
        assert checked == "name"


def test_names_of_steps_and_events_are_plain_texts() -> None:
    for check in (steps.check_name, events.check_name):
        checked: object = check(of(str)("name"))
        assert type(checked) is str
        assert checked == "name"
