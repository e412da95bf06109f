"""The command line: ``outlast worker``, ``outlast jobs`` and the rest.

program.py      runs a command, with errors as plain lines and exit codes
tree.py         the commands in one tree; loads the needed ones
errors.py       errors, their messages and the exit codes
options.py      the options that several commands share
usage.py        help texts, and wrong options, all at once
connect.py      opens a store for a command, as its user; commands that only read create nothing
loop.py         the event loop of a command, and Ctrl-C while it runs
worker.py       outlast worker
dev.py          outlast dev: a worker that reloads, and the page
demo.py         outlast demo: its options, and the folder of its store
demo_story.py   two workers, one job, a kill -9 halfway, and the end
application.py  examines MODULE:APP in a child process
logs.py         the worker's log, which never blocks it
jobs.py         outlast enqueue, cancel, requeue
job.py          outlast job, why, logs and stack
listing.py      outlast jobs
run_task.py     outlast run-task
crash_test.py   outlast crash-test
run.py          outlast run
in_job.py       outlast checkpoint and report, from inside a job
flow.py         outlast flows, and outlast flow with its commands
dead.py         outlast dead
bulk.py         acts on all jobs that match a filter, in steps
workers.py      outlast workers
pauses.py       outlast pause, resume and pauses
limits.py       outlast limits
event.py        outlast event
actions.py      outlast actions
schedules.py    outlast schedules
migrate.py      outlast migrate
exporter.py     outlast exporter
stats.py        outlast stats
doctor.py       outlast doctor
rehearse.py     outlast rehearse
verify.py       outlast verify
web.py          outlast web
web_server.py   its server, from the settings to a clean shutdown
completion.py   outlast completion, and the answers to a shell
show.py         the console, and the tables
job_page.py     everything about one job: its attempts, their crash reports
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(
    argv: Sequence[str] | None = None, *, app: str | None = None, program: str = "outlast"
) -> int:
    """Run the command in ``argv``; return the exit code. None: run the process's own, and end the
    process. ``app``: the MODULE:APP for commands that take one, so that ``argv`` names none.
    ``program``: what is typed before a command."""
    if argv is None:  # this process is ours
        _share_path()
        gc.disable()  # until the command runs: imports make many objects, and no garbage
    if os.getpid() == 1:
        _end_by_signals()
    try:
        from outlast.cli.program import run
    except KeyboardInterrupt:
        return 130  # as for a later Ctrl-C

    return run(argv, app, program)


def _share_path() -> None:
    """Let child processes import what this one can, if Python runs a bundle (zipapp, shiv, PEX)."""
    spec = sys.modules["__main__"].__spec__
    if spec is not None and spec.name == "__main__":
        os.environ["OUTLAST_PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))


def _end_by_signals() -> None:
    """Let signals end process 1 of a container as they end any other process: for process 1 the
    kernel ignores a signal without a handler. Some commands later replace these handlers."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)  # as in a shell; the interrupted code might catch an exception
