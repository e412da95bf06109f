"""Arguments with sets have one JSON, however its process orders the members: it tells the
children of a job, the calls of a key and the versions of a schedule apart."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pydantic

from outlast.payload.codec import encoder
from outlast.payload.signature import Signature
from tests.cases import each_case

FORWARD, BACKWARD = {0, 8}, {8, 0}  # equal, and each in the order of its insertion


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"

    def __hash__(self) -> int:
        return 0


class Point(NamedTuple):
    at: int
    tags: set[int]


class Struct(msgspec.Struct, rename="camel", omit_defaults=True):
    first_one: int = 0
    all_tags: set[int] = msgspec.field(default_factory=set)
    inner: Struct | None = None


@dataclasses.dataclass
class Data:
    tags: set[int]
    more: dict[str, set[int]]


@dataclasses.dataclass(frozen=True)
class Member:
    at: int

    def __hash__(self) -> int:
        return 0


class Model(pydantic.BaseModel):
    name: str
    tags: set[int] = pydantic.Field(alias="allTags")
    inner: Model | None = None


def test_the_sets_of_these_tests_are_equal_and_differ_in_their_order():
    assert FORWARD == BACKWARD
    assert [*FORWARD] != [*BACKWARD]


MAKE: list[tuple[str, Callable[[set[int]], Any]]] = [
    ("a set", lambda tags: tags),
    ("a frozenset", frozenset),
    ("of frozensets", lambda tags: [{frozenset({at}) for at in tags}]),
    ("mixed", lambda tags: {*tags, "text", None} if next(iter(tags)) else {None, "text", *tags}),
    ("of an enum", lambda tags: {[*Colour][at // 8] for at in tags}),
    ("of data", lambda tags: {Member(at) for at in tags}),
    ("in a list", lambda tags: [1, [tags]]),
    ("in a tuple", lambda tags: (1, tags)),
    ("in a named tuple", lambda tags: Point(1, tags)),
    ("in a dict", lambda tags: {"z": 1, "a": {"z": tags, "b": 2}, 7: tags}),
    ("in a struct", lambda tags: Struct(1, tags, Struct(2, tags))),
    ("in a dataclass", lambda tags: Data(tags, {"more": tags})),
    ("in a model", lambda tags: [Model(name="m", allTags=tags)]),
    (
        "in a model within",
        lambda tags: Model(name="m", allTags=tags, inner=Model(name="n", allTags=tags)),
    ),
]


def task(value: Any, *more: Any, **named: Any) -> None: ...


@each_case("name, make", MAKE)
def test_equal_arguments_have_the_same_json(name: str, make: Callable[[set[int]], Any]):
    signature = Signature(task, "task")
    for bind in (
        lambda value: signature.bind((value,), {}),
        lambda value: signature.bind((1, value), {"named": value}),
    ):
        one, other = (signature.encode(bind(make(tags))) for tags in (FORWARD, BACKWARD))
        assert one == other


@each_case("name, make", MAKE)
def test_nothing_else_about_their_json_changes(name: str, make: Callable[[set[int]], Any]):
    signature = Signature(task, "task")
    text = signature.encode(signature.bind((make(FORWARD),), {}))
    assert shape(json.loads(text)["value"]) == shape(json.loads(encoder.encode(make(FORWARD))))


def shape(value: Any) -> str:
    """The JSON of a value, with the members of lists in one order and the keys in their own."""
    if isinstance(value, dict):
        inner = ",".join(f"{key}:{shape(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    return str(sorted(map(shape, value))) if isinstance(value, list) else repr(value)
