"""The files in ops/ and the pages about them: their names are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.cases import each_case
from tests.metrics.kit import full_look, page_of

ROOT = Path(__file__).resolve().parents[2]
ALERTS = (ROOT / "ops" / "alerts.yaml").read_text()
TESTS = (ROOT / "ops" / "alerts_test.yaml").read_text()
DASHBOARD = (ROOT / "ops" / "grafana.json").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
NAME = re.compile(r"\boutlast_[a-z_]+\b")
KEYS = [
    "NoWorkers", "QueueLate", "Unservable", "LimitClosed", "DeadGrowing", "WorkersDying",
    "WorkersFailing", "LeaseLost", "WritesRefused", "SuspectsWaiting", "WakeupsLost",
    "ExporterStale",
]  # fmt: skip


def exported() -> dict[str, str]:
    """Names of the families as people write them -> their types."""
    families = text_string_to_metric_families(page_of(full_look()))
    return {
        f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families
    }


def series() -> set[str]:
    histograms = [name for name, kind in exported().items() if kind == "histogram"]
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return exported().keys() | parts


def test_the_page_lists_what_is_exported_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(outlast_\w+)` \| (\w+) \|(.*)\|$", METRICS, re.MULTILINE)
    assert {name: kind for name, kind, _ in rows} == exported()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page_of(full_look())):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels[name] = {label for one in family.samples for label in one.labels} - {"le"}
    for name, _, told in rows:
        assert labels[name] == {
            one for one in re.findall(r"`(\w+)`", told) if not one.startswith("outlast_")
        }


@each_case("text", [ALERTS, TESTS, DASHBOARD, RUNBOOKS])
def test_only_names_that_are_exported_are_used(text: str) -> None:
    assert set(NAME.findall(text)) - series() == set()


def test_each_alert_has_a_runbook_and_a_test() -> None:
    alerts = re.findall(r"alert: Outlast(\w+)", ALERTS)
    assert alerts == KEYS
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == KEYS
    assert set(re.findall(r"alertname: Outlast(\w+)", TESTS)) == set(KEYS)
    urls = re.findall(r"runbook\w*: (.*)", ALERTS)
    assert all(url.startswith("https://") for url in urls), "a tool cannot open a path of ours"
    fires = re.findall(r"alertname: Outlast(\w+)\n\s+exp_alerts:\n", TESTS)
    assert set(fires) == set(KEYS)


@each_case("key", KEYS)
def test_a_runbook_begins_with_the_command_that_shows_most(key: str) -> None:
    section = RUNBOOKS.partition(f"## {key}\n")[2].strip()
    assert re.match(r"`outlast (why|doctor|workers)[ `]", section)


def test_each_panel_of_the_dashboard_asks_for_something() -> None:
    board = json.loads(DASHBOARD)
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(asked) >= len(board["panels"]) == len({panel["id"] for panel in board["panels"]})
    assert all(NAME.search(expression) for expression in asked)
