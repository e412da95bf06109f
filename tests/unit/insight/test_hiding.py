"""What an expression or a key hides, in texts that are JSON, hold some, or are cut off."""

from __future__ import annotations

import json
import pprint
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest

from outlast.errors import ConfigError
from outlast.insight import hiding, resource
from outlast.insight.hiding import HIDDEN, Hiding
from outlast.model.crash import clean
from tests.cases import each_case

KEYS = Hiding(keys=["password", "*token*"])
M = HIDDEN
LONG = 1_000_000


@each_case(
    ("text", "shown"),
    [
        ('{"password":"x","b":9007199254740993}', '{"password":"§","b":9007199254740993}'),
        ('{"PASSWORD":null,"my-Token-2":[true]}', '{"PASSWORD":"§","my-Token-2":"§"}'),
        ('{"a":{"password":{"x":[1,"]}",{}]}},"c":1}', '{"a":{"password":"§"},"c":1}'),
        (r'{"p\u0061ssword":"s","z":1}', '{"password":"§","z":1}'),
        ('{"passwords":1.10}', '{"passwords":1.10}'),
        (r'{"body":"{\"password\": 1}","z":1}', '{"body":"§","z":1}'),
        ('{"argv":["mysql","--password","x"],"z":1}', '{"argv":"§","z":1}'),
        (
            '[{"name":"TOKEN","value":"x"},{"name":"n","value":"x"}]',
            '["§",{"name":"n","value":"x"}]',
        ),
        ('{"password":', '"§"'),
        ('{"password":"\\ud800","q":"\\ud800"}', '"§"'),
        ('{"password":1,"n":' + "9" * 5_000 + "}", '"§"'),
        ('{"a":' * 9_000 + '{"password":1}' + "}" * 9_000, '"§"'),
        ("", ""),
    ],
)
def test_a_value_of_a_document_is_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert KEYS.cover_document(text) == shown.replace("§", M)


@each_case(
    ("text", "hit"),
    [
        ('401: {"api_token": "abc', True),
        ("password=hunter2", True),
        ("the Password is hunter2", True),
        ("passwords, a my_password and the passwordless", False),
        ("tokens", True),
        (r"one\npassword: x", True),
        (r"b'\x82\xa8password\xa7hunter2'", True),
        (r"b'\302password'", True),
        ("\x1b[1;31mpassword\x1b[0m: x", True),
        (r"\x1b[31mpassword\x1b(Bx", True),
        ("\x1b(Bpassword", True),
        ("/?q=%7B%22password%22%3A1%7D", True),
        ("/?q=%257B%2522password%2522", True),
        (r"p\u0061ssword: x", True),
        (r"C:\token", True),
        ("", False),
    ],
)
def test_a_text_with_a_key_as_a_word_is_covered_whole(text: str, hit: bool) -> None:
    assert KEYS.cover(text) == (M if hit else text)


def test_a_key_in_other_letters_is_found_as_json_and_urls_write_it() -> None:
    for text in (json.dumps({"contraseña": 1}), "/?contrase%C3%B1a=1", ascii({"contraseña": 1})):
        assert Hiding(keys=["contraseña"]).cover(text) == M


def test_lines_are_covered_one_by_one_with_what_belongs_to_them() -> None:
    text = json.dumps({"a": 1, "password": {"b": ["S", ["S"]]}, "c": "x"}, indent=2)
    printed = ["before", *text.split("\n"), "after", "token:", "- S", "", "  S", "after"]
    assert KEYS.cover_lines(printed, LONG) == [
        *("before", "{", '  "a": 1,'),
        *[M] * 10,
        *("after", M, M, M, M, "after"),
    ]
    printed = pprint.pformat({"a": ["x" * 40] * 3, "password": "S " * 60}, width=40).split("\n")
    assert "S" not in "".join(KEYS.cover_lines(printed, LONG))
    pem = ["a", "-----BEGIN KEY", "MII", "-----END KEY", "b"]
    assert Hiding("(?s)BEGIN.*END").cover_lines(pem, LONG) == ["a", M, M, M, "b"]


def made(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(8)
    if depth > 3 or kind < 4:
        odd = ["S", 'a"b\\S\\', "'[{S", 'x\nS:"', "\\", "it's", '{"password":1}']
        return draw.choice([1, -2.5, None, True, *odd])
    if kind < 6:
        return [made(draw, depth + 1) for _ in range(draw.randrange(4))]
    names = ["password", "a", "Token", 'b"c\\', "tok\u00e9n"]
    return {draw.choice(names): made(draw, depth + 1) for _ in range(draw.randrange(4))}


S = "hunter2"
WRITTEN: list[Callable[[Any], str]] = [
    json.dumps,
    partial(json.dumps, indent=2),
    repr,
    partial(pprint.pformat, width=40),
    lambda value: f"cannot use {json.dumps(value)!r}",
    lambda value: json.dumps(json.dumps(json.dumps(value))),
    lambda value: repr(repr(ValueError(json.dumps(value)))),
    lambda value: repr(json.dumps(value).encode()),
    lambda value: quote_plus(json.dumps(value)),
]


def planted(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return a document with the secret under a hidden key, at some depth and also in strings."""
    under = [f'x" {S}', f"it's {S}\\", [S], {"b": [S, 1]}, json.dumps({"x": S}), [[{"q": f'{S}"'}]]]
    value: dict[str, Any] = {
        "a": made(draw),
        draw.choice(["password", "TOKEN"]): draw.choice(under),
    }
    if depth < 3:
        value["n"] = json.dumps(planted(draw, depth + 1), indent=draw.choice([None, 1]))
        value["m"] = planted(draw, depth + 2)
    return value


@each_case("form", range(len(WRITTEN)))
def test_a_secret_under_a_hidden_key_is_shown_in_no_form(form: int) -> None:
    draw = random.Random(form)
    for _ in range(200):
        text = WRITTEN[form](planted(draw))
        assert S not in KEYS.cover_document(text), text
        text = text[: draw.choice([len(text), draw.randrange(len(text))])]
        assert S not in KEYS.cover(text), text
        assert S not in "".join(KEYS.cover_lines(text.split("\n"), LONG)), text


@pytest.mark.slow
@each_case("odd", ["\\", '"', '":', '"password', '"password":', '"token', "token", "["])
def test_a_hostile_text_is_covered_in_one_pass(odd: str) -> None:
    text = '"password":"' + odd * 200_000
    assert KEYS.cover(text) == KEYS.cover_document(text).strip('"') == M
    assert KEYS.cover(odd * 200_000) is not None
    assert KEYS.cover_lines([odd * 20] * 20_000, LONG) is not None


@pytest.mark.timeout(60)  # to try all places for each * would take hours
@pytest.mark.parametrize("odd", ['"' + "a" * 66, '"' + "a" * 66 + '":1,', "a" * 100], ids=range(3))
def test_a_key_with_many_stars_is_looked_for_in_one_pass(odd: str) -> None:
    hiding = Hiding(keys=["*a*a*a*a*b", "*a*a*a*a*a*"])
    text = '{"' + odd * (100_000 // len(odd))
    assert hiding.cover(text) == M


@each_case(
    ("key", "hidden", "shown"),
    [
        ("*a", ["a", "ba", "aba", "x a"], ["b", "ab"]),
        ("a*a", ["aa", "aba", "abaca"], ["a", "ab", "baa"]),
        ("*ab*ba*", ["abba", "xabxbax", "ababba"], ["aba", "ba ab"]),
        ("**a**", ["a", "bab"], ["b"]),
        ("a/b", ["a/b", r"a\/b"], ["a b"]),
        ("$ref", ["$ref"], ["ref"]),
    ],
)
def test_a_star_stands_for_any_letters(key: str, hidden: list[str], shown: list[str]) -> None:
    hiding = Hiding(keys=[key])
    texts = [f'{{"{name}":1}}' for name in hidden + shown]
    assert [hiding.cover(text) == M for text in texts] == [
        name in hidden for name in hidden + shown
    ]


def test_an_expression_covers_texts_numbers_and_names_of_a_document() -> None:
    cards = Hiding(r"\d{16}")
    card = "4111222233334444"
    document = json.dumps({"a": int(card), "b": card, "c": [card, 1], card: 2})
    assert card not in cards.cover_document(document)
    assert json.loads(cards.cover_document(document)) == {"a": M, "b": M, "c": [M, 1], M: 2}
    assert Hiding(r"a.*b").cover_document('{"a":1,"b":2}') == f'"{M}"'
    assert Hiding().cover('{"pin":1}') == '{"pin":1}'


@each_case("keys", [[""], ["*"], ["a", 1]])
def test_what_is_no_key_is_refused(keys: list[Any]) -> None:
    with pytest.raises(ConfigError, match="hide_keys="):
        Hiding(keys=keys)


@each_case("digits", range(17))
def test_a_text_that_was_cut_as_it_was_stored_is_covered(digits: int) -> None:
    """A card of which some digits stand before the cut in the middle, and others are gone."""
    card = "4111222233334444"
    text = clean("x" * (996 - digits) + " " + card + " y" * 800)
    assert Hiding(pattern=r"\d{16}").cover(text) == M
    assert Hiding().cover(text) == text


def test_what_was_cut_away_may_have_named_the_key_of_the_rest() -> None:
    assert KEYS.cover(clean("a " * 950 + '"password": [' + "b " * 900 + "S")) == M
    assert KEYS.cover("z" * 300 + " 41112222…") == M
    assert KEYS.cover("41112222 ... 33334444") == "41112222 ... 33334444"  # nothing was cut


def test_a_long_line_and_the_next_are_covered_since_one_may_go_on_in_the_other() -> None:
    lines = ["a", "y" * 2_000, "b", "c"]
    assert KEYS.cover_lines(lines, 2_000) == ["a", M, M, "c"]
    assert KEYS.cover_lines(lines, 2_001) == lines
    assert Hiding().cover_lines(lines, 2_000) == lines


def test_the_names_that_are_never_hidden_are_columns_that_rows_have() -> None:
    every = {*all_below(msgspec.Struct)}
    kinds = [kind for kind in every if kind.__module__ != resource.__name__]  # documents
    for kind, _, name in (each.rpartition(".") for each in hiding.SHOWN):
        named = [each for each in kinds if each.__name__ == kind]
        assert not kind or [name in each.__struct_fields__ for each in named] == [True], kind


def all_below(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("outlast."):  # others may be called the same
            yield each
        yield from all_below(each)
