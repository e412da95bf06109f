"""An application whose payloads are encrypted, with the keys of its environment."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import outlast
from harness.journal import begin
from tests.crash.application import ENOUGH

SECRET = "4111-1111"


def make_app(
    keys: dict[str, str], url: str | None = None, *, required: bool = False
) -> outlast.App:
    """Return the application with these keys; the first one writes."""
    codecs: list[Any] = []
    if keys:
        codecs = [outlast.Compression(least=0), outlast.Encryption(keys, required=required)]
    app = outlast.App(url, payloads=codecs)

    @app.task(backoff_first=0.01, backoff_max=0.02)
    def pay(card: str) -> dict[str, Any]:
        attempt = begin()
        saved = attempt.checkpoint or {"n": 0, "card": card}
        start = saved["n"]
        while not ENOUGH.exists():
            saved = {"n": saved["n"] + 1, "card": card}
            attempt.save_sync(saved)
        return {"paid": card, "from": start}

    @app.task(max_losses=1, backoff_first=0.01, backoff_max=0.02)
    def takes_its_worker_down() -> None:
        attempt = begin()
        attempt.save_sync({"n": 1})
        attempt.save_sync({"n": 2})
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

    app.schedule("nightly", pay.call(SECRET), every=3_600)
    return app


if "OUTLAST_TEST_KEYS" in os.environ:  # in a runner, and not where a test imports this
    app = make_app(
        json.loads(os.environ["OUTLAST_TEST_KEYS"]),
        required="OUTLAST_TEST_REQUIRED" in os.environ,
    )
