"""The picture of numbers step by step: as high as its largest, and safe with any name."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from outlast.web.render import draw_sparkline
from tests.cases import each_case


def drawn(attempts: list[int], failed: list[int], label: str = "Attempts") -> ET.Element:
    return ET.fromstring(draw_sparkline(attempts, failed, label))


def bars(picture: ET.Element) -> dict[str, str]:
    return {one.get("class", ""): one.get("d", "") for one in picture}


def test_each_number_is_a_bar_as_high_as_its_part_of_the_largest() -> None:
    picture = drawn([4, 0, 1, 3], [0, 0, 1, 0])
    assert picture.get("viewBox") == "0 0 12 24"
    assert bars(picture) == {
        "ended": "M0 24v-24h2v24zM6 24v-6h2v6zM9 24v-18h2v18z",
        "failed": "M6 24v-6h2v6z",
    }
    assert picture.get("aria-label") == "Attempts: 8 ended, 1 did not complete, at most 4 a step"


@each_case("attempts", [[], [0, 0]])
def test_where_nothing_ended_there_is_no_bar(attempts: list[int]) -> None:
    assert bars(drawn(attempts, [0] * len(attempts))) == {}


def test_a_name_cannot_leave_its_attribute() -> None:
    name = "\"/><script>alert('1')</script>&amp;"
    picture = drawn([1], [0], name)
    assert str(picture.get("aria-label")).startswith(name)
    assert [one.tag for one in picture.iter()] == ["svg", "path"]
