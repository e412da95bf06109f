"""Tasks that leave their runner in a state in which even their end is hard to tell."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.crash.tasks import app

tasks = app.tasks


@app.task
def sets_a_variable_that_is_no_text() -> str:
    os.environb[b"NO_TEXT_\xff"] = b"1"
    return "done"


@app.task
async def prints_into_a_pipe_without_a_reader() -> str:
    print("half a line", end="")
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(write)
    os.close(read)
    return "done"


@app.task
async def waits_beside(flag: str) -> str:
    while not Path(flag).exists():
        await asyncio.sleep(0.02)
    return "done"
