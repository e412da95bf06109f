"""Templates: all of them can be compiled, which is done before the first visitor comes."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from outlast.web.render import breakable, environment, lay_out, load_templates, sentence
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


def test_a_name_may_break_after_a_dot_or_an_underscore_between_its_words_and_nowhere_else() -> None:
    assert breakable("orders.tasks.sync_stock") == "orders.<wbr>tasks.<wbr>sync_<wbr>stock"
    assert breakable("a.b <wbr>.…") == "a.<wbr>b &lt;wbr&gt;.…"
    assert breakable("&#39;_x_") == "&amp;#39;_<wbr>x_"
    assert breakable(None) == ""
    assert breakable("x" * 200, 10) == "x" * 9 + "…"


def test_a_command_is_called_as_it_is_called_here() -> None:
    told = "`outlast worker MODULE:APP` starts one; `outlast_x` and outlast stay"
    assert sentence(told, 0.0, "python manage.py outlast") == (
        "<code>python manage.py outlast worker</code> starts one;"
        " <code>outlast_x</code> and outlast stay"
    )
    assert "<code>outlast worker MODULE:APP</code>" in sentence(told, 0.0)


def test_no_template_calls_the_command_line_by_a_name_of_its_own() -> None:
    """But in a sentence, whose commands are called as they are called here."""
    for name in environment().list_templates():
        text = files("outlast.web").joinpath("templates", name).read_text()
        assert re.findall(r"(?<!`)\boutlast (?!if)[a-z]+ ", text) == [], name
