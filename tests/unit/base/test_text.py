"""Times, sizes and foreign texts as text for people."""

from __future__ import annotations

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from outlast.base.text import ago, cut, due, line, lines, percent, pretty, rough, safe, size, span
from outlast.cli.show import table
from tests.cases import each_case


@each_case(
    ("seconds", "text"),
    [
        (-1, "0.00 s"),
        (0.214, "0.21 s"),
        (3.21, "3.2 s"),
        (5, "5 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_has_two_units_at_most(seconds: float, text: str) -> None:
    assert span(seconds) == text


@each_case(("seconds", "text"), [(3.9, "3 s"), (61, "1 min"), (7199, "1 h"), (200_000, "2 d")])
def test_a_rough_time_has_one_unit(seconds: float, text: str) -> None:
    assert rough(seconds) == text


def test_a_time_that_is_not_a_number_is_none() -> None:
    assert (rough(nan), rough(-inf), rough(inf)) == ("0 s", "0 s", "endless time")
    assert (ago(nan, 100.0), due(nan, 100.0)) == ("now", "in 0 s")


@each_case(
    ("fraction", "text"),
    [(0.404, "40%"), (0.999, "99%"), (1.0, "100%"), (1e308, "100%"), (-1e308, "0%"), (nan, "0%")],
)
def test_a_fraction_is_a_percentage(fraction: float, text: str) -> None:
    assert percent(fraction) == text


def test_a_past_time_is_never_shown_as_future() -> None:
    """As when another host's clock is ahead of ours, or the time was read before the row."""
    assert ago(None, 100.0) == ""
    assert ago(99.5, 100.0) == "now"
    assert ago(97.0, 100.0) == "3 s ago"
    assert ago(160.0, 100.0) == "now"


def test_a_due_time_may_be_future_or_past() -> None:
    assert due(None, 100.0) == ""
    assert due(100.5, 100.0) == "now"
    assert due(97.0, 100.0) == "3 s ago"
    assert due(160.0, 100.0) == "in 1 min"


@each_case(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (734 << 20, "734 MiB")]
)
def test_sizes_are_binary(count: int, text: str) -> None:
    assert size(count) == text


def test_terminal_control_characters_are_escaped() -> None:
    assert safe("a\x1b[2Jb\r\x00\x9b\u202e\ud800é\n\tc") == (
        "a\\x1b[2Jb\\r\\x00\\x9b\\u202e\\ud800é\n\tc"
    )


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_a_safe_text_is_printable_and_can_be_encoded(text: str) -> None:
    shown = safe(text)
    shown.encode()
    assert not any(ord(one) < 32 and one not in "\n\t" for one in shown)
    assert "\x1b" not in shown


def test_lines_leave_out_the_middle_and_say_so() -> None:
    shown = lines("\n".join(map(str, range(100))), 5)
    assert shown == ["0", "1", "… 96 lines …", "98", "99"]
    assert lines("a\nb", 5) == ["a", "b"]


def test_cut_and_line() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
    assert line("  a\n  b\x00 ", 100) == "a b\\x00"
    assert line(None) == ""


def test_stored_json_is_laid_out_and_bounded() -> None:
    assert pretty('{"a":1}', 20) == ['{"a": 1}']
    assert len(pretty("[" + ",".join(map(str, range(1000))) + "]", 20)) == 20
    assert max(map(len, pretty('["' + "x" * 5000 + '"]', 20))) <= 200
    assert pretty("{damaged", 20) == ["{damaged"]


def test_a_grid_cuts_texts_before_it_cuts_numbers() -> None:
    task = "a long name of a task " * 3
    row = {"ID": "123456789", "TASK": task, "EMPTY": "", "STATE": "unservable"}
    out = Console(width=40, record=True, file=None, highlight=False)
    with out.capture() as captured:
        out.print(table([row], 40))
    head, shown = captured.get().splitlines()
    assert "EMPTY" not in head
    assert shown.startswith("123456789  a long")
    assert shown.rstrip().endswith("…  unservable")
    assert len(shown) <= 40


def test_a_grid_without_room_drops_its_last_texts() -> None:
    names = {"TASK": "a long name of a task", "NOTE": "a long note"}
    rows = [{"ID": "123456789", **names, "STATE": "unservable"}]
    assert table(rows, 30).headers == ["ID", "TASK", "STATE"]
    assert table(rows, 20).headers == ["ID", "STATE"]


def test_a_grid_never_cuts_a_number() -> None:
    row = {"TOKEN": "1790000000000001", "OUTCOME": "completion_not_committed", "PID": "31337"}
    out = Console(width=36, highlight=False)
    with out.capture() as captured:
        out.print(table([row], 36))
    shown = captured.get().splitlines()[1]
    assert shown.split() == ["1790000000000001", "completion…", "31337"]


@each_case("text", ["[" * 20_000, "[" * 20_000 + "]" * 20_000, "9" * 5_000, "[1e999]"])
def test_json_that_python_cannot_parse_is_shown_unchanged(text: str) -> None:
    assert "".join(pretty(text, 10)).startswith(text[:10].replace("1e999", "Infinity"))
