"""``outlast stats`` on both stores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from outlast.cli.stats import _lines as describe
from outlast.insight.stats import stats_document
from tests.cli.conftest import Filled, environment
from tests.metrics.kit import full_look
from tests.unit.insight.rows_kit import names

QUEUE_NAMES = names(
    """queue queued due paused scheduled suspects blocked running completed cancelled dead
    oldest_due_seconds
    at_least"""
)


def test_stats_as_json_have_stable_names(filled: Filled) -> None:
    document = filled("stats", "--json").json()
    assert set(document) == names(
        "schema queues unservable pauses workers ill wakeups deactivations refusals completed"
        " more_lanes limits"
    )
    assert document["schema"] == 1
    default, post = document["queues"]
    assert set(default) == QUEUE_NAMES
    shown = {name: default[name] for name in QUEUE_NAMES - {"oldest_due_seconds"}}
    assert shown == {
        "queue": "default",
        "queued": 5,
        "due": 2,
        "paused": 0,
        "scheduled": 2,
        "suspects": 1,
        "blocked": 0,
        "running": 1,
        "completed": 1,
        "cancelled": 1,
        "dead": 0,
        "at_least": [],
    }
    assert default["oldest_due_seconds"] >= 0
    assert (post["queue"], post["dead"], post["queued"]) == ("post", 1, 0)
    assert document["workers"] == {"active": 1, "draining": 0, "stopped": 1, "lost": 0}
    assert document["refusals"] == {"day": 1}
    assert document["completed"] == {"minute": 1, "hour": 1, "at_least": []}
    (waits,) = document["unservable"]
    assert (waits["task"], waits["due"], waits["reason"]) == ("old.name", 1, "unservable")


def test_people_see_tables_and_a_few_lines(rows: Filled) -> None:
    said = rows("stats")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    heads = ["QUEUE", "DUE", "OLDEST", "PAUSED", "SCHEDULED", "SUSPECTS"]
    assert lines[0].split()[:6] == heads
    assert lines[1].split()[:2] == ["default", "2"]
    assert "no worker can take" in lines
    assert any(line.startswith("old.name  default") for line in lines)
    assert "workers    1 active, 0 draining, 1 stopped, 0 lost; 0 lost in the last hour" in said.out
    assert "refused    1 writes in the last day" in said.out


def test_limits_that_jobs_wait_for_are_a_line() -> None:
    document = stats_document(full_look().statistics, [])
    assert "limits     due jobs wait for api (7), gone (2+)" in describe(document)


def test_watching_goes_on_until_it_is_interrupted(rows: Filled, folder: Path) -> None:
    command = [sys.executable, "-m", "outlast.cli", "stats", "--watch", "--json", "--url", rows.url]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as watching:
        try:
            assert watching.stdout is not None
            looks = [json.loads(watching.stdout.readline()) for _ in range(2)]
        finally:
            watching.terminate()
    assert [look["schema"] for look in looks] == [1, 1]
