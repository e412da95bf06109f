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
