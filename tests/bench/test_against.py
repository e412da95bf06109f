"""An older commit is measured beside this one, each from its own files. Nothing is timed here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from bench import against, kit
from bench.__main__ import main
from bench.against import Pair
from bench.environment import ROOT


def is_a_clone() -> bool:
    git = ["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD:src"]
    return subprocess.run(git, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(300)  # starts two workers, maybe on a busy machine
@pytest.mark.skipif(not is_a_clone(), reason="no commit to compare with")
def test_a_commit_is_unpacked_and_drains_beside_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kit, "PARTIAL", tmp_path)
    chosen = ["--quick", "--jobs", "400", "--only", "sqlite", "--what", "drain"]
    assert main(["against", "HEAD", *chosen]) == 0
    values = msgspec.json.decode((tmp_path / "against.json").read_bytes())["values"]
    pairs = {pair.what: pair for pair in msgspec.convert(values, list[Pair])}
    assert set(pairs) == {"CPU of worker and runners a job, us", "jobs a second, drain"}
    for pair in pairs.values():
        (ratio,) = pair.ratios()
        assert ratio > 0


@pytest.mark.parametrize("parts", [["against"], ["against", "HEAD", "rates"], ["rates", "against"]])
def test_against_wants_one_commit_and_no_other_part(
    parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(parts)
    assert "against COMMIT" in capsys.readouterr().err


def test_a_commit_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nothing-of-that-name cannot be read"):
        against.unpack("nothing-of-that-name", tmp_path)


def test_ratios_are_those_of_neighbours() -> None:
    pair = Pair(name="x", what="y", then=[100, 200, 0], now=[80, 180, 5])
    assert pair.ratios() == [0.8, 0.9]
    assert pair.cells() == ["x", "y", "100", "80", "0.85 (0.80 to 0.90)"]
