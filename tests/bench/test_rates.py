"""The harness of the benchmarks works: it counts all jobs of a small run. Nothing is timed here."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import kit
from bench.__main__ import main
from bench.rates import Line
from harness.servers import PostgresMissing, find_debian_binaries


def measured(folder: Path, *arguments: str) -> dict[tuple[str, str], Line]:
    assert main(["rates", "--quick", *arguments]) == 0
    values = msgspec.json.decode((folder / "rates.json").read_bytes())["values"]
    lines = msgspec.convert(values, list[Line])
    return {(line.name, line.what): line for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(300)  # starts a server and two workers, maybe on a busy machine
@pytest.mark.parametrize(
    "server", ["wheel", pytest.param("debian", marks=pytest.mark.debian_postgres)]
)
def test_a_quick_run_measures_outlast_and_the_floor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str
) -> None:
    if server == "debian":
        try:
            monkeypatch.setenv("OUTLAST_TEST_PG_BIN", str(find_debian_binaries()))
        except PostgresMissing as missing:
            pytest.skip(str(missing))
    monkeypatch.setattr(kit, "PARTIAL", tmp_path)
    names = "postgres runners plain,sqlite in process plain,asyncpg 100"
    lines = measured(tmp_path, "--only", names, "--jobs", "200", "--what", "drain")
    assert len(lines) == 3, lines
    for (name, what), line in lines.items():
        (one,) = line.rounds
        assert one.jobs == 200, (name, what)
        assert one.rate > 0
        if "drain" in what and ("postgres" in name or "asyncpg" in name):
            assert one.wal > 0
            assert one.transactions > 0
            assert one.dead >= 2  # a claim and an end
