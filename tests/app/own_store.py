"""An application whose store is where the environment says."""

from __future__ import annotations

import outlast

app = outlast.App()


@app.task
def nothing() -> None:
    """Do nothing."""


def call() -> outlast.Call[None]:
    return nothing.call()
