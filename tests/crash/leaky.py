"""An application that is careless with the password of its store."""

from __future__ import annotations

import os
import time
from urllib.parse import unquote, urlsplit

import outlast
from harness.journal import begin
from tests.crash.application import ENOUGH

app = outlast.App()


@app.task(retries=0)
def raises_its_url() -> None:
    url = os.environ["OUTLAST_URL"]
    print(f"connecting to {url}", flush=True)
    raise RuntimeError(f"cannot connect to {url} as {unquote(urlsplit(url).password or '')}")


@app.task(retries=0)
def dies_with_its_url() -> None:
    os.write(2, f"{os.environ['OUTLAST_URL']} {os.environ['OUTLAST_WAKEUP']}\n".encode())
    os._exit(3)


@app.task(retries=0)
async def enqueues() -> int:
    """Do the one thing for which a task needs the URL."""
    return (await holds.enqueue()).id


@app.task(retries=0)
def holds() -> None:
    begin()
    while not ENOUGH.exists():
        time.sleep(0.05)
