"""A program that only enqueues prints nothing of its own, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENQUEUES = """
import outlast
app = outlast.App()
@app.task
def mail(to: str) -> None: ...
print(mail.enqueue_sync("ada").id)
"""

ENQUEUES_IN_A_LOOP = """
import asyncio, outlast
app = outlast.App()
@app.task
def mail(to: str) -> None: ...
async def main():
    print((await mail.enqueue("ada")).id)
asyncio.run(main())
"""


@pytest.mark.slow_on("sqlite")
@pytest.mark.parametrize("program", [ENQUEUES, ENQUEUES_IN_A_LOOP], ids=["sync", "loop"])
def test_a_program_that_enqueues_prints_nothing_and_ends(
    program: str, store_url: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "OUTLAST_URL": store_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
