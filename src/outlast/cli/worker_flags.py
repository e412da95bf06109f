"""Define the options of ``outlast worker``; ``outlast/base/config.py`` describes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from outlast.cli.options import span


class LogFormat(StrEnum):
    """How the log is written to stderr."""

    TEXT = "text"
    JSON = "json"


Queues = Annotated[
    str | None, typer.Option("--queues", metavar="a,b", help="The queues to serve. Default: all.")
]
Tags = Annotated[
    str | None,
    typer.Option("--tags", metavar="a,b", help="What it offers to tasks that require it: gpu,eu."),
]
Runners = Annotated[
    int | None,
    typer.Option("--runners", metavar="N", help="Child processes. Default: processors, at most 4."),
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", metavar="N", help="Async attempts per runner. Default: 10."),
]
Heartbeat = Annotated[
    float | None, span("--heartbeat", "Time between lease renewals. Default: 2s.")
]
Lease = Annotated[
    float | None, span("--lease", "Time of silence until others take over. Default: 60s.")
]
DrainTimeout = Annotated[
    float | None, span("--drain-timeout", "Time to finish attempts at a stop. Default: 25s.")
]
KeepCompleted = Annotated[
    float | None,
    span("--keep-completed", "Delete completed and cancelled jobs after this time. Default: 7d."),
]
KeepWorkers = Annotated[
    float | None,
    span("--keep-workers", "Delete rows of gone workers after this time. Default: 7d."),
]
KeepDead = Annotated[
    float | None, span("--keep-dead", "Delete dead jobs after this time. Default: never.")
]
MaxRss = Annotated[
    str | None,
    typer.Option(
        "--max-rss", metavar="SIZE", help="Memory, as in 500M, at which a runner is replaced."
    ),
]
MaxJobs = Annotated[
    int | None,
    typer.Option(
        "--max-jobs-per-runner", metavar="N", help="Attempts after which a runner is replaced."
    ),
]
Redact = Annotated[
    list[str] | None,
    typer.Option(
        "--redact", metavar="REGEX", help="Hide matches in crash reports. May be repeated."
    ),
]
MaybeApplication = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP", help="Your application, as in shop.jobs:app.", show_default=False
    ),
]
Shell = Annotated[
    bool,
    typer.Option(
        "--shell",
        help="Also run commands (outlast run): every client that enqueues can execute anything.",
        show_default=False,
    ),
]
Logs = Annotated[
    bool,
    typer.Option("--logs", help="Keep what each job prints (outlast logs).", show_default=False),
]
Reload = Annotated[
    bool,
    typer.Option(
        "--reload",
        help="Replace the runners when code of the application changes. For development.",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Its name in lists. Default: host-pid-random."),
]
Instance = Annotated[
    str | None,
    typer.Option(
        "--instance",
        metavar="NAME",
        envvar="OUTLAST_INSTANCE",
        help="A name that only one live worker has, such as a StatefulSet's pod.",
    ),
]
NoPresence = Annotated[
    bool,
    typer.Option("--no-presence", help="Hold no PostgreSQL lock that shows other hosts its death."),
]
ProbePort = Annotated[
    int | None,
    typer.Option(
        "--probe-port",
        metavar="N",
        envvar="OUTLAST_PROBE_PORT",
        show_envvar=False,
        help="Answer /livez, /readyz, /startupz over HTTP. Default: $OUTLAST_PROBE_PORT, or not.",
    ),
]
ProbeHost = Annotated[
    str | None,
    typer.Option("--probe-host", metavar="ADDRESS", help="The address of that port. Default: all."),
]
Setup = Annotated[
    str | None,
    typer.Option(
        "--setup",
        metavar="MODULE:FUNCTION",
        help="Call this once in the worker's own process: it sets up traces or error reports.",
    ),
]
WakeupUrl = Annotated[
    str | None,
    typer.Option(
        "--wakeup",
        metavar="URL",
        envvar="OUTLAST_WAKEUP",
        show_envvar=False,
        help="A messenger, nats:// or amqp://, that announces jobs. Default: the application's.",
    ),
]
Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        metavar="text|json",
        envvar="OUTLAST_LOG_FORMAT",
        show_envvar=False,
        help="How to write the log. Default: $OUTLAST_LOG_FORMAT, else text.",
        show_default=False,
    ),
]
