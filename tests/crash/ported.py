"""The project of docs/coming-from/celery.md, whose first charge waits behind its follow-up."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import psycopg

import outlast
from harness.journal import begin
from harness.scene import ROOT
from outlast.client.task import BoundTask

PAGE = (ROOT / "docs" / "coming-from" / "celery.md").read_text()


def project() -> dict[str, Any]:
    """Run what the page shows, with what it shows for PostgreSQL there; return its names."""
    names: dict[str, Any] = {"__name__": "shop.jobs", "psycopg": psycopg}
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(program, "jobs.py", "exec", dont_inherit=True), names)
    if names["app"].url.startswith("postgresql"):
        (instead,) = re.findall(r"^```\n(def transaction.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        exec(instead, names)
    return names


app: outlast.App = project()["app"]
tasks = app.tasks


@app.lifespan
def hold_the_first() -> Iterator[None]:
    """In runners: an attempt that is its job's first never returns from what it enqueues."""
    bound: Any = BoundTask
    plain = bound.enqueue_sync

    def enqueue_and_wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        job = plain(self, *args, **kwargs)
        if outlast.current().number == 1:
            begin()
            threading.Event().wait()
        return job

    bound.enqueue_sync = enqueue_and_wait
    yield
