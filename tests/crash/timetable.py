"""An application whose code declares a schedule."""

from __future__ import annotations

import outlast

app = outlast.App()


@app.task
async def tick() -> None:
    """Do nothing."""


app.schedule("each-second", tick.call(), every=1, overlap="allow")
