"""bench/results/tables.md is written by code: the verdicts, the tables and their places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import commands, kit, page, steady, targets
from bench.__main__ import PERFORMANCE
from bench.contenders import ALL_ENTRIES
from bench.environment import ADAPTERS, REQUIREMENTS
from bench.rates import Line, Round, steps

DRAIN = targets.DRAIN1
PAGE = kit.PAGE


def line(name: str, rate: float, what: str = DRAIN, **figures: float) -> dict[str, object]:
    one = {"jobs": 100, "rate": rate, "client_us": 1.0, **figures}
    store = "sqlite" if "sqlite" in name else "postgres"
    return {"name": name, "what": what, "store": store, "settings": "", "rounds": [one]}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(kit, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "tables.md")
    monkeypatch.setattr(page, "PICTURES", tmp_path / "pictures")
    (tmp_path / "tables.md").write_text(PAGE.read_text())
    return tmp_path


def keep(folder: Path, part: str, values: list[dict[str, object]]) -> None:
    document = {"at": "2026-01-01", "machine": {"cores": 2}, "values": values}
    (folder / f"{part}.json").write_text(json.dumps(document))


def verdicts() -> dict[str, targets.Row]:
    return {row.measure: row for row in targets.rows(targets.Results())}


def test_targets_are_judged_by_the_medians_that_were_kept(results: Path) -> None:
    ours = line("Outlast postgres in process", 9_000, database_us=51, wal=900, transactions=0.01)
    keep(results, "rates", [ours, line("PgQueuer", 3_000), line(targets.FLOOR, 20_000)])
    rows = list(targets.rows(targets.Results()))
    told = {(row.measure, row.unit): row.told for row in rows if row.met is not None}
    drain = "drain, 1 worker: postgres in process"
    assert told[drain, "x PgQueuer"] == "met"
    assert told[drain, f"x {targets.FLOOR}"] == "**missed**: 75% of the target"
    cost = "per job, drain, 1 worker: postgres in process"
    assert told[f"database CPU {cost}", "us"] == "**missed**: 1 times the target"
    assert told[f"WAL {cost}", "B"] == "met"
    assert len(told) == 5, "the others were not measured, and are neither met nor missed"


def test_a_page_shows_stolen_time_beside_rates_over_time() -> None:
    assert page.taken([]) == "not noted"
    assert page.taken([0.0, 0.3, 0.0]) == "10.0%; most at 10 s: 30%"


def test_the_rate_over_time_compares_the_last_with_the_first(results: Path) -> None:
    flow = {"name": "Outlast postgres in process", "what": "held", "first": 1000.0, "last": 799.0}
    keep(results, "held", [flow])
    row = verdicts()["with a transaction held open for 2 minutes, its last 30 s"]
    assert (row.measured, row.met, row.detail) == (0.799, False, "799/s after 1,000/s")
    assert steady.between([1.0, 2.0, 3.0, 14.0], 2.0, 4.0) == 1.0


def test_the_page_is_written_from_what_was_measured_and_says_what_was_not(results: Path) -> None:
    failed: dict[str, object] = {
        "name": "Chancy",
        "what": DRAIN,
        "store": "postgres",
        "settings": "",
    }
    values = [line("PgQueuer", 3_000), failed | {"failed": ["not here: x"]}]
    keep(results, "rates", values)
    page.main()
    text = (results / "tables.md").read_text()
    assert "| PgQueuer | 3,000 | 1 | 100 |" in text
    assert "| Chancy | not here: x |" in text
    assert page.NOT_YET in text
    assert (results / "pictures" / "drain-1-worker.svg").exists()


def test_the_page_has_a_place_for_each_section() -> None:
    text = PAGE.read_text()
    for name in page.SECTIONS:
        assert f"<!-- {name} -->" in text
        assert f"<!-- end of {name} -->" in text
    for part in PERFORMANCE:
        assert f"`{part}`" in text, part


def test_each_contender_has_an_adapter_and_pinned_requirements() -> None:
    assert len({entry.name for entry in ALL_ENTRIES}) == len(ALL_ENTRIES)
    for entry in ALL_ENTRIES:
        assert (ADAPTERS / entry.program).exists()
        if entry.environment:
            pins = (REQUIREMENTS / f"{entry.environment}.txt").read_text().split()
            assert all("==" in pin for pin in pins), entry.environment


def test_slow_contenders_get_fewer_jobs_and_each_gets_some() -> None:
    todo = list(steps(ALL_ENTRIES, 20_000, ["drain"]))
    jobs = [step.jobs for step in todo]
    assert (min(jobs) >= 300, max(jobs)) == (True, 20_000)
    slow = [step.jobs for step in todo if step.entry.speed < 1000]
    assert max(slow) < 5_000
    assert {step.workers for step in todo} == {1, 2}


def test_a_median_is_over_the_rounds_that_were_played() -> None:
    rounds = [Round(jobs=1, rate=rate, client_us=1.0) for rate in (1.0, 5.0, 2.0)]
    one = Line(name="x", what=DRAIN, store="postgres", settings="", rounds=rounds)
    assert one.median() == 2.0
    assert one.spread() == "2 (1 to 5)"


def test_the_slowest_command_is_held_to_half_a_second(results: Path) -> None:
    figure: dict[str, object] = {
        "name": "large",
        "what": commands.SLOWEST,
        "unit": "s",
        "values": [0.4, 0.75, 0.6],
    }
    keep(results, "commands", [figure])
    (row,) = (
        row for row in targets.rows(targets.Results()) if row.unit == "s" and row.met is False
    )
    assert (row.measured, row.told) == (0.6, "**missed**: 1.2 times the target")
    assert row.measure.endswith("50,000,000 rows of history on PostgreSQL")
