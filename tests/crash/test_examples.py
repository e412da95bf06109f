"""The examples as people run them: each judges itself, and its table is what they read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.rabbit_server import missing as rabbit_missing
from harness.scene import ROOT

pytestmark = pytest.mark.xdist_group("examples")  # one after the other

SECONDS = 540.0  # that one may take on a loaded machine; it takes 15 to 40


def said_by(example: str) -> str:
    """Run an example; return what it has said."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(SECONDS + 20)
@pytest.mark.parametrize(
    ("example", "rows"),
    [
        ("analysis_service", ["A4 A9", "A5 A9", "A3 A9", "A6", "A7 A12", "A8", "A11"]),
        ("shell_queue", ["D1", "D2", "D3", "D4", "D5", "D7"]),
        pytest.param(
            "automation_registry",
            ["B1", "B2", "B3", "B4", "B5", "B6", "B7"],
            marks=[
                pytest.mark.rabbitmq,
                pytest.mark.skipif(rabbit_missing() is not None, reason=f"{rabbit_missing()}"),
            ],
        ),
        ("lease_mail", ["C1 C4", "C2", "C3", "C3", "C7"]),
        ("order_import", ["E1", "E2", "E3", "E4"]),
        ("cells", ["1", "2", "3", "4"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_example_passes_its_own_checks(example: str, rows: list[str]) -> None:
    table = [line for line in said_by(example).splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].split(":")[0].strip() for line in table[1:]] == rows


@pytest.mark.timeout(SECONDS + 20)
def test_no_kill_makes_the_assistant_call_a_tool_twice() -> None:
    said = said_by("agent")
    assert said.count("each run ended like the one without a crash") == 3
    for point in ("plan", "event approve", "book"):
        assert f"keep step {point}" in said
    assert "enqueue use_tool" in said
