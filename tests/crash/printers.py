"""Tasks that write to stdout and stderr in all the ways that there are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import outlast
from harness.journal import JOURNAL, begin, note

app = outlast.App()


@app.task
def prints(word: str, raises: bool = True) -> None:
    """Write in every way."""
    print(f"{word} by print")
    os.write(1, f"{word} past Python\n".encode())
    subprocess.run(["echo", f"{word} by a child"], check=True)
    print(f"{word} to stderr", file=sys.stderr)
    print(f"{word}, no end", end="")
    if raises:
        raise ValueError(word)


@app.task
async def prints_in_turn(word: str) -> None:
    for number in range(5):
        print(word, number)
        await asyncio.sleep(0.02)
    raise ValueError(word)


@app.task
async def prints_and_hangs(word: str) -> None:
    """Wait for another attempt beside it before writing."""
    begin()
    while JOURNAL.read_text().count('"start"') < 2:
        await asyncio.sleep(0.02)
    print(f"{word} by print")
    os.write(2, f"{word} past Python\n".encode())
    note("written")
    await asyncio.sleep(600)


@app.task
async def prints_when_asked_to_stop(deaf: bool) -> None:
    """Write a last line without an end; then stop, or keep the runner from doing anything."""
    begin()
    print("begins")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        print("asked to stop")
        print("the last of it", end="", flush=True)
        if deaf:
            time.sleep(600)  # noqa: ASYNC251
        raise
