"""An application whose two releases declare the same schedule for different times."""

from __future__ import annotations

import os

import outlast

EVERY = {"old": 1, "new": 2}  # seconds
RELEASE = os.environ.get("OUTLAST_TEST_RELEASE", "old")

app = outlast.App()


@app.task
async def report(release: str) -> str:
    """Return which release has declared the tick."""
    return release


app.schedule("nightly", report.call(RELEASE), every=EVERY[RELEASE], overlap="allow")
