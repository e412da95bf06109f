"""``outlast crash-test``: one call of a task under a crash at each of its points."""

from __future__ import annotations

from typing import Annotated

from outlast.base.text import count_of
from outlast.cli.errors import NotSoError
from outlast.cli.jobs import CalledTask
from outlast.cli.options import Json, Sandboxed, flag, option
from outlast.cli.show import print_json


def crash_test(
    called: CalledTask,
    *,
    sandboxed: Sandboxed,
    point: Annotated[
        int | None, option("--point", "N", "Only crashes at this point; 0: at the end.", min=0)
    ] = None,
    points_max: Annotated[int, option("--points-max", "N", "Try at most N points.", min=1)] = 100,
    seed: Annotated[
        int, option("--seed", "N", "Of random in each run, and of the choice of points.", min=0)
    ] = 0,
    real: Annotated[bool, flag("--real", "Kill real processes, by SIGKILL.")] = False,
    processes: Annotated[
        int | None, option("--processes", "N", "Run in N copies of this process.", min=1)
    ] = None,
    json: Json = False,
) -> None:
    """Find out what a crash does to a task: run a call, then again with a crash at each point.

    A point is where the task is about to do something that lasts: save, report, begin or keep a
    step, commit, open or close a file that it writes, send a request, enqueue. Just before each
    point its worker is killed, or loses its lease, or asks it to stop; and the call is delivered
    twice. Each run goes on to the job's end. What a run leaves behind is compared with the run
    without a crash: rows, files, requests, jobs. The table names each difference, how often it
    happened, at which points, your line, and what mends it.

    With --real each run has a process of its own, and a kill is SIGKILL; otherwise an exception
    ends the killed attempt, so that its finally blocks run.

    The task works in a temporary folder, on copies of the SQLite files that it opens. Other writes,
    programs and the network are refused. The exit code is 0 if no crash makes a difference, and 1
    if one does.

    Examples:
        outlast crash-test shop.jobs:app import_orders '"orders.csv"' --copy orders.csv
        outlast crash-test shop.jobs:app render pages=3 --point 4 --json
    """
    from outlast.testing.crashes import crash_test as run

    application, found, positional, named = called.find()
    report = run(
        application,
        found.call(*positional, **named),
        **sandboxed.read(),
        point=point,
        points_max=points_max,
        seed=seed,
        real=real,
        processes=processes,
    )
    if json:
        print_json(report.document())
    else:
        print(report)
    if not report.is_clean:
        raise NotSoError(f"a crash changes {count_of(len(report.findings), 'effect')}")
