"""Models of pydantic as arguments and results: by duck typing, as an endpoint takes them."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
import traceback
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel, computed_field, field_validator

import outlast
from outlast.errors import BadArguments
from outlast.payload.codec import decode_result, encode_result, encode_return
from outlast.testing import inline_sync
from tests.cases import each_case

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


class Line(BaseModel):
    count: int = Field(gt=0)


class Order(BaseModel, strict=True, extra="forbid"):
    """Strict, with an alias and a computed field: all that plain dicts would stumble over."""

    id: int = Field(alias="orderId")
    lines: list[Line] = []
    at: dt.datetime = AT
    price: decimal.Decimal = decimal.Decimal("1.10")
    tags: set[str] = set()
    rate: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.lines)

    @field_validator("tags")
    @classmethod
    def _short(cls, tags: set[str]) -> set[str]:
        if "secret" in tags:
            raise ValueError("no secrets")
        return tags


class Words(RootModel[list[str]]):
    pass


app = outlast.App("sqlite:////nowhere.db")


@app.task
def ship(order: Order, others: list[Order] = [], maybe: Order | None = None) -> Order:  # noqa: B006
    assert isinstance(order, Order)
    return order


ORDER = Order(orderId=7, lines=[Line(count=2)], tags={"a"})


def test_models_arrive_as_models() -> None:
    args, kwargs = ship.signature.decode(ship.call(ORDER, [ORDER, ORDER], ORDER).job.args)
    assert (args, kwargs) == ((ORDER, [ORDER, ORDER], ORDER), {})
    assert ship.signature.decode(ship.call(ORDER).job.args) == ((ORDER,), {})
    assert inline_sync(ship.call(ORDER)) == ORDER


def test_a_dict_that_fits_is_taken_as_in_an_endpoint() -> None:
    call = ship.call({"orderId": 7, "lines": [{"count": 2}], "tags": ["a"]})  # type: ignore[arg-type]
    assert ship.signature.decode(call.job.args) == ((ORDER,), {})


def test_results_are_models() -> None:
    assert decode_result(encode_result(ORDER, Order), Order) == ORDER
    words = Words(["a", "b"])
    assert decode_result(encode_result(words, Words), Words) == words
    text, misfit = encode_return({"orderId": 7, "size": 1}, Order, 1_000)
    assert (text, "it: extra forbidden" in misfit) == (
        '{"orderId":7,"size":1}',
        True,
    )


@each_case(
    ("value", "why"),
    [
        ({"orderId": 7, "lines": [{"count": 0}]}, "lines.0.count: Input should be greater than 0"),
        ({"lines": []}, "orderId: Field required"),
        ({"orderId": "x", "rate": "y"}, "orderId: .* valid integer; rate: .* valid number"),
        ({"orderId": 7, "tags": ["secret"]}, "tags: Value error, no secrets"),
        (Order(orderId=7, rate=float("nan")), "NaN and infinities"),
        ([1], "it: Input should be an object"),
    ],
)
def test_an_error_names_the_field(value: Any, why: str) -> None:
    with pytest.raises(BadArguments, match=f"argument 'order' of task ship .*{why}") as failed:
        ship.call(value)
    assert "\n" not in str(failed.value)


def test_a_long_list_of_errors_is_cut() -> None:
    wrong = {"orderId": 7, "lines": [{"count": 0}] * 20}
    with pytest.raises(BadArguments, match=r"lines\.4\.count.* and 15 more"):
        ship.call(wrong)  # type: ignore[arg-type]


def test_a_result_that_does_not_fit_names_the_field() -> None:
    with pytest.raises(BadArguments, match="the result does not fit Order: orderId: missing"):
        decode_result('{"lines":[]}', Order)


def test_no_error_of_reading_a_model_holds_a_value() -> None:
    """A validator may say the value, and a key that is no field is one."""
    text = '{"orderId":"4711-a","tags":["secret"],"4711-b":1}'
    with pytest.raises(BadArguments) as caught:
        decode_result(text, Order)
    said = "".join(traceback.format_exception(caught.value))
    assert "it: extra forbidden" in said
    assert "tags: value error" in said
    assert "4711" not in said
    assert "secret" not in said


def test_outlast_does_not_import_it() -> None:
    code = "import sys, outlast; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
