"""The API does what its openapi.json says: schemathesis tries what is described there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from harness.page import serving
from harness.stores import opened
from tests.contract.scene import StandingClock, fill

PROGRAM = Path(sys.executable).with_name("schemathesis")
HOW = "--seed 1 --max-examples 12 --generation-database none --generation-codec latin-1"
PLACES = "--phases examples,coverage,fuzzing --request-timeout 20 --max-failures 200"
QUIET = "--no-color --suppress-health-check all"


@pytest.mark.slow
def test_the_api_does_what_it_describes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, clock = f"sqlite:///{tmp_path}/store.db", StandingClock(monkeypatch)

    async def make() -> None:
        async with opened(url) as store:
            await fill(store, clock)

    asyncio.run(make())
    with serving(url) as address:
        where = [f"{address}api/v1/openapi.json", "--header", "Sec-Fetch-Site: none"]
        told = subprocess.run(
            [PROGRAM, "run", *where, *HOW.split(), *PLACES.split(), *QUIET.split()],
            cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    assert told.returncode == 0, told.stdout[-20_000:] + told.stderr
