"""The picture and the numbers: whole files, readable, and the same for the same numbers."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.census.evolution import Evolution, Sample
from examples.census.languages import OTHER
from examples.census.picture import (
    OTHER_COLOUR,
    PALETTE,
    Interruption,
    bands,
    draw,
    in_order,
    numbers,
    write_numbers,
    write_pictures,
)

pytestmark = pytest.mark.slow  # drawing takes much, and an example alone draws
START, DAY = 1_600_000_000, 86_400


def evolution(*lines: dict[str, int], name: str = "project", **facts: object) -> Evolution:
    samples = [
        Sample(f"{n:040x}", START + n * DAY, len(line), 1, int(bool(facts.get("skipped"))), line)
        for n, line in enumerate(lines)
    ]
    return Evolution(name, "f" * 40, 1_000, bool(facts.get("shallow")), 100, samples)


def grown(languages: int = 3, samples: int = 20, **facts: object) -> Evolution:
    lines = [
        {f"language {k}": 1_000 * (k + 1) + n * k for k in range(languages)} for n in range(samples)
    ]
    return evolution(*lines, **facts)  # type: ignore[arg-type]


def texts(whole: Evolution, interruption: Interruption | None = None) -> list[str]:
    """All texts of the picture."""
    figure = draw(whole, interruption)
    (axes,) = figure.axes
    figure.draw_without_rendering()
    labels = [label.get_text() for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]
    return [text.get_text() for text in [*figure.texts, *axes.texts]] + labels


def test_png_and_svg_are_written_whole(tmp_path):
    png, svg = tmp_path / "p.png", tmp_path / "p.svg"
    write_pictures(grown(), png, svg, interruption=Interruption(12, 10))
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png.read_bytes()[16:24]) == (1_800, 960)
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.png", "p.svg"]


def test_equal_numbers_make_equal_files(tmp_path):
    for name in ("a", "b"):
        write_pictures(grown(), tmp_path / f"{name}.png", tmp_path / f"{name}.svg")
    for kind in ("png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "p.png").mkdir()
    with pytest.raises(OSError):
        write_pictures(grown(), tmp_path / "p.png")
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]
    with pytest.raises(FileNotFoundError):
        write_numbers(tmp_path / "gone" / "n.json", grown())


def test_the_picture_has_titles_and_labels():
    said = texts(grown(3, 20), Interruption(killed_at=12, resumed_from=10))
    assert "project: lines of code by language" in said
    assert "6,057 lines in 3 files  ·  20 of 1,000 commits counted" in said
    assert "worker killed here, resumed from commit 10" in said
    assert {"language 0", "language 1", "language 2", "1,000", "2,019", "3,038"} <= set(said)
    assert "6,000" in said, "no thousands separators on the axis"


def test_the_picture_names_skipped_files():
    said = " ".join(texts(grown(shallow=True, skipped=True)))
    assert "a shallow clone" in said
    assert "1 files too large or missing, not counted" in said


def test_a_restarted_job_is_marked_in_the_picture():
    assert "from the first commit" in Interruption(3, 0).label


@pytest.mark.parametrize("killed_at", [0, 1, 19, 20, 99])
def test_the_mark_stays_inside_wherever_the_worker_died(killed_at):
    figure = draw(grown(), Interruption(killed_at, 0))
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    (mark,) = axes.lines
    places: Any = mark.get_xdata()
    assert all(low <= x <= high for x in places)
    box = axes.texts[-1].get_window_extent()
    assert axes.get_window_extent().x0 - 1 <= box.x0
    assert box.x1 <= axes.get_window_extent().x1 + 1


@pytest.mark.parametrize(("languages", "samples"), [(0, 1), (1, 2), (10, 1), (60, 50)])
def test_any_number_of_languages_and_samples_can_be_drawn(tmp_path, languages, samples):
    write_pictures(grown(languages, samples), tmp_path / "p.svg", interruption=Interruption(1, 0))


@pytest.mark.parametrize(
    "name",
    ["a $x_1^2$ b", "a\\frac", "日本語 ünïcode", "<&>", "x" * 500, "\N{REPLACEMENT CHARACTER}"],
)
def test_any_name_can_be_a_title(tmp_path, name):
    write_pictures(grown(name=name), tmp_path / "p.png", tmp_path / "p.svg")
    ET.parse(tmp_path / "p.svg")


def test_nothing_counted_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(evolution())


def test_the_nine_largest_languages_are_shown_and_the_rest_is_other():
    late = [{f"l{k:02}": 100 + k for k in range(20)} for _ in range(9)]
    late[-1]["l00"] = 10_000
    late[0][OTHER] = 5
    shown = bands(evolution(*late))
    assert [band.name for band in shown] == ["l00", *(f"l{k}" for k in range(19, 11, -1)), OTHER]
    assert [band.colour for band in shown] == [*PALETTE, OTHER_COLOUR]
    for n, line in enumerate(late):
        assert sum(band.lines[n] for band in shown) == sum(line.values())


def test_few_languages_need_no_other():
    assert [band.name for band in bands(evolution({"C": 1, "Ada": 2}))] == ["Ada", "C"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([5], [5]),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 1, 1], [1, 1, 1]),
        ([10, 20, 0, 30], [10, 20, 25, 30]),
        ([10, 99, 30, 40], [10, 20, 30, 40]),
        ([10, 99, 98, 40], [10, 20, 30, 40]),
        ([50, 20, 30, 40], [20, 20, 30, 40]),
        ([20, 30, 40, 0], [20, 30, 40, 40]),
    ],
)
def test_wrong_commit_dates_are_moved_between_their_neighbours(seconds, expected):
    assert in_order(seconds) == expected


def test_numbers_are_one_document_with_all_samples(tmp_path):
    path = tmp_path / "n.json"
    whole = evolution({"C": 1}, {"C": 2, "日本": 3}, name="r\N{REPLACEMENT CHARACTER}é")
    write_numbers(path, whole, interruption=Interruption(1, 0))
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document == numbers(whole, Interruption(1, 0))
    assert document["schema"] == 1
    assert document["repository"] == whole.repository
    assert document["interruption"] == {"killed_at": 1, "resumed_from": 0}
    assert document["commits"][1] == {
        "id": f"{1:040x}",
        "date": "2020-09-14T12:26:40+00:00",
        "files": 2,
        "binary": 1,
        "skipped": 0,
        "lines": {"C": 2, "日本": 3},
    }
    assert numbers(whole)["interruption"] is None


def test_drawing_needs_no_display_and_loads_no_pyplot(tmp_path):
    program = (
        "import sys, examples.census.picture as p\n"
        "from pathlib import Path\n"
        "from examples.census.evolution import Evolution, Sample\n"
        "assert 'matplotlib' not in sys.modules\n"
        "e = Evolution('r', 'f', 1, False, 2, [Sample('a', 1, 1, 0, 0, {'C': 1})])\n"
        "p.write_pictures(e, Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    out = str(tmp_path / "p.png")
    subprocess.run([sys.executable, "-W", "error", "-c", program, out], check=True)
    assert Path(out).exists()
