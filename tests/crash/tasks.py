"""Tasks that end in every way, for the tests with real processes; more are in the modules that
are imported here.

Each attempt writes to the journal (harness/journal.py).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import outlast
from harness.journal import begin, note
from tests.crash import batches, deadly, hungry
from tests.crash.application import ENOUGH, app

__all__ = ["app", "batches", "deadly", "hungry"]


@app.task
async def noop(value: int = 0) -> int:
    return value


@app.task
async def waits_for_another() -> int:
    begin()
    child = await noop.enqueue(7)
    return await child.result()


@app.task
def waits_for_another_in_plain_code() -> int:
    begin()
    return noop.enqueue_sync(7).result_sync()


@app.task
async def noted(value: int = 0) -> int:
    note("noted", value=value, token=outlast.current().token)
    return value


@app.task
async def echoes(data: str) -> str:
    return data


@app.task
def tells(lines: int) -> None:
    for n in range(lines):
        outlast.current().report((n + 1) / lines, f"line {n + 1}")


@app.task(requires=["gpu"])
async def on_gpu() -> None:
    begin()


@app.task(backoff_first=0.05)
async def first_hangs(seconds: float = 600) -> str:
    """The first attempt waits; any later one returns at once."""
    attempt = begin()
    if attempt.number == 1:
        await asyncio.sleep(seconds)
    return f"attempt {attempt.number}"


@app.task(backoff_first=0.05)
def first_hangs_in_python(seconds: float = 600) -> str:
    child = subprocess.Popen(["sleep", "600"])
    attempt = begin(child.pid)
    if attempt.number > 1:
        child.kill()
        child.wait()
        return f"attempt {attempt.number}"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.001)
    return "ran to the end"


@app.task(backoff_first=0.05)
def first_hangs_in_c(seconds: int = 600) -> str:
    """The first attempt holds the GIL in C."""
    child = subprocess.Popen(["sleep", "600"])
    attempt = begin(child.pid)
    if attempt.number > 1:
        child.kill()
        child.wait()
        return f"attempt {attempt.number}"
    ctypes.PyDLL(None).sleep(seconds)
    return "ran to the end"


@app.task
def hold_gil(seconds: int) -> str:
    begin()
    ctypes.PyDLL(None).sleep(seconds)
    return "done"


@app.task(retries=0)
def raises_a_secret() -> None:
    raise ValueError("no login with password=hunter2")


@app.task(backoff_first=0.01, backoff_max=0.02)
async def counts(upto: int = 1_000_000, pause: float = 0.05) -> dict[str, int]:
    """Counts with a checkpoint at each step, until the file ENOUGH exists; returns where it
    resumed."""
    attempt = begin()
    start = (attempt.checkpoint or {"n": 0})["n"]
    for n in range(start, upto):
        if ENOUGH.exists():
            break
        attempt.report(n / upto, f"at {n}", stage="counting")
        await attempt.save({"n": n + 1})
        await asyncio.sleep(pause)
    note("counted", job=attempt.job_id)
    return {"from": start}


@app.task(backoff_first=0.01, backoff_max=0.02)
def counts_while_wanted(upto: int = 1_000_000, pause: float = 0.05) -> int:
    """As ``counts``, as a plain function: it looks whether it is asked to stop."""
    attempt = begin()
    start = (attempt.checkpoint or {"n": 0})["n"]
    for n in range(start, upto):
        attempt.check()
        if ENOUGH.exists():
            break
        attempt.save_sync({"n": n + 1})
        time.sleep(pause)
    note("counted", job=attempt.job_id)
    return upto


def pause_of(attempt: outlast.Attempt) -> float:
    """Return the seconds between two steps: later attempts are only to come to their end."""
    return 0.02 if attempt.number == 1 else 0.0


@app.task(backoff_first=0.01, backoff_max=0.02)
def returns_when_it_is_to_stop(upto: int) -> int:
    """Returns how far it got, as soon as it is asked to stop."""
    attempt = begin()
    for n in range(attempt.checkpoint or 0, upto):
        if attempt.stopping:
            return n
        attempt.save_sync(n + 1)
        time.sleep(pause_of(attempt))
    return upto


@app.task(backoff_first=0.01, backoff_max=0.02)
async def swallows_its_cancellation(upto: int) -> int:
    """Returns how far it got, as soon as it is cancelled."""
    attempt = begin()
    n = attempt.checkpoint or 0
    try:
        while n < upto:
            await attempt.save(n + 1)
            n += 1
            await asyncio.sleep(pause_of(attempt))
    except asyncio.CancelledError:
        note("swallowed", at=n)
    return n


@app.task(backoff_first=0.01, backoff_max=0.02)
def gives_up_when_it_is_to_stop(upto: int) -> int:
    attempt = begin()
    for n in range(attempt.checkpoint or 0, upto):
        if attempt.stopping:
            raise outlast.Cancel("I was told to stop")
        attempt.save_sync(n + 1)
        time.sleep(pause_of(attempt))
    return upto


@app.task(retries=0, timeout=0.5)
async def too_long() -> None:
    begin()
    await asyncio.sleep(600)


@app.task(retries=0, timeout=0.5)
def too_long_and_deaf() -> None:
    begin()
    time.sleep(600)


@app.task
async def waits(seconds: float = 600) -> str:
    begin()
    await asyncio.sleep(seconds)
    return "waited"


@app.task
def waits_deaf(seconds: float = 600) -> str:
    begin()
    time.sleep(seconds)
    return "waited"


@app.task(retries=0)
async def bad_result() -> object:
    return object()


@app.task(retries=0)
async def surrogate_result() -> str:
    return "\ud800"


@app.task
async def nul_result() -> str:
    return "a\x00b"


@app.task(retries=0)
async def odd_message() -> None:
    outlast.current().report(0.5, "nul \x00 and \udcff")
    raise ValueError("nul \x00 and lone \udcff surrogate")


@app.task
async def first_hears_again(number: int) -> str:
    """The first attempt puts back Python's own handler of this signal, and waits."""
    attempt = begin()
    if attempt.number > 1:
        return f"attempt {attempt.number}"
    own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    signal.signal(number, own)
    note("hears", pid=os.getpid())
    await asyncio.sleep(600)
    return "never"


@app.task
def leaves_a_daemon() -> None:
    """Leave a process behind that is in no group of ours, with our output, for two seconds."""
    begin()
    subprocess.Popen(["sleep", "2"], start_new_session=True)


@app.task
def leaves_an_orphan() -> int:
    """Its parent has ended: process 1 adopts it; it ends soon."""
    begin()
    command = ["sh", "-c", "sleep 0.2 & echo $!"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        return int(shell.stdout.readline())


@app.task
async def is_in_the_table(pid: int) -> bool:
    """Whether there is a process with this number, even a zombie."""
    return Path(f"/proc/{pid}").exists()


@app.task
async def enqueues() -> int:
    """Jobs that a task enqueues go to its worker's store, not to the application's."""
    return (await noop.enqueue(7)).id


@app.task(retries=0, max_losses=1, backoff_first=0.01, backoff_max=0.01)
def waits_for_its_child() -> None:
    """Fail if the child is ended."""
    attempt = begin()
    child = subprocess.Popen(["sleep", "600"])
    note("child", pid=os.getpid(), child=child.pid, number=attempt.number)
    if code := child.wait():
        raise subprocess.CalledProcessError(code, "sleep")


@app.task
async def blocks_its_loop_until(path: str) -> None:
    begin()
    while not Path(path).exists():
        time.sleep(0.02)  # noqa: ASYNC251


@app.task(backoff_first=0.01, backoff_max=0.02)
async def draws_then_hangs(plainly: bool) -> str:
    """Hangs in its first attempt, once it has kept what two steps return."""
    attempt = begin()
    cover = await attempt.step("cover", draws_async if not plainly else draws, "cover")
    back = await attempt.step("back", draws, "back")
    if attempt.number == 1:
        note("kept", job=attempt.job_id)
        await asyncio.sleep(3_600)
    return f"{cover}, {back}"


@app.task(retries=12, backoff_first=0.01, backoff_max=0.02)
async def spawns_and_is_killed(each: int, count: int) -> int:
    """Makes children in lots, and kills its process after the n-th lot in attempt n."""
    attempt = begin()
    lots = []
    for lot in range(count):
        lots.append(
            await attempt.spawn(outlast.group(map(noted.call, range(lot * each, (lot + 1) * each))))
        )
        if attempt.number == lot + 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return sum([sum(await attempt.wait_for(run)) for run in lots])


async def draws_async(what: str) -> str:
    return draws(what)


def draws(what: str) -> str:
    note("drew", what=what)
    return f"{what} of attempt {outlast.current().number}"
