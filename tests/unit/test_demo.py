"""The job of `outlast demo`: what it counts, and where it goes on."""

from __future__ import annotations

import json
import re

import pytest

from outlast.cli import main
from outlast.demo import count_between
from tests.cases import each_case
from tools import demo_picture


def test_a_block_has_as_many_primes_as_a_division_by_all_finds():
    for start, stop in ((0, 1), (0, 2), (0, 3), (1, 30), (2, 3), (90, 100), (7, 7), (113, 128)):
        expected = [
            number
            for number in range(max(start, 2), stop)
            if all(number % factor for factor in range(2, number))
        ]
        assert count_between(start, stop) == len(expected), (start, stop)


@each_case("blocks", [1, 7, 40])
def test_blocks_add_up_to_the_known_number(blocks):
    limit = 1_000_000
    edges = [limit * block // blocks for block in range(blocks + 1)]
    assert sum(map(count_between, edges, edges[1:])) == 78_498


@pytest.mark.parametrize(
    ("checkpoint", "saved"), [([], 0), (["--checkpoint", '{"blocks": 5, "primes": 95}'], 5)]
)
def test_an_attempt_goes_on_from_the_checkpoint(checkpoint, saved, capsys):
    task = ["run-task", "outlast.demo:app", "outlast.demo.count_primes"]
    assert main([*task, "1000", "10", *checkpoint]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"primes": 168, "began_after": saved}
    assert said.err.count("save: ") == 10 - saved


def words_in(picture):
    """Return what a drawn terminal shows; its spaces do not break."""
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", picture)
    return "".join(texts).replace("&#160;", " ")


def test_the_picture_shows_what_the_demo_writes_and_asks_no_other_server():
    written = "  5.1 s  \x1b[1;31m$ kill -9 7    # amber\x1b[0m\ncode    /home/ada/demo.py\n"
    drawn = demo_picture.draw(written)
    assert "$ kill -9 7    # amber" in words_in(drawn)
    assert "/home/ada" not in drawn
    kept = demo_picture.PICTURE.read_text()
    for shown in ("$ outlast demo", "kill -9", "noticed after", "goes on from block", "rules hold"):
        assert shown in words_in(kept), shown
    for picture in (drawn, kept):
        assert "url(http" not in picture.replace(" ", "")
