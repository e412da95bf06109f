"""Arguments and results: values come back unchanged, or are refused at the caller."""

from __future__ import annotations

import enum
import inspect
import itertools
import json
import math
import re
import traceback
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import BadArguments, ConfigError
from outlast.payload.codec import DEPTH_MAX, decode_result, encode_result, to_json
from outlast.payload.signature import Signature
from tests.cases import each_case

if TYPE_CHECKING:
    from collections.abc import Callable

    from somewhere import NotThere  # type: ignore[import-not-found]

UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.0


class Box(msgspec.Struct):
    corner: Point
    tags: set[str] = set()


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    fast: bool


class Model:
    """A method as on pydantic's models."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self, *, round_trip: bool) -> dict[str, int]:
        return {"value": self.value}

    def model_dump_json(self, *, by_alias: bool, round_trip: bool) -> str:
        return json.dumps(self.model_dump(round_trip=round_trip))

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        plain = json.loads(text)
        if plain["value"] < 0:
            raise ValueError("below zero")
        return cls(plain["value"])


def case(value: object) -> str:
    """A name that is the same in every process: no object's address, no order of a set."""
    told = type(value).__name__ if isinstance(value, (set, frozenset)) else str(value)
    return re.sub(r"<(\S+) object at 0x\w+>", r"\1", told)


def takes(annotation: Any) -> Signature:
    def fn(value):
        pass

    fn.__annotations__ = {"value": annotation}
    return Signature(fn, "task")


def there_and_back(signature: Signature, *args: Any, **kwargs: Any) -> Any:
    return signature.decode(signature.encode(signature.bind(args, kwargs)))


@each_case(
    ("annotation", "value"),
    [
        (int, 2**60),
        (float, 1.5),
        (str, "NUL \x00 and ü and \U0001f600"),
        (bool, True),
        (None, None),
        (bytes, b"\x00\xff"),
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
        (set[str], {"a", "b"}),
        (frozenset[int], frozenset({1})),
        (dict[str, Point], {"a": Point(1, 2.0)}),
        (dict[int, str], {1: "a"}),
        (datetime, datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        (date, date(2030, 1, 2)),
        (timedelta, timedelta(days=2, seconds=0.5)),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=7)),
        (Color, Color.RED),
        (Point, Point(1)),
        (Box, Box(Point(1, 2.5), {"a"})),
        (Pair, Pair(1, "a")),
        (Options, {"fast": True}),
        (UserId, UserId(3)),
        (Path, Path("/tmp/a b")),
        (list[Path], [Path("a")]),
        (Model, Model(3)),
        (int | str | None, "x"),
        (Literal["a", "b"], "b"),
        (Annotated[int, msgspec.Meta(ge=0)], 0),
        (Any, {"a": [1, None, 2.5, "x"]}),
    ],
)
def test_a_value_of_the_annotated_type_comes_back_as_it_was(annotation, value):
    args, kwargs = there_and_back(takes(annotation), value)
    assert (args, kwargs) == ((value,), {})
    assert type(args[0]) is type(value)
    assert decode_result(encode_result(value, annotation), annotation) == value


@each_case(
    ("annotation", "value", "says"),
    [
        (int, "1", "Expected `int`, got `str`"),
        (int, 1.0, "Expected `int`"),
        (int, True, "Expected `int`"),
        (str, 1, "does not fit str: it is of class int"),
        (str, b"x", "does not fit str: it is of class bytes"),
        (str, "\ud800", "lone surrogate"),
        (dict[str, Any], {"\udfff": 1}, "lone surrogate"),
        (float, math.nan, "NaN"),
        (Any, [{"a": -math.inf}], "NaN"),
        (float | None, math.inf, "NaN"),
        (Any, object(), "cannot be written as JSON"),
        (Any, print, "cannot be written as JSON"),
        (Any, 1j, "cannot be stored as JSON"),
        (Any, {None: 1}, "cannot be stored as JSON"),
        (Point, {"x": "a"}, "Expected `int`, got `str` - at `$.x`"),
        (Box, Box(Point("1")), "`$.corner.x`"),  # type: ignore[arg-type]
        (Model, Model(-1), "below zero"),
        (Color, "blue", "Invalid enum value"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, ">= 0"),
    ],
)
def test_any_other_value_is_refused_by_name(annotation, value, says):
    with pytest.raises(BadArguments, match=r"argument 'value' of task task") as caught:
        takes(annotation).encode({"value": value})  # at the caller, not when it is read back
    assert says in str(caught.value)


@each_case(
    ("value", "says"),
    [
        ({None: 1}, "None as a key"),
        ([{True: 1}], "True as a key"),
        ({1: "a", "1": "b"}, "'1' twice"),
        ([{"a": {-7: 1, "-7": 2}}], "'-7' twice"),
        ({1.5: 1, "1.5": 2}, "'1.5' twice"),
    ],
)
def test_keys_that_json_would_lose_are_refused(value, says):
    with pytest.raises(BadArguments, match=r"argument 'value' of task task") as caught:
        takes(Any).encode({"value": value})
    assert says in str(caught.value)


def test_keys_that_are_numbers_are_kept_as_texts():
    """And a text that looks like such a key is no key."""
    for value in ({1: "a", 2: "b"}, ['{"1":', '"1":'], {"1": {1: 1}, "2": {"1": 1}}):
        as_texts = json.loads(json.dumps({"value": value}))
        assert json.loads(takes(Any).encode({"value": value})) == as_texts


def test_the_place_of_what_is_not_finite_is_told_and_no_key():
    """Keys are data as values are: the message is stored and shown where those are hidden."""
    with pytest.raises(BadArguments) as told:
        encode_result({"ada@example.org": [{"loss": 1.5}, {"loss": math.nan}]})
    assert "JSON (nan at $[...][1][...]): write None or a text instead" in str(told.value)
    assert "ada" not in str(told.value)


def test_a_value_that_contains_itself_is_refused():
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(BadArguments, match="'value'"):
        there_and_back(takes(Any), circle)


@each_case(
    ("annotation", "value"),
    [(list[int], ["a"]), (None, 1), (Point, object()), (float, math.nan), (str, "\udcff")],
)
def test_a_result_that_does_not_fit_is_refused(annotation, value):
    with pytest.raises(BadArguments, match="the result"):
        encode_result(value, annotation)


def test_a_missing_result_is_none():
    assert decode_result(None, int) is None


# ------------------------------------------------------------------------------ signatures


def everything(a: int, /, b: str, c: float = 1.0, *rest: int, d: bool = False, **more: Point):
    pass


def no_annotations(a, b=2):
    pass


def only_named(*, name: str = "x"):
    pass


def of_other_modules(here: NotThere, there: int) -> NotThere:
    pass


def nothing() -> None:
    pass


@each_case(
    ("fn", "args", "kwargs"),
    [
        (everything, (1, "b"), {}),
        (everything, (1, "b", 2.0, 3, 4), {"d": True, "p": Point(1)}),
        (everything, (1,), {"b": "b", "a": Point(5), "rest": Point(6)}),
        (no_annotations, ([1, {"a": None}],), {}),
        (no_annotations, (), {"b": 1, "a": 0}),
        (only_named, (), {"name": "ü"}),
        (only_named, (), {}),
        (of_other_modules, ({"any": "json"}, 1), {}),
        (nothing, (), {}),
    ],
)
def test_a_call_is_the_same_after_storing(fn: Callable[..., Any], args, kwargs):
    signature = Signature(fn, "task")
    bound = signature.bind(args, kwargs)
    back = signature.bind(*signature.decode(signature.encode(bound)))
    assert back == bound


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
        ),
        max_leaves=20,
    )
)
def test_any_json_passes_through_a_parameter_without_annotation(value):
    args, kwargs = there_and_back(Signature(no_annotations, "task"), value)
    assert (args, kwargs) == ((value,), {})


def test_defaults_are_not_stored():
    signature = Signature(everything, "task")
    assert signature.encode(signature.bind((1, "b"), {})) == '{"a":1,"b":"b"}'


@each_case(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, "b"), {"b": "c"}, "multiple values for argument 'b'"),
    ],
)
def test_a_call_that_does_not_fit_names_the_task_and_the_fault(args, kwargs, says):
    with pytest.raises(BadArguments, match=r"task mail\(a: .*") as caught:
        Signature(everything, "mail").bind(args, kwargs)
    assert says in str(caught.value)


def test_a_misspelt_argument_is_named_instead_of_the_missing_one():
    with pytest.raises(BadArguments, match=r"task mail\(a, b=2\): it does not take 'aa'"):
        Signature(no_annotations, "mail").bind((), {"aa": 1})


def test_too_large_arguments_are_refused_with_both_sizes():
    signature = Signature(no_annotations, "task", max_payload=1000)
    with pytest.raises(BadArguments, match="1008 bytes of JSON; 1000 are allowed"):
        signature.encode({"a": "x" * 1000})


@each_case(
    "text",
    [
        '{"a": 1, "b": "b", "new": 1}',
        '{"a": 1}',
        '{"a": "1", "b": "b"}',
        '{"a": 1, "b": "b", "rest": 5}',
        '{"a": 1, "b": "b", "more": {"c": {"x": 1}}}',
        "[1]",
        "null",
        "no json",
        "",
    ],
)
def test_arguments_of_another_release_raise_their_own_error(text):
    with pytest.raises(BadArguments, match="task mail"):
        Signature(everything, "mail").decode(text)


def test_positional_only_arguments_are_laid_out_or_refused():
    def gap(a: int = 1, b: int = 2, /) -> None:
        pass

    with pytest.raises(BadArguments):
        Signature(gap, "gap").decode('{"b": 3}')


def test_a_readable_return_annotation_is_kept():
    assert Signature(nothing, "task").returns is type(None)
    assert Signature(everything, "task").returns is Any
    assert Signature(of_other_modules, "task").returns is Any


def test_an_annotation_that_can_never_be_read_back_is_refused_at_once():
    def fn(where: str | Path) -> None:
        pass

    with pytest.raises(ConfigError, match="argument 'where' can never be read back"):
        Signature(fn, "task")


def test_arguments_are_bound_as_python_binds_them() -> None:
    """Also by the short cut for plain parameters: the same names, in the same order, or refused."""

    def fn(a: int, b: int = 0, *, c: int = 0, d: int) -> None: ...

    signature, python = Signature(fn, "fn"), inspect.signature(fn)
    words = ("a", "b", "c", "d", "x")
    for count, size in itertools.product(range(4), range(4)):
        for names in itertools.permutations(words, size):
            args, kwargs = tuple(range(count)), dict.fromkeys(names, 9)
            try:
                wanted = list(python.bind(*args, **kwargs).arguments.items())
            except TypeError:
                with pytest.raises(BadArguments):
                    signature.bind(args, kwargs)
            else:
                assert list(signature.bind(args, kwargs).items()) == wanted


# ---------------------------------------------------------------------------- how deep


def nested(levels: int, kind: str = "list") -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = [value] if kind == "list" else {"a": value}
    return value


@each_case("kind", ["list", "dict"])
def test_values_nested_too_deeply_are_refused(kind):
    assert to_json("it", nested(DEPTH_MAX, kind))
    for levels in (DEPTH_MAX + 1, 500, 990):
        with pytest.raises(BadArguments, match="more than 100 levels deep"):
            to_json("it", nested(levels, kind))


def test_many_lists_side_by_side_are_not_deep():
    wide = [{"a": [n, {"b": "]" * n}]} for n in range(1_000)]
    assert msgspec.json.decode(to_json("it", wide)) == wide


@each_case("text", ["[" * 500, '\\"' * 300 + "[{" * 300, '"' + "{" * 400])
def test_brackets_in_texts_are_not_deep(text):
    assert msgspec.json.decode(to_json("it", [text, {text: text}])) == [text, {text: text}]


def test_a_result_that_is_too_large_is_refused_with_what_to_do_instead():
    with pytest.raises(BadArguments, match=r"1002 bytes.*App\(max_payload=…\)\): store large data"):
        encode_result("x" * 1000, str, 1000)


class Plan(enum.Enum):
    OLD = "hunter2"


class Login(msgspec.Struct, tag="login", forbid_unknown_fields=True):
    name: str = ""


class Token(msgspec.Struct, tag="token"):
    name: str = ""


class Checked(msgspec.Struct):
    pin: str

    def __post_init__(self) -> None:
        raise ValueError(f"{self.pin} is no pin")


@each_case(
    ("annotation", "text", "says"),
    [
        (Plan, '"hunter22"', "Invalid enum value"),
        (list[Plan], '["hunter22"]', "Invalid enum value - at `$[0]`"),
        (dict[Plan, int], '{"hunter22":1}', "Invalid enum value - at `key` in `$`"),
        (Literal["a"], '"hunter22 - at `$.hunter22`x"', "Invalid enum value"),
        (Literal[1], "224711", "Invalid enum value"),
        (Login | Token, '{"type":"hunter22"}', "Invalid value - at `$.type`"),
        (Login, '{"type":"login","hunter22":1}', "Object contains unknown field"),
        (Checked, '{"pin":"hunter22"}', "a check of its type refuses it (ValueError)"),
        (int, '"hunter22"', "Expected `int`, got `str`"),
    ],
)
def test_no_error_of_reading_holds_a_value(annotation: Any, text: str, says: str) -> None:
    """It is stored as the message of the attempt, also where the value itself is encrypted."""
    signature = takes(annotation)
    readers: list[Callable[[], object]] = [
        lambda: signature.decode(f'{{"value":{text}}}'),
        lambda: decode_result(text, annotation),
    ]
    for read in readers:
        with pytest.raises(BadArguments) as caught:
            read()
        assert str(caught.value).endswith(f": {says}")
        shown = "".join(traceback.format_exception(caught.value))
        assert "hunter22" not in shown
        assert "224711" not in shown
