"""Define the options of ``outlast worker``; ``outlast/base/config.py`` describes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from outlast.cli.options import flag, option, span


class LogFormat(StrEnum):
    """How the log is written to stderr."""

    TEXT = "text"
    JSON = "json"


Queues = Annotated[str | None, option("--queues", "a,b", "The queues to serve. Default: all.")]
Tags = Annotated[
    str | None, option("--tags", "a,b", "What it offers to tasks that require it: gpu,eu.")
]
Runners = Annotated[
    int | None, option("--runners", "N", "Child processes. Default: processors, at most 4.")
]
Concurrency = Annotated[
    int | None, option("--concurrency", "N", "Async attempts per runner. Default: 10.")
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
    str | None, option("--max-rss", "SIZE", "Memory, as in 500M, at which a runner is replaced.")
]
MaxJobs = Annotated[
    int | None, option("--max-jobs-per-runner", "N", "Attempts after which a runner is replaced.")
]
Redact = Annotated[
    list[str] | None, option("--redact", "REGEX", "Hide matches in crash reports. May be repeated.")
]
MaybeApplication = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP", help="Your application, as in shop.jobs:app.", show_default=False
    ),
]
Shell = Annotated[
    bool,
    flag(
        "--shell",
        "Also run commands (outlast run): every client that enqueues can execute anything.",
    ),
]
Logs = Annotated[bool, flag("--logs", "Keep what each job prints (outlast logs).")]
Reload = Annotated[
    bool,
    flag("--reload", "Replace the runners when code of the application changes. For development."),
]
Name = Annotated[
    str | None, option("--name", "NAME", "Its name in lists. Default: host-pid-random.")
]
Instance = Annotated[
    str | None,
    option(
        "--instance",
        "NAME",
        "A name that only one live worker has, such as a StatefulSet's pod.",
        envvar="OUTLAST_INSTANCE",
    ),
]
NoPresence = Annotated[
    bool, flag("--no-presence", "Hold no PostgreSQL lock that shows other hosts its death.")
]
ProbePort = Annotated[
    int | None,
    option(
        "--probe-port",
        "N",
        "Answer /livez, /readyz, /startupz over HTTP. Default: $OUTLAST_PROBE_PORT, or not.",
        envvar="OUTLAST_PROBE_PORT",
        show_envvar=False,
    ),
]
ProbeHost = Annotated[
    str | None, option("--probe-host", "ADDRESS", "The address of that port. Default: all.")
]
Setup = Annotated[
    str | None,
    option(
        "--setup",
        "MODULE:FUNCTION",
        "Call this once in the worker's own process: it sets up traces or error reports.",
    ),
]
WakeupUrl = Annotated[
    str | None,
    option(
        "--wakeup",
        "URL",
        "A messenger, nats:// or amqp://, that announces jobs. Default: the application's.",
        envvar="OUTLAST_WAKEUP",
        show_envvar=False,
    ),
]
Format = Annotated[
    LogFormat,
    option(
        "--log-format",
        "text|json",
        "How to write the log. Default: $OUTLAST_LOG_FORMAT, else text.",
        envvar="OUTLAST_LOG_FORMAT",
        show_default=False,
        show_envvar=False,
    ),
]
