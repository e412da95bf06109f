"""The command line: ``outlast worker``, ``outlast jobs`` and the rest of them.

program.py      the commands in one tree, run with errors as plain lines and exit codes
errors.py       what goes wrong -> what is said, and the exit code
options.py      the options that several commands share, and how help texts are laid out
connect.py      opening a store: reading commands make nothing
worker.py       outlast worker; with application.py, probe.py (what does MODULE:APP hold?) and
                logs.py (a log that never blocks)
jobs.py         enqueue, jobs, job, cancel, requeue
operate.py      workers, migrate; dead.py: dead list, requeue, discard
why.py          why a job is where it is; stats.py: how many, how fast
doctor.py       what it all stands on
show.py         tables; page.py: all about one job
demo/           the demonstration
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in ``argv`` (default: the process's own); return the exit code."""
    from outlast.cli.program import run

    return run(argv)
