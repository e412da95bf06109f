"""Arguments in lists: the same form however long they are."""

from __future__ import annotations

import json

from outlast.insight.calls import describe_call
from outlast.model.job import SHELL_TASK
from outlast.payload.payloads import MARK
from tests.cases import each_case

ARGS = {"book": 'Em"ma \\ é', "pages": 20, "layout": {"fonts": ["Garamond", None], "dpi": 1.5}}
SHOWN = r'book="Em\"ma \\ é", pages=20, layout={"fonts": ["Garamond", null], "dpi": 1.5}'


def test_arguments_are_shown_as_those_of_a_call() -> None:
    assert describe_call("render", json.dumps(ARGS)) == SHOWN
    assert describe_call("render", "{}") == ""


def test_arguments_that_were_cut_anywhere_keep_that_form() -> None:
    stored = json.dumps(ARGS)
    for end in range(len('{"book": "'), len(stored)):
        shown = describe_call("render", stored[:end])
        assert shown.startswith('book="'), (stored[:end], shown)
        begin = min(len(shown), len('book="Em'), end - len('{"book": "') + len('book="'))
        assert shown[:begin] == SHOWN[:begin], (stored[:end], shown)


def test_a_command_is_shown_as_it_is_typed() -> None:
    stored = json.dumps({"argv": ["sh", "-c", "exit 3"]})
    assert describe_call(SHELL_TASK, stored) == "sh -c 'exit 3'"
    assert describe_call(SHELL_TASK, stored[:-4]) == "sh -c 'exit …'"


@each_case("odd", ["", "null", "▒▒▒", "[1, 2", '{"', "{", "[" * 100_000])
def test_what_is_no_object_is_shown_as_it_is(odd: str) -> None:
    assert describe_call("render", odd) in {odd, ""}


def test_of_encoded_arguments_only_that_is_shown() -> None:
    assert describe_call("render", f'{MARK}["zlib"],"{"A" * 400}') == "(encoded)"
