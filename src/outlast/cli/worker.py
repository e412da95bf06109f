"""``outlast worker``: turn options into a running worker, and introduce it once it is ready."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import signal
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.base.config import WorkerSettings, parse_size, worker_settings
from outlast.base.credentials import hide_logins
from outlast.base.text import count_of
from outlast.base.text import span as span_text
from outlast.cli.application import Found, start_check
from outlast.cli.connect import exists
from outlast.cli.errors import AppImportError, traceback_tail
from outlast.cli.loop import LoopFactory, run_loop
from outlast.cli.options import AppUrl, Options, flag, naming_flags, option, span
from outlast.errors import ApplicationError, ConfigError, UsageError, describe, text_of
from outlast.events import emit, subscribe
from outlast.model.job import SHELL_TASK
from outlast.store.backend import describe_place, file_of, open_store, resolve_url

if TYPE_CHECKING:
    from outlast.cli.logs import LogWriter

NO_APPLICATION = "outlast.runner.shell.task:app"


class LogFormat(StrEnum):
    """How the log is written to stderr."""

    TEXT = "text"
    JSON = "json"


# a setting -> the metavar of its option (which says how its text is read), and the help
_FLAGS = {
    "queues": ("a,b", "The queues to serve. Default: all."),
    "tags": ("a,b", "Tags that tasks may require of a worker: gpu,eu."),
    "has": ("a=N,b=N", "Its units for tasks that use them, as in gpu=2."),
    "runners": ("N", "Child processes. Default: processors, at most 4."),
    "concurrency": ("N", "Async attempts per runner. Default: 10."),
    "heartbeat": ("TIME", "Time between lease renewals. Default: 2s."),
    "lease": ("TIME", "Silence after which others take over. Default: 60s."),
    "drain_timeout": ("TIME", "Time for attempts to finish at a stop. Default: 25s."),
    "keep_completed": (
        "TIME",
        "Delete completed and cancelled jobs after this time. Default: 7d.",
    ),
    "keep_workers": ("TIME", "Delete rows of ended workers after this time. Default: 7d."),
    "keep_dead": ("TIME", "Delete dead jobs after this time. Default: never."),
    "max_rss": ("SIZE", "Memory, as in 500M, at which a runner is replaced."),
    "max_jobs_per_runner": ("N", "Attempts after which a runner is replaced."),
    "redact": ("REGEX", "Hide matches in crash reports. May be repeated."),
    "name": ("NAME", "Its name in lists. Default: host-pid-random."),
    "instance": ("NAME", "A name that only one live worker has, such as a StatefulSet's pod."),
    "no_presence": ("", "Do without the PostgreSQL lock that shows its death to other hosts."),
    "shell": (
        "",
        "Also run commands (outlast run): every client that enqueues can execute anything.",
    ),
    "probe_port": (
        "N",
        "Answer /livez, /readyz, /startupz over HTTP. Default: $OUTLAST_PROBE_PORT, or not.",
    ),
    "probe_host": ("ADDRESS", "The address of that port. Default: all."),
}
_VARIABLES: dict[str, dict[str, Any]] = {
    "instance": {"envvar": "OUTLAST_INSTANCE"},
    "probe_port": {"envvar": "OUTLAST_PROBE_PORT", "show_envvar": False},
}
_TYPES = {"": bool, "N": int, "TIME": float, "REGEX": list[str]}  # by metavar; of others: str


def setting(name: str) -> Any:
    """Return the option of a setting, which has no value unless it is given."""
    metavar, text = _FLAGS[name]
    if not metavar:
        return flag(_flag_of(name), text)
    if metavar == "TIME":
        return span(_flag_of(name), text)
    return option(_flag_of(name), metavar, text, **_VARIABLES.get(name, {}))


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class Settings(Options):
    """The options of a worker that are its ``WorkerSettings``."""

    __signature__ = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[_TYPES.get(metavar, str) | None, setting(name)],
            )
            for name, (metavar, _) in _FLAGS.items()
        ]
    )

    def __init__(self, **given: Any) -> None:
        self._given = {name: each for name, each in given.items() if each is not None}

    def read(self) -> WorkerSettings:
        """Return the settings. UsageError names the flag of one that is wrong."""
        given = dict(self._given)
        for name, text in given.items():
            if (read := _READERS.get(_FLAGS[name][0])) is not None:
                given[name] = read(_flag_of(name), text)
        given["presence"] = not given.pop("no_presence", False)
        with naming_flags(WorkerSettings.__struct_fields__):
            return worker_settings(**given)


def worker(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP", help="Your application, as in shop.jobs:app.", show_default=False
        ),
    ] = None,
    url: AppUrl = None,
    *,
    settings: Settings,
    setup: Annotated[
        str | None,
        option(
            "--setup",
            "MODULE:FUNCTION",
            "Call this once in the worker's own process: it sets up traces or error reports.",
        ),
    ] = None,
    wakeup: Annotated[
        str | None,
        option(
            "--wakeup",
            "URL",
            "A messenger, nats:// or amqp://, that announces jobs. Default: the application's.",
            envvar="OUTLAST_WAKEUP",
            show_envvar=False,
        ),
    ] = None,
    reload: Annotated[
        bool,
        flag(
            "--reload", "Replace the runners when code of the application changes. For development."
        ),
    ] = False,
    until_empty: Annotated[
        bool,
        flag("--until-empty", "Exit once there is nothing left to claim: for cron, CI, KEDA."),
    ] = False,
    max_jobs: Annotated[
        int | None,
        option("--max-jobs", "N", "With --until-empty: run at most N attempts, then exit."),
    ] = None,
    idle_after: Annotated[
        float | None,
        span("--idle-after", "Sleep while idle, for at most this time. PostgreSQL only."),
    ] = None,
    logs: Annotated[bool, flag("--logs", "Keep what each job prints (outlast logs).")] = False,
    log_format: Annotated[
        LogFormat,
        option(
            "--log-format",
            "text|json",
            "How to write the log. Default: $OUTLAST_LOG_FORMAT, else text.",
            envvar="OUTLAST_LOG_FORMAT",
            show_default=False,
            show_envvar=False,
        ),
    ] = LogFormat.TEXT,
) -> None:
    """Run jobs until told to stop.

    The worker itself runs no code of yours: it holds the lease and starts runners, child
    processes that import MODULE:APP. SIGTERM or Ctrl-C drains: nothing more is claimed, running
    attempts get --drain-timeout seconds to finish, and the jobs of the others return to the queue,
    uncharged. A second signal stops at once. The exit code is 0 after a drain, 2 when the
    application cannot be imported, 3 when the store cannot be used.

    With --reload a change of the application's Python files replaces the runners: attempts that
    have not ended after a second run again in the new code, uncharged. If the code cannot be
    imported, the worker reports that and waits for the next change.

    With --until-empty it exits with code 0 once it runs nothing and the store has nothing for it.
    Jobs that are due later (a retry in its back-off, a delayed job) or paused are left.

    With --idle-after 5m a worker that is alone, in a store without schedules, goes to sleep once
    there has been nothing to claim for 5 minutes: its runners end, and it closes its connections,
    so that a serverless database can be suspended. It wakes after 5 minutes, and sleeps again if
    there is nothing. So a job starts within 5 minutes of when it is due.

    The function of --setup is the only code of yours that the worker itself runs. Keep its module
    small, and apart from the application.

    Examples:
        outlast worker shop.jobs:app
        outlast worker shop.jobs:app --queues mail,default --runners 4
        outlast worker shop.jobs:app --tags gpu,eu
        outlast worker shop.jobs:app --has gpu=2
        outlast worker shop.jobs:app --url postgresql://app@db/shop
        outlast worker shop.jobs:app --wakeup nats://broker
        outlast worker shop.jobs:app --log-format json --probe-port 8081
        outlast worker shop.jobs:app --reload
        outlast worker shop.jobs:app --until-empty --max-jobs 100
        outlast worker shop.jobs:app --idle-after 5m
        outlast worker --shell
    """
    if sys.platform == "win32":
        raise UsageError(
            "a worker needs Linux or macOS: Windows has neither flock nor process groups."
            " Use WSL, or async with app.worker() for development"
        )
    if reload:
        prepare_reload(app)
    if max_jobs is not None and not (until_empty and max_jobs > 0):
        raise UsageError("--max-jobs needs a positive whole number, and --until-empty")
    if until_empty and idle_after is not None:
        raise UsageError("--until-empty exits for good, --idle-after only sleeps: choose one")
    chosen = settings.read()
    if app is None and not chosen.shell:
        raise UsageError(
            "name your application, as in `outlast worker shop.jobs:app`; or run commands alone,"
            " with --shell"
        )
    app = app or NO_APPLICATION
    as_json = log_format is LogFormat.JSON
    on_line = _to_log if as_json else None  # else output goes to stderr unchanged
    with contextlib.ExitStack() as until_the_end:
        with start_check(app, on_line) as look:
            _load_the_rest(url)  # while the child imports the application
            writer = importlib.import_module("outlast.cli.logs").start_log(as_json=as_json)
            until_the_end.callback(writer.close)
            found = look.wait()
        if setup is not None:
            run_setup(setup)
        address = resolve_url(found.url if url is None else url)
        if idle_after is not None:
            _check_idle_after(idle_after, chosen, address)
        messenger = wakeup or found.wakeup
        if messenger is not None:
            importlib.import_module("outlast.wakeup").check_messenger(messenger, address)
        if any(hide_logins(each) != each for each in sys.argv):
            emit("secret_in_arguments")
        facts = collect_facts(app, address, chosen, found, made=not exists(address))
        if (until_empty or idle_after is not None) and not facts["tasks"]:
            raise UsageError(
                f"{app} has no task that this worker can run, so it would never find its queues"
                " empty: import the modules of its tasks where the app is made, or add --tags"
            )
        introduce_once_ready(writer, facts, as_json=as_json)
        process = importlib.import_module("outlast.worker.assemble").WorkerProcess(
            app=app,
            url=address,
            settings=chosen,
            wakeup=messenger,
            output=writer.write,
            on_line=on_line,
            reload=found.folders if reload else [],
            logs=logs,
            until_empty=until_empty,
            max_jobs=max_jobs,
            idle_after=idle_after,
            known_queues=found.queues,
        )
        run_loop(process.run, _find_loop_factory())


def _find_loop_factory() -> LoopFactory | None:
    """Return uvloop's, which is faster, if that is installed."""
    try:
        factory: LoopFactory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def _check_idle_after(seconds: float, settings: WorkerSettings, url: str) -> None:
    if file_of(url) is not None:
        raise UsageError(
            "--idle-after is for PostgreSQL: a SQLite file has no server to put to sleep"
        )
    if seconds < settings.lease:  # in which the jobs of a lost worker are found
        raise UsageError(
            f"--idle-after must be at least the lease, {settings.lease:g}s: write a longer time,"
            " or a shorter --lease"
        )


def prepare_reload(app: str | None) -> None:
    """Raise UsageError if code cannot be reloaded. Keep child processes from writing bytecode:
    Python compares its time in whole seconds, so after two saves in one second the first version
    would run on.
    """
    if app is None:
        raise UsageError("--reload needs an application, MODULE:APP, whose code can change")
    if importlib.util.find_spec("watchfiles") is None:
        raise UsageError("--reload needs watchfiles: pip install 'outlast[reload]'")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _load_the_rest(url: str | None) -> None:
    """Import what only a worker needs. Ctrl-C is held back meanwhile: an import may swallow it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        importlib.import_module("outlast.worker.assemble")
        importlib.import_module("outlast.cli.logs")
        with contextlib.suppress(ConfigError):  # reported when the store is opened
            open_store(resolve_url(url))  # loads the driver too, if the URL is known by now
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _to_log(pid: int, text: str, job: tuple[int, str] | None = None) -> None:
    import structlog

    job_id, task = job or (None, None)
    structlog.get_logger("outlast").info(
        "runner_output", pid=pid, job_id=job_id, task=task, text=text
    )


def _names(flag: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag} takes names separated by commas, not {text!r}")
    return names


def _units(flag: str, text: str) -> dict[str, int]:
    units: dict[str, int] = {}
    for each in _names(flag, text):
        name, _, count = each.partition("=")
        if not count.isascii() or not count.isdigit():
            raise UsageError(f"{flag} takes units and their numbers, as in gpu=2, not {each!r}")
        units[name.strip()] = int(count)
    return units


_READERS = {"a,b": _names, "a=N,b=N": _units, "SIZE": parse_size}  # by metavar


def run_setup(spec: str) -> None:
    """Import and call MODULE:FUNCTION of --setup. Its output goes to stderr.

    It is the only code of the user's that runs in the worker's own process: traces and error
    reports of an attempt whose process has died are made there, so the library that makes them has
    to be set up there, too.

    Raises AppImportError with the tail of its own traceback.
    """
    from outlast.runner.application import load_function

    try:
        with contextlib.redirect_stdout(sys.stderr):
            load_function(spec)()
    except ApplicationError as error:
        raise AppImportError(
            f"--setup: {text_of(error)}", traceback_tail(error.__cause__)
        ) from error
    except Exception as error:
        raise AppImportError(
            f"--setup: {spec} failed: {describe(error)}", traceback_tail(error)
        ) from error
    except SystemExit as error:
        raise AppImportError(f"--setup: {spec} exits the program ({text_of(error)})") from error


TASKS_SHOWN = 12


def introduce_once_ready(writer: LogWriter, facts: dict[str, Any], *, as_json: bool) -> None:
    """Write these facts to the log when the first runner is ready."""

    def listen(name: str, fields: dict[str, Any]) -> None:
        if name == "worker_registered":
            facts["worker"] = fields["worker"]
        elif name == "runner_ready":
            unsubscribe()
            if as_json:
                import structlog

                structlog.get_logger("outlast").info("worker_ready", **facts)
            else:
                writer.put(introduction(facts))

    unsubscribe = subscribe(listen)


def collect_facts(
    app: str, url: str, settings: WorkerSettings, found: Found, *, made: bool
) -> dict[str, Any]:
    """Return the facts that introduce a worker; ``made``: whether it creates its store's file."""
    from outlast.worker.runners.tags import lacking, missing

    needed = {name: missing(tags, settings.tags) for name, tags in found.requires.items()}
    for name, uses in found.uses.items():
        needed.setdefault(name, []).extend(lacking(uses, settings.has))
    lacks = {name: each for name, each in needed.items() if each}
    return {
        "application": app,
        "database": describe_place(url),
        "new_file": made if file_of(url) else None,
        "queues": settings.queues,
        "tags": settings.tags,
        "runners": settings.runners,
        "concurrency": settings.concurrency,
        "heartbeat": settings.heartbeat,
        "lease": settings.lease,
        "keep_completed": settings.keep_completed,
        "keep_workers": settings.keep_workers,
        "keep_dead": settings.keep_dead,
        "tasks": [SHELL_TASK] * settings.shell
        + [name for name in found.tasks if name not in lacks],
        "lacks": lacks,
    }


def introduction(facts: dict[str, Any]) -> str:
    """Return the text that a worker prints once it is ready."""
    origin = {True: " (a new file)", False: " (an existing one)", None: ""}[facts["new_file"]]
    tasks = facts["tasks"]
    more = f" and {len(tasks) - TASKS_SHOWN} more" if len(tasks) > TASKS_SHOWN else ""
    rows = {
        "worker": facts["worker"],
        "database": f"{facts['database']}{origin}",
        "queues": ", ".join(facts["queues"]) or "all",
        "runners": f"{facts['runners']}, each with up to"
        f" {count_of(facts['concurrency'], 'async attempt')} or one plain function",
        "lease": f"{facts['lease']:g} s, renewed every {facts['heartbeat']:g} s",
        "keeps": _kept(facts),
        "tags": ", ".join(facts["tags"]),
        "tasks": (", ".join(tasks[:TASKS_SHOWN]) + more)
        or "none: import their modules where the app is made",
    }
    lacks = [f"{name} (needs {', '.join(tags)})" for name, tags in sorted(facts["lacks"].items())]
    rows["not here"] = ", ".join(lacks[:TASKS_SHOWN]) + (" …" if lacks[TASKS_SHOWN:] else "")
    body = "".join(f"  {name:<9} {value}\n" for name, value in rows.items() if value)
    return f"{facts['application']} is ready. Ctrl-C drains, a second one stops at once.\n{body}"


def _kept(facts: dict[str, Any]) -> str:
    """Return for how long the worker keeps ended jobs, unless that is the default."""
    usual = WorkerSettings()
    named = {"completed": "completed jobs", "workers": "gone workers", "dead": "dead jobs"}
    return ", ".join(
        f"{what} {span_text(facts[f'keep_{name}'])}"
        for name, what in named.items()
        if facts[f"keep_{name}"] != getattr(usual, f"keep_{name}")
    )
