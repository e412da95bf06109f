"""The adapter for the neutral harness speaks its protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import bench.neutral

ADAPTER = Path(bench.neutral.__file__).with_name("adapter.py")
SETTINGS = {"SCENARIO": "long_horizon", "SAMPLE_EVERY_S": "1", "PRODUCER_RATE": "50"}
REQUIRED = {
    "claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "enqueue_rate", "completion_rate",
    "queue_depth", "producer_target_rate",
}  # fmt: skip


def test_the_adapter_describes_itself_samples_and_ends(bare_pg_url: str) -> None:
    env = {**os.environ, **SETTINGS, "DATABASE_URL": bare_pg_url}
    with subprocess.Popen(
        [sys.executable, ADAPTER], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        described = json.loads(process.stdout.readline())
        manifest = json.loads(ADAPTER.with_name("adapter.json").read_text())
        assert described["kind"] == "descriptor"
        assert described["event_tables"] == manifest["event_tables"]
        said: dict[str, list[float]] = defaultdict(list)
        for text in process.stdout:
            line = json.loads(text)
            said[line["metric"]].append(line["value"])
            if len(said["producer_target_rate"]) == 2:
                break
        process.terminate()
        process.stdout.read()
        assert process.wait(30) == 0
    assert set(said) == REQUIRED
    assert all(said["completion_rate"])
    assert said["producer_target_rate"] == [50.0, 50.0]
