"""The command line: ``outlast worker``, ``outlast jobs`` and the rest of them.

program.py      the commands in one tree, run with errors as plain lines and exit codes
errors.py       errors, their messages and the exit codes
options.py      the options that several commands share, and how help texts are laid out
connect.py      opens a store for a command; commands that only read create nothing
loop.py         the event loop of a command, and Ctrl-C while it runs
worker.py       outlast worker
dev.py          outlast dev: a worker that reloads, and the page
demo.py         outlast demo: its options, and the folder of its store
demo_story.py   two workers, one job, a kill -9 at half, and an end
ready.py        the text that a worker prints once it is ready
application.py  examines MODULE:APP in a child process
probe.py        the child process of application.py
logs.py         the worker's log, which never blocks it
jobs.py         outlast enqueue, job, cancel, requeue
listing.py      outlast jobs
job_logs.py     outlast logs
run_task.py     outlast run-task
crash_test.py   outlast crash-test
run.py          outlast run
wait.py         waits for a command's job, and exits as it did
in_job.py       outlast checkpoint and report, from inside a job
why.py          outlast why
stack.py        outlast stack
flows.py        outlast flows
flow.py         outlast flow
dead.py         outlast dead
bulk.py         acts on all jobs that match a filter, in steps
dead_groups.py  outlast dead groups
unknown_names.py  names in a filter that do not exist
workers.py      outlast workers
pauses.py       outlast pause, resume and pauses
limits.py       outlast limits
event.py        outlast event
weights.py      outlast weight
actions.py      outlast actions
who.py          the user who runs a command, for the record
schedules.py    outlast schedules
migrate.py      outlast migrate
exporter.py     outlast exporter
stats.py        outlast stats
doctor.py       outlast doctor
rehearse.py     outlast rehearse
record.py       outlast record, and job --record
replay.py       outlast replay
verify.py       outlast verify
web.py          outlast web
web_server.py   its server, from the settings to a clean end
web_connections.py  its connections, bounded
completion.py   outlast completion, and the answers to a shell
show.py         the console, and the tables
job_page.py     all about one job
attempts.py     its attempts as cells, their crash reports as short facts
grid.py         a table in the house style
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(
    argv: Sequence[str] | None = None, *, app: str | None = None, program: str = "outlast"
) -> int:
    """Run the command in ``argv`` (default: the process's own); return the exit code. ``app``: the
    MODULE:APP for commands that take one, so that ``argv`` names none. ``program``: what is typed
    before a command."""
    try:
        from outlast.cli.program import run
    except KeyboardInterrupt:
        return 130  # as for a later Ctrl-C

    return run(argv, app, program)
