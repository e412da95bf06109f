"""One application on several stores, its cells: each tenant has one of them."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from outlast import App

CELLS: dict[str, str] = json.loads(os.environ.get("CELLS", "{}"))  # the URL of each
MOVED = Path(os.environ.get("CELLS_MOVED", "moved.json"))  # in earnest: your table of tenants
OPEN = ["queued", "blocked", "running"]


def invoice(tenant: str, number: int) -> None:
    """Write a line to a file, so that it can be seen what ran, and in which cell."""
    with Path(os.environ["CELLS_OUT"]).open("a") as file:
        file.write(f"{tenant} {number} {os.environ['CELL']}\n")


def make(url: str | None = None) -> App:
    """Make the application of one cell. All cells have the same tasks, limits and schedules."""
    cell = App() if url is None else App(url)
    cell.task(name="invoice", retries=3)(invoice)
    return cell


app = make()  # of a worker, whose cell is the one at OUTLAST_URL
apps = {name: make(url) for name, url in CELLS.items()}  # of a program that enqueues


def find_cell(tenant: str) -> str:
    """Return where a tenant has moved to, else the cell with the highest hash.

    With one cell more, tenants move to it and to no other one (rendezvous hashing: Thaler and
    Ravishankar, 1998).
    """
    return read_moved().get(tenant) or max(CELLS, key=lambda cell: score(cell, tenant))


def score(cell: str, tenant: str) -> bytes:
    return hashlib.sha256(f"{cell} {tenant}".encode()).digest()


def read_moved() -> dict[str, str]:
    moved: dict[str, str] = json.loads(MOVED.read_text() if MOVED.exists() else "{}")
    return moved


async def enqueue_invoice(tenant: str, number: int) -> None:
    """Enqueue in the tenant's cell; StoreUnavailable if that one cannot be reached."""
    task = apps[find_cell(tenant)].find("invoice")
    await task.using(tenant=tenant, key=f"{tenant}:{number}").enqueue(tenant, number)


async def move(tenant: str, to: str) -> None:
    """Move a tenant: its new jobs wait in the new cell until the old ones are done where they are.

    No job is copied. Call it again if it was interrupted. Programs have to read the new home
    within the first pause of a second; a job that is enqueued later in the old cell runs there.
    """
    await apps[to].pause(tenant=tenant, reason="moves to this cell")
    part = MOVED.with_suffix(".part")
    part.write_text(json.dumps({**read_moved(), tenant: to}))
    part.replace(MOVED)
    await asyncio.sleep(1)
    while any(has_open_jobs(tenant, url) for name, url in CELLS.items() if name != to):
        await asyncio.sleep(1)
    await apps[to].resume(tenant=tenant)


def has_open_jobs(tenant: str, url: str) -> bool:
    """Ask a cell by the command line; CalledProcessError if it cannot be reached."""
    command = [sys.executable, "-m", "outlast", "jobs", "--tenant", tenant, "--limit=1", "--json"]
    answers = [
        subprocess.run([*command, "--state", state, "--url", url], check=True, capture_output=True)
        for state in OPEN
    ]
    return any(json.loads(answer.stdout)["jobs"] for answer in answers)
