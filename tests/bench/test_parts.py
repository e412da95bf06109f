"""The benchmarks can be started, and report what they saw: also what went wrong."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench import false_alarms, kit, recovery
from bench.cases import CASES, Case, Seen
from bench.faults import FAULTS
from bench.load import Count
from harness.servers import PostgresServer

SEEN = Seen(start=0.1, noticed=0.05, cause="signalled: SIGKILL", gone=True)


def test_each_benchmark_can_be_imported() -> None:
    for module in ("__main__", "recovery", "false_alarms", "rates", "tasks"):
        importlib.import_module(f"bench.{module}")


def test_names_of_lines_are_unique() -> None:
    for lines in (CASES, FAULTS):
        assert len({line.name for line in lines}) == len(lines)


async def fails(stage: object) -> Seen:
    raise AssertionError("waited 30 s for the start of attempt 2\nlogs of workers")


async def test_a_round_that_fails_is_reported_and_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def once(case: Case, kind: str, postgres: PostgresServer) -> Seen:
        return await case.play(None)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "once", once)
    line = recovery.Line(Case(name="x", since="y", play=fails, target=1), "sqlite", [SEEN])
    await recovery.one_round(2, line, None)  # type: ignore[arg-type]
    assert line.failed == ["AssertionError: waited 30 s for the start of attempt 2"]
    assert line.row()[-2] == "1 (1 failed)"


def test_a_missed_target_and_a_survivor_are_reported() -> None:
    late = Seen(start=3, noticed=2, cause="lost_worker", gone=False, stack=False)
    line = recovery.Line(Case(name="x", since="y", play=fails, target=1), "sqlite", [late])
    assert line.remarks() == (
        "lost_worker; PROCESSES OF THE FIRST ATTEMPT ALIVE in 1;"
        " stack names the task in 0 of 1; TARGET MISSED"
    )


def test_zeros_are_expected_everywhere_but_in_the_control() -> None:
    healthy, control = FAULTS[0], FAULTS[-1]
    assert (healthy.healthy, control.healthy) == (True, False)
    for fault, count, expected in (
        (healthy, Count(), True),
        (healthy, Count(twice=1), False),
        (control, Count(), False),
        (control, Count(lost=1), True),
        (healthy, None, False),
    ):
        assert false_alarms.Line(fault=fault, store="x", count=count).as_expected() is expected
    wrong = false_alarms.Line(fault=healthy, store="x", count=Count(), failed="history")
    assert not wrong.as_expected()
    assert "FAILED: history" in wrong.remarks()


def test_a_table_goes_to_its_place_on_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\nold\n<!-- end of x -->\nz\n")
    monkeypatch.setattr(kit, "PAGE", page)
    kit.table("x", ["one", "two"], [["1", "2"]], page=True)
    shown = page.read_text()
    assert "old" not in shown
    assert "| one | two |\n| --- | --- |\n| 1 | 2 |\n\n<!-- end of x -->\nz\n" in shown


def test_the_page_has_a_place_for_each_table() -> None:
    text = kit.PAGE.read_text()
    for name in ("recovery", "alarms"):
        assert f"<!-- {name} -->" in text
        assert f"<!-- end of {name} -->" in text
