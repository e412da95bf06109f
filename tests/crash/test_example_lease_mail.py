"""The example as people run it: it judges itself, and its table is what they read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.crash.harness import ROOT

SECONDS = 540.0  # that it may take on a loaded machine; it takes about 25


@pytest.mark.timeout(SECONDS + 20)
def test_lease_mail_keeps_what_it_promises() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.lease_mail"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    rows = [line.split("|")[1].split(":")[0].strip() for line in table]
    assert rows[2:] == ["C1 C4", "C2", "C3", "C3", "C7"]
