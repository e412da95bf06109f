"""Play ``outlast demo``: two workers, one job, a kill -9 halfway, and an end.

Nothing is faked: the workers are processes as ``outlast worker`` starts them, and each sentence
follows from a read of the store. A step that does not happen as promised ends the demo with
Failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import msgspec
from rich.console import Console
from rich.text import Text

from outlast import demo as application
from outlast.base.clock import SYSTEM
from outlast.base.config import URL_VARIABLE
from outlast.base.text import line, span
from outlast.cli.connect import closing
from outlast.cli.errors import DONE, NOT_SO, Failed
from outlast.cli.job_page import timeline
from outlast.cli.show import console, table
from outlast.cli.verify import verdict
from outlast.client.job import Job
from outlast.demo import BLOCKS, LIMIT, PRIMES, app, count_primes
from outlast.insight.row import JobRow
from outlast.insight.verify import verify
from outlast.model.job import ENDED, State
from outlast.store.inspector import Inspector
from outlast.store.rows import AttemptRow
from outlast.worker.runners.tether import Tether

NAMES = ("amber", "violet")
STORE = "demo.db"
LOOK_SECONDS = 0.05  # between two reads of the store
PATIENCE_SECONDS = 120.0  # for each step: a machine may be busy
END_SECONDS = 10.0  # for a worker that was asked to stop


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a demo: ``call`` describes it, ``enqueue`` stores it in ``queue``. It has ``goal``
    parts, of which people say ``unit``; ``saved`` returns how many its checkpoint has."""

    application: str
    call: str
    enqueue: Callable[[], Awaitable[Job[Any]]]
    goal: int
    unit: str
    saved: Callable[[JobRow], int]
    queue: str = "default"


COUNT = Play(
    application="outlast.demo:app",
    call=f"count_primes({LIMIT}, {BLOCKS})",
    enqueue=lambda: count_primes.enqueue(LIMIT, BLOCKS),
    goal=BLOCKS,
    unit="block",
    saved=lambda row: int(row.checkpoint["blocks"]) if row.checkpoint else 0,
)


async def play(folder: Path, *, kept: bool) -> int:
    """Play the demo from the start of the workers to the verdict; return the exit code."""
    cancel_when_terminated()
    app.url = f"sqlite:///{quote(str(folder / STORE))}"
    out = console()
    async with closing(app):
        inspector = (await app.stores.store()).inspector
        with Workers(folder, app.url, COUNT) as workers:
            story = Story(out, inspector, workers, COUNT)
            await story.play()
        await story.show_end({"primes": PRIMES, "began_after": story.saved})
        verified = await verify(inspector)
    right = f"{PRIMES:,} primes below {LIMIT:,}, which is right: no block was lost or counted twice"
    facts = {"result": right, "verify": verdict(verified)}
    print_facts(out, {**facts, **_next_steps(app.url if kept else None)})
    return NOT_SO if verified.violations else DONE


def cancel_when_terminated() -> None:
    """Let SIGTERM and SIGHUP end the demo cleanly, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


class Story:
    """Two workers, one job, a kill -9 halfway, and an end; each step is printed as it happens.

    ``saved``: the parts of the job that were saved at the worker's death.
    """

    def __init__(self, out: Console, inspector: Inspector, workers: Workers, play: Play) -> None:
        self._play = play
        self._out = out
        self._inspector = inspector
        self._workers = workers
        self._began = SYSTEM.boot()
        self.job: Job[Any] | None = None
        self.saved = 0
        self._noticed_after = 0.0  # seconds after the kill

    async def play(self) -> None:
        """Play the demo. Raises Failed if a step does not happen as promised."""
        goal, unit = self._play.goal, self._play.unit
        for name in NAMES:
            pid = self._workers.start(name)
            self._tell(f"$ outlast worker {self._play.application} --name {name} &    # pid {pid}")
        await self._until("both workers to be ready", self._are_workers_ready)
        self._tell("both workers are ready")

        self.job = job = await self._play.enqueue()
        self._tell(f"job {job.id} is enqueued: {self._play.call}")
        row = await self._until_job("a worker to take it", lambda row: row.worker is not None)
        self._tell(f"{row.worker} runs it: attempt 1, token {row.token}")

        saved = self._play.saved
        row = await self._until_job("its first half", lambda row: saved(row) >= goal // 2)
        killed_at, victim = SYSTEM.boot(), row.worker or ""
        pid = self._workers.kill(victim)
        self._tell(f"$ kill -9 {pid}    # {victim}, at half", "bold red")
        self.saved = saved(await job.refresh())
        self._tell(f"{self.saved} of {goal} {unit}s are saved; the work since then is lost")

        await self._until_job(  # the next checkpoint forgives the loss
            "the death to be noticed", lambda row: row.losses > 0 or row.attempt_count > 1
        )
        self._noticed_after = SYSTEM.boot() - killed_at
        after = span(self._noticed_after)
        self._tell(f"noticed after {after}: attempt 1 is closed as lost_worker", "bold")
        row = await self._until_job("attempt 2", lambda row: row.attempt_count > 1)
        survivor = NAMES[1 - NAMES.index(victim)]
        begin = f"{survivor} goes on from {unit} {self.saved}"
        self._tell(f"{begin}: attempt 2, token {row.token}", "bold")

        await self._until_job("its end", lambda row: row.state is State.COMPLETED)
        self._tell(f"job {job.id} is completed", "bold green")

    async def show_end(self, promised: object) -> AttemptRow:
        """Print the attempts and what they mean; return the lost one. Raises Failed if they, or
        the job's result, are not as promised."""
        assert self.job is not None
        job = await self._inspector.job(self.job.id)
        attempts = await self._inspector.attempts(self.job.id)
        result = await self.job.result()
        assert job is not None
        outcomes = [each.outcome for each in attempts]
        if outcomes != ["lost_worker"] or result != promised:
            raise Failed(
                f"the job lost {outcomes} and returned {result!r:.300};"
                f" promised were one lost_worker and {promised!r:.300}"
            )
        entries = timeline(job, attempts, SYSTEM.wall())
        self._out.print("", table(entries, self._out.width), "", sep="\n")
        facts = {
            "reason": f"attempt 1: {line(attempts[0].message, 300)}",
            "time": f"noticed {span(self._noticed_after)} after the kill;"
            f" {self.saved} of {self._play.goal} {self._play.unit}s were not done twice",
        }
        print_facts(self._out, facts)
        return attempts[0]

    async def give_up(self) -> None:
        """Cancel an unfinished job, and wait until it has ended: a store may outlive the demo."""
        if self.job is not None:
            await self.job.cancel()
            while (await self.job.refresh()).state not in ENDED:
                await SYSTEM.sleep(LOOK_SECONDS)

    async def _are_workers_ready(self) -> bool:
        rows = await self._inspector.workers()
        ready = [row for row in rows if row.queues == self._workers.queues and row.tasks]
        return len(ready) == len(NAMES)

    async def _until_job(self, what: str, reached: Callable[[JobRow], bool]) -> JobRow:
        """Read the job until ``reached`` is true of it; return its row. Raises as ``_until``."""

        async def look() -> bool:
            assert self.job is not None
            row = await self.job.refresh()
            if row.state in ENDED and not reached(row):
                raise Failed(f"the job ended as {row.state} instead of {what}")
            return reached(row)

        await self._until(what, look)
        assert self.job is not None
        assert self.job.row is not None
        return self.job.row

    async def _until(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        """Call ``look`` until it is true. Failed if that takes too long, or a worker ends by
        itself."""
        deadline = SYSTEM.boot() + PATIENCE_SECONDS
        while not await look():
            self._workers.check()
            if SYSTEM.boot() > deadline:
                raise Failed(f"waited {span(PATIENCE_SECONDS)} for {what}")
            await SYSTEM.sleep(LOOK_SECONDS)

    def _tell(self, text: str, style: str = "") -> None:
        since = f"{SYSTEM.boot() - self._began:5.1f} s  "
        self._out.print(Text.assemble((since, "dim"), (text, style)), soft_wrap=True)


def print_facts(out: Console, facts: dict[str, str]) -> None:
    """Print lines, each with its label."""
    for label, text in facts.items():
        out.print(Text.assemble((f"{label:<8}", "dim"), text), soft_wrap=True)


def _next_steps(url: str | None) -> dict[str, str]:
    """Return what to read and to type next. ``url``: the store's, if it is kept."""
    more = "demo --keep DIR" if url is None else f"job 1 --url {url}"
    why = "leaves it all in DIR" if url is None else "shows the crash report"
    return {"code": application.__file__, "look": f"{own_command()} {more}    # {why}"}


def own_command() -> str:
    """Return what to type for ``outlast``: the environment may not be activated."""
    own = Path(sys.executable).with_name("outlast")
    return "outlast" if shutil.which("outlast") or not own.exists() else shlex.quote(str(own))


# -- the workers -----------------------------------------------------------------------------------


class Workers:
    """Workers as processes. A context manager: at its end, none is left.

    Each has its own session, so that Ctrl-C reaches only the demo. If the demo itself is killed, a
    tether process notices and kills the workers. A worker begins only once the tether knows it: a
    shell waits for a line before it becomes the worker, and ends if the demo is gone.
    """

    def __init__(self, folder: Path, url: str, play: Play) -> None:
        self._folder = folder
        self._url = url
        self._application = play.application
        self.queues = [play.queue]
        self._tether = Tether()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._tether.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Ask the live workers to stop; after an error or a signal, kill them."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM if kind is None else signal.SIGKILL)
        for name, process in list(self._processes.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            self.kill(name)
        self._tether.stop()

    def start(self, name: str) -> int:
        """Start a worker; return its process id."""
        worker = [sys.executable, "-m", "outlast", "worker", self._application, "--name", name]
        worker += ["--runners", "1", "--queues", *self.queues]
        with self._log(name).open("wb") as log:
            process = self._processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r _ && exec "$@" < /dev/null', "worker", *worker],
                cwd="/",  # a folder without files that could be imported
                env={**os.environ, URL_VARIABLE: self._url},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._tether.add(process.pid)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as go:  # killed: `check` says so
            go.write(b"\n")
        return process.pid

    def kill(self, name: str) -> int:
        """Kill a worker, and forget it; return its former process id."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        self._tether.drop(process.pid)
        return process.pid

    def check(self) -> None:
        """Raise Failed if a worker has ended by itself, with the end of its log."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                said = self._log(name).read_text("utf-8", "replace").split("\n")
                last = next((each for each in reversed(said) if each.strip()), "")
                raise Failed(
                    f"worker {name} ended by itself ({process.returncode}): {line(last, 300)}"
                )

    def _log(self, name: str) -> Path:
        return self._folder / f"worker-{name}.log"
