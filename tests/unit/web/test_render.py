"""Templates: all of them can be compiled, which is done before the first visitor comes."""

from __future__ import annotations

import json

from outlast.web.render import environment, lay_out, load_templates
from tests.cases import each_case


def test_all_templates_can_be_compiled_before_the_first_visitor() -> None:
    environment.cache_clear()
    load_templates()
    made = environment()
    assert made.cache is not None
    assert len(made.cache) == len(made.list_templates()) > 0


def test_json_is_laid_out_where_it_is_long() -> None:
    short = {"n": 9007199254740993, "to": "ada"}
    assert lay_out(json.dumps(short, separators=(",", ":"))) == json.dumps(short)
    long = {"n": 9007199254740993, "pages": list(range(30))}
    assert lay_out(json.dumps(long)) == json.dumps(long, indent=2)


@each_case("odd", ["", "{", '{"a": "bc', "[" * 100_000, "▒▒▒", "NaN", '"\ud800"'])
def test_what_is_no_json_is_shown_as_it_is(odd: str) -> None:
    assert lay_out(odd) == odd
